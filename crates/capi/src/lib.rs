//! libextant: the engine as functions for C. `include/extant.h` documents them.
//!
//! ```text
//!   C ──► volume, attributes, file, list, whole     convert pointers, paths and options
//!              │ answer: error ──► errno, message kept for the thread; a panic ──► EIO
//!              ▼
//!          extant, extant-image
//! ```
//! The header states the conditions that hold for all functions: pointers are NULL only where it
//! says so, strings end in NUL, handles are open, and memory has the length that is passed.

mod answer;
mod attributes;
mod file;
mod list;
mod options;
mod place;
mod pointers;
mod volume;
mod whole;
