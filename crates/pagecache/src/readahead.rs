//! Read-ahead: bytes are there before their reader.

/// What one opener's reads look like. Interior: any number of threads may read through it.
#[derive(Debug, Default)]
pub struct ReadStream {}

impl ReadStream {
    /// A reader nothing is known of.
    pub fn new() -> ReadStream {
        ReadStream::default()
    }
}
