//! Memory that requests and replies pass through, made once a thread.

use crate::abi::PAGE;

/// Zeroed bytes, with the data of a request or a reply on a page's boundary.
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
    /// Room for `front` bytes and, on a page's boundary, `data` more. Pages cost memory once used.
    pub(crate) fn new(front: usize, data: usize) -> Buffer {
        assert!(front <= PAGE, "what stands before the data fits in a page");
        let bytes = vec![0; 2 * PAGE + data];
        // In a vector the boundary is less than a page away, and `front` more fits before the next.
        let boundary = bytes.as_ptr().align_offset(PAGE);
        Buffer { start: boundary + PAGE - front, bytes }
    }

    /// Front and data.
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
