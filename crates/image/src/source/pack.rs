//! Compression, recognised by the first bytes and never by the name.
//!
//! ```text
//!   1f 8b           gzip, one member or many
//!   28 b5 2f fd     zstd, one frame or many; 5? 2a 4d 18: a frame to skip
//!   else            uncompressed; known formats that are not supported are named
//! ```

use std::io::{self, BufReader, Cursor, Read};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// The number of bytes that [`Packing::detect`] examines.
pub(crate) const MAGIC_LEN: usize = 8;

impl Packing {
    /// Examines the first bytes. Errors: the name of a format that is not supported, with advice.
    pub(crate) fn detect(start: &[u8]) -> Result<Packing, String> {
        let other = match start {
            [0x1f, 0x8b, ..] => return Ok(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                return Ok(Packing::Zstd);
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', b'&', ..] => "bzip2",
            [0x04, 0x22, 0x4d, 0x18, ..] => "lz4",
            [b'L', b'Z', b'I', b'P', 1, ..] => "lzip",
            _ => return Ok(Packing::Plain),
        };
        Err(format!("packed with {other}, which is not read: unpack it ({other} -dc) into a pipe"))
    }

    /// Decompresses a stream.
    pub(crate) fn unpack<'a>(
        self,
        packed: impl Read + Send + 'a,
    ) -> io::Result<Box<dyn Read + Send + 'a>> {
        let packed = BufReader::with_capacity(256 << 10, packed);
        Ok(match self {
            Packing::Plain => Box::new(packed),
            Packing::Gzip => {
                let reader = flate2::bufread::MultiGzDecoder::new(packed);
                Box::new(Whole { reader: Gzip { reader, any: false } })
            }
            Packing::Zstd => {
                let reader = zstd::stream::read::Decoder::with_buffer(packed)?;
                Box::new(Whole { reader })
            }
        })
    }
}

/// A decompressed stream that reports an early end of the input as such.
struct Whole<R> {
    reader: R,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(
                io::ErrorKind::InvalidData,
                "truncated: what it is packed in ends early",
            ),
            _ => e,
        })
    }
}

/// A gzip stream. Padding after its last member is ignored, as gzip itself does.
struct Gzip<R> {
    reader: R,
    any: bool,
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buf) {
            Ok(len) => {
                self.any |= len > 0;
                Ok(len)
            }
            Err(e) if self.any && e.to_string() == "invalid gzip header" => Ok(0),
            Err(e) => Err(e),
        }
    }
}

/// Reads up to [`MAGIC_LEN`] bytes of a stream, and returns a stream that begins with them again.
pub(crate) fn peek<'a>(
    mut reader: impl Read + Send + 'a,
) -> io::Result<(Vec<u8>, Box<dyn Read + Send + 'a>)> {
    let mut start = Vec::new();
    reader.by_ref().take(MAGIC_LEN as u64).read_to_end(&mut start)?;
    let whole = Cursor::new(start.clone()).chain(reader);
    Ok((start, Box::new(whole)))
}
