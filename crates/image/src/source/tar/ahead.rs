//! Decompressing and reading entries at the same time, in two threads.
//!
//! ```text
//!   decompress ─► [chunk] [chunk] [chunk] [chunk] ──► entries, spool
//!      ▲                                              │
//!      └───────────── used chunks ◄───────────────────┘
//! ```

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 4;

/// A chunk and its filled length, or the error that ended the stream.
type Filled = io::Result<(Vec<u8>, usize)>;

/// Calls `take` with a stream that another thread reads from `reader` in advance. Returns when
/// both have ended. If `take` does not read the stream to its end, the other thread stops at its
/// next chunk.
pub(super) fn read_ahead<'a, T>(
    reader: Box<dyn Read + Send + 'a>,
    take: impl FnOnce(Box<dyn Read + '_>) -> T,
) -> T {
    std::thread::scope(|scope| {
        let (full, filled) = sync_channel(CHUNKS);
        let (used, free) = channel();
        for _ in 0..CHUNKS {
            // The receiver exists in this scope, so this cannot fail.
            let _ = used.send(vec![0; CHUNK]);
        }
        scope.spawn(move || fill(reader, &full, &free));
        take(Box::new(Ahead { filled, used, chunk: Vec::new(), at: 0, len: 0, ended: false }))
    })
}

fn fill(mut reader: impl Read, full: &SyncSender<Filled>, free: &Receiver<Vec<u8>>) {
    while let Ok(mut chunk) = free.recv() {
        let mut len = 0;
        let mut failed = None;
        while len < chunk.len() {
            match reader.read(&mut chunk[len..]) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        // Bytes read before an error are delivered first: they may explain more than the error.
        if full.send(Ok((chunk, len))).is_err() {
            return;
        }
        if let Some(e) = failed {
            let _ = full.send(Err(e));
            return;
        }
        if len == 0 {
            return;
        }
    }
}

struct Ahead {
    filled: Receiver<Filled>,
    used: Sender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    len: usize,
    ended: bool,
}

impl Read for Ahead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.len {
            if self.ended {
                return Ok(0);
            }
            let used = std::mem::take(&mut self.chunk);
            if !used.is_empty() {
                // The other thread may have ended. Then no thread needs the chunk.
                let _ = self.used.send(used);
            }
            match self.filled.recv() {
                Ok(Ok((chunk, len))) => (self.chunk, self.at, self.len) = (chunk, 0, len),
                Ok(Err(e)) => {
                    self.ended = true;
                    return Err(e);
                }
                Err(_) => self.ended = true,
            }
        }
        let len = buf.len().min(self.len - self.at);
        buf[..len].copy_from_slice(&self.chunk[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_read_ahead_is_the_stream() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let mut got = Vec::new();
        read_ahead(Box::new(&bytes[..]), |mut stream| stream.read_to_end(&mut got)).unwrap();
        assert!(got == bytes);
        // Returning early ends the other thread.
        let first = read_ahead(Box::new(io::repeat(7)), |mut stream| {
            let mut one = [0];
            stream.read_exact(&mut one).map(|()| one[0])
        });
        assert_eq!(first.unwrap(), 7);
    }

    #[test]
    fn an_error_comes_after_the_bytes_before_it() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("torn"))
            }
        }
        let stream = Box::new((&b"good"[..]).chain(Broken));
        read_ahead(stream, |mut stream| {
            let mut bytes = Vec::new();
            assert_eq!(stream.read_to_end(&mut bytes).unwrap_err().to_string(), "torn");
            assert_eq!(bytes, b"good");
        });
    }
}
