//! The C library and the Python module, used as external programs use them.

mod common;
mod stranger;
mod wheel;
