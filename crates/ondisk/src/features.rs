//! Features.
