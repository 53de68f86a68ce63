//! `ioctl`: flags, project and generation, as `lsattr`, `chattr` and their kin ask for them.
//!
//! ```text
//!   FS_IOC_GETFLAGS, SETFLAGS        'f' 1, 2      a word of the volume's own flags
//!   FS_IOC_FSGETXATTR, FSSETXATTR    'X' 31, 32    28 bytes: flags, extent size, extents, project, …
//!   FS_IOC_GETVERSION                'v' 1         the generation
//!
//!   command   direction 2 │ size 14 │ kind 8 │ number 8
//! ```
//!
//! Of what changes something the kernel checks who may, and only of the one command it knows: the same number
//! with another size or direction reaches us unchecked, from whoever can open the file, and is no command.
//! Source: ioctl_iflags(2), ioctl_xfs_fsgetxattr(2).

use super::{Volume, errno};
use crate::operations::{Answer, NodeId};
use extant::{InodeFlags, Node, SetAttributes};
use rustix::io::Errno;

const GET_FLAGS: u32 = command(READ, LONG_BYTES, 'f', 1);
/// The same in 32 bits, as programs of a smaller word ask.
const GET_FLAGS_32: u32 = command(READ, 4, 'f', 1);
const SET_FLAGS: u32 = command(WRITE, LONG_BYTES, 'f', 2);
const GET_VERSION: u32 = command(READ, LONG_BYTES, 'v', 1);
const GET_VERSION_32: u32 = command(READ, 4, 'v', 1);
const GET_XFLAGS: u32 = command(READ, XFLAGS_BYTES, 'X', 31);
const SET_XFLAGS: u32 = command(WRITE, XFLAGS_BYTES, 'X', 32);
/// Bytes of the structure that the last two carry.
const XFLAGS_BYTES: usize = 28;
/// Bytes that the others are declared with; they carry four.
const LONG_BYTES: usize = size_of::<std::ffi::c_long>();
/// A command's direction: to the caller, from the caller.
const READ: u32 = 2;
const WRITE: u32 = 1;

/// The flags of `struct fsxattr` and what they are on the volume.
const XFLAGS: [(u32, InodeFlags); 7] = [
    (0x0000_0008, InodeFlags::IMMUTABLE),
    (0x0000_0010, InodeFlags::APPEND),
    (0x0000_0020, InodeFlags::SYNC),
    (0x0000_0040, InodeFlags::NOATIME),
    (0x0000_0080, InodeFlags::NODUMP),
    (0x0000_0200, InodeFlags::PROJINHERIT),
    (0x0000_8000, InodeFlags::DAX),
];

const fn command(direction: u32, bytes: usize, kind: char, number: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (kind as u32) << 8 | number
}

impl Volume {
    pub(super) fn answer_control(
        &self,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Answer<usize> {
        let node = self.node(node)?;
        match command {
            GET_FLAGS | GET_FLAGS_32 => put(out, &shown_flags(&node).bits().to_le_bytes()),
            GET_VERSION | GET_VERSION_32 => put(out, &node.metadata().generation().to_le_bytes()),
            SET_FLAGS => {
                let flags = InodeFlags::from_bits_retain(word(input, 0)?);
                if !flags.intersection(refused(&node)).is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                let wish = SetAttributes { flags: Some(flags), ..Default::default() };
                node.set_attributes(&wish).map_err(errno)?;
                self.made(0)
            }
            GET_XFLAGS => put(out, &self.xflags(&node)),
            SET_XFLAGS => {
                let xflags = word(input, 0)?;
                let mut flags = shown_flags(&node);
                for (bit, flag) in XFLAGS {
                    flags.set(flag, xflags & bit != 0);
                }
                if !flags.intersection(refused(&node)).is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                let projid = word(input, 12)?;
                let projid = (projid != node.metadata().project()).then_some(projid);
                let wish = SetAttributes { flags: Some(flags), projid, ..Default::default() };
                node.set_attributes(&wish).map_err(errno)?;
                self.made(0)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn xflags(&self, node: &Node) -> [u8; XFLAGS_BYTES] {
        let metadata = node.metadata();
        let set = XFLAGS.iter().filter(|(_, flag)| metadata.flags().contains(*flag));
        let flags: u32 = set.map(|(bit, _)| bit).sum();
        let mut bytes = [0; XFLAGS_BYTES];
        bytes[..4].copy_from_slice(&flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&metadata.project().to_le_bytes());
        bytes
    }
}

/// The flags that a file of this kind cannot be given.
fn refused(node: &Node) -> InodeFlags {
    let of_directories =
        InodeFlags::DIRSYNC | InodeFlags::TOPDIR | InodeFlags::CASEFOLD | InodeFlags::PROJINHERIT;
    let metadata = node.metadata();
    let inline = metadata.flags().contains(InodeFlags::INLINE_DATA);
    match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => InodeFlags::empty(),
        // Content in the inode cannot be mapped from the device.
        (_, true) if inline => of_directories | InodeFlags::DAX,
        (_, true) => of_directories,
        _ => !(InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}

/// The flags that a caller is shown, as Linux shows them.
fn shown_flags(node: &Node) -> InodeFlags {
    InodeFlags::from_bits_retain(node.metadata().flags().bits() & 0x72DB_DFFF)
}

fn put(out: &mut [u8], answer: &[u8]) -> Answer<usize> {
    // Four bytes even where a long is declared: programs have four there.
    let place = out.get_mut(..answer.len()).ok_or(Errno::INVAL)?;
    place.copy_from_slice(answer);
    Ok(answer.len())
}

fn word(input: &[u8], at: usize) -> Answer<u32> {
    let bytes = input.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
    Ok(u32::from_le_bytes(*bytes.ok_or(Errno::INVAL)?))
}
