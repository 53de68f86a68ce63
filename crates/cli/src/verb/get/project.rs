//! Project ids of copied files: the only system call of this program that no crate wraps.
//!
//! ```text
//!   struct fsxattr   0       4       8        12       16           20        28
//!                    ┌───────┬───────┬────────┬────────┬────────────┬─────────┐
//!                    │xflags │extsize│nextents│ projid │ cowextsize │ padding │
//!                    └───────┴───────┴────────┴────────┴────────────┴─────────┘
//! ```
//!
//! Source: ioctl_xfs_fsgetxattr(2).

#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::os::fd::AsFd;

#[repr(C)]
#[derive(Clone, Copy)]
struct FsXattr {
    fsx_xflags: u32,
    fsx_extsize: u32,
    fsx_nextents: u32,
    fsx_projid: u32,
    fsx_cowextsize: u32,
    fsx_pad: [u8; 8],
}
const _: () = assert!(size_of::<FsXattr>() == 28);

const GET: Opcode = opcode::read::<FsXattr>(b'X', 31);
const SET: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// Sets the project of an open file or directory. The other fields of the call keep their values.
///
/// Errors: those of the kernel; `OPNOTSUPP` or `NOTTY` if the filesystem has no projects.
pub(super) fn set_project(file: impl AsFd, project: u32) -> Result<(), Errno> {
    // SAFETY: FS_IOC_FSGETXATTR writes one `FsXattr`, for which every bit pattern is valid.
    let has = unsafe { ioctl(&file, Getter::<GET, FsXattr>::new()) }?;
    if has.fsx_projid == project {
        return Ok(());
    }
    let changes = FsXattr { fsx_projid: project, ..has };
    // SAFETY: FS_IOC_FSSETXATTR reads one `FsXattr`, which is initialised and has no padding.
    unsafe { ioctl(&file, Setter::<SET, FsXattr>::new(changes)) }
}
