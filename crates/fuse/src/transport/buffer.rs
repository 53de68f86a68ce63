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
    /// A buffer of `front` bytes followed by `data` bytes that start on a page boundary. Pages of
    /// data after the first one cost memory only once they are used.
    ///
    /// The first page of data is used at once. A name can lie right before it, and processors with
    /// AVX-512 read names with masked loads of 32 bytes. If such a load extends into a page that is
    /// not there yet, it takes some hundred cycles more, so one scan of a directory block takes
    /// 20 µs instead of 1.
    pub(crate) fn new(front: usize, data: usize) -> Buffer {
        assert!(front <= PAGE, "what stands before the data fits in a page");
        let mut bytes = vec![0; 2 * PAGE + data];
        // The first boundary is less than a page away, and `front` bytes more fit before the next
        // one.
        let boundary = bytes.as_ptr().align_offset(PAGE);
        // Without `black_box` the compiler would omit a store of what is there.
        *std::hint::black_box(&mut bytes[boundary + PAGE]) = 0;
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
