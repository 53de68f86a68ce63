//! libextant: the engine behind functions that C can call; `include/extant.h` says what they promise.
//!
//! ```text
//!   C ──► volume, attributes, file, list, whole      pointers become references, bytes become paths and options
//!              │ answer: error ──► errno, message kept for the thread; a panic ──► EIO
//!              ▼
//!          extant, extant-image
//! ```
//! What all functions demand of their caller is said once, in the header: pointers are NULL only where
//! it says so, strings end in NUL, handles are open, memory is as long as told.

mod answer;
mod attributes;
mod file;
mod list;
mod options;
mod pointers;
mod volume;
mod whole;
