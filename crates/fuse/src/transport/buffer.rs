//! Memory for requests and replies, allocated once for each thread.

use crate::abi::PAGE;

/// Zeroed bytes in which the data of a request or reply starts on a page boundary.
///
/// ```text
///   base          front                 PAGE boundary
///   │ slack       │ headers, structs    │ data …
/// ```
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// A buffer of `front` bytes followed by `data` bytes that start on a page boundary. Pages cost
    /// memory only once they are used.
    pub(crate) fn new(front: usize, data: usize) -> Buffer {
        assert!(front <= PAGE, "what stands before the data fits in a page");
        let bytes = vec![0; 2 * PAGE + data];
        // The first boundary is less than a page away, and `front` bytes more fit before the next
        // one.
        let boundary = bytes.as_ptr().align_offset(PAGE);
        Buffer { start: boundary + PAGE - front, bytes }
    }

    /// The front and the data.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_begins_on_a_page() {
        for front in [0, 16, 80, 4096] {
            let mut buffer = Buffer::new(front, 10_000);
            assert!(buffer.bytes().len() >= front + 10_000);
            assert_eq!(buffer.bytes()[front..].as_ptr().align_offset(PAGE), 0);
        }
    }
}
