//! `ioctl`: flags, project and generation, as `lsattr`, `chattr` and their kin ask for them.
//!
//! ```text
//!   FS_IOC_GETFLAGS, SETFLAGS        'f' 1, 2      a word of the volume's own flags
//!   FS_IOC_FSGETXATTR, FSSETXATTR    'X' 31, 32    28 bytes: flags, extent size, extents, project, …
//!   FS_IOC_GETVERSION                'v' 1         the generation
//! ```
//!
//! The kernel checks who may change what. Source: ioctl_iflags(2), ioctl_xfs_fsgetxattr(2).

use super::{Volume, errno};
use crate::operations::{Answer, NodeId};
use extant::{InodeFlags, Node, SetAttributes};
use rustix::io::Errno;

const GET_FLAGS: u32 = number('f', 1);
const SET_FLAGS: u32 = number('f', 2);
const GET_VERSION: u32 = number('v', 1);
const GET_XFLAGS: u32 = number('X', 31);
const SET_XFLAGS: u32 = number('X', 32);
/// Bytes of the structure that the last two carry.
const XFLAGS_BYTES: usize = 28;

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

/// Type and number of a command: its size and direction differ between word sizes.
const fn number(kind: char, number: u32) -> u32 {
    (kind as u32) << 8 | number
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
        match command & 0xFFFF {
            GET_FLAGS => put(out, &shown_flags(&node).bits().to_le_bytes()),
            GET_VERSION => put(out, &node.metadata().generation().to_le_bytes()),
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
    InodeFlags::from_bits_retain(node.metadata().flags().bits() & 0x725B_DFFF)
}

fn put(out: &mut [u8], answer: &[u8]) -> Answer<usize> {
    let place = out.get_mut(..answer.len()).ok_or(Errno::INVAL)?;
    place.copy_from_slice(answer);
    // A word twice as wide has zeros behind it.
    let wide = out.len().min(8).max(answer.len());
    out[answer.len()..wide].fill(0);
    Ok(wide)
}

fn word(input: &[u8], at: usize) -> Answer<u32> {
    let bytes = input.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
    Ok(u32::from_le_bytes(*bytes.ok_or(Errno::INVAL)?))
}
