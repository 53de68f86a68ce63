//! The C library and the Python module, used as strangers use them.

mod common;
mod stranger;
mod wheel;
