//! Where a volume is: in a file, in a part of it, or in a partition of a disk.

use crate::answer::Fault;
use extant::OpenOptions;
use extant::disk::split_address;
use std::path::Path;

/// The path in `image`, and options to open the volume there: from byte `offset` on, or in the
/// partition that the name ends with (`disk.img?partition=2`).
///
/// Errors: EINVAL for a wrong option, and for an offset beside a partition.
pub(crate) fn volume_at(image: &Path, offset: u64) -> Result<(&Path, OpenOptions), Fault> {
    let (path, partition) = split_address(image).map_err(Fault::invalid)?;
    let mut open = OpenOptions::new();
    match (partition, offset) {
        (Some(partition), 0) => open.partition(partition),
        (Some(_), _) => return Err(Fault::invalid("an offset and a partition exclude each other")),
        (None, 0) => &mut open,
        (None, offset) => open.offset(offset),
    };
    Ok((path, open))
}
