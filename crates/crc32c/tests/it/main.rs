//! Checksums against published vectors and against the definition.

mod equal;
mod vectors;
