//! Data ranges and holes of a file of this machine.

use rustix::fd::AsFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Calls `each` with the first byte and the length of every data range below `size`, in ascending
/// order. Moves the file's position. Returns `false` when the filesystem cannot report holes: then
/// everything is data, and earlier calls of `each` must be ignored.
pub fn data_ranges(file: impl AsFd, size: u64, each: &mut dyn FnMut(u64, u64)) -> bool {
    let mut at = 0;
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(_) => return false,
        };
        let end = seek(&file, SeekFrom::Hole(start)).unwrap_or(size).clamp(start, size);
        if end == start {
            break;
        }
        each(start, end - start);
        at = end;
    }
    true
}
