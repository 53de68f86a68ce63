//! `ioctl`: the commands that `lsattr`, `chattr` and similar programs use for flags, project and
//! generation.
//!
//! ```text
//!   FS_IOC_GETFLAGS, SETFLAGS        'f' 1, 2      the volume's own flags, 4 bytes
//!   FS_IOC_FSGETXATTR, FSSETXATTR    'X' 31, 32    flags, extent size, extents, project, …
//!   FS_IOC_GETVERSION, SETVERSION    'v' 1, 2      the generation; also as ext4's 'f' 3, 4
//!   FITRIM                           'X' 121       24 bytes: start, length, shortest run
//!   FS_IOC_GETFSLABEL, SETFSLABEL    0x94 49, 50   256 bytes: the volume's label, ended by a NUL
//!   EXT4_IOC_RESIZE_FS               'f' 16        8 bytes: blocks that the volume is to have
//!   RESIZE                           0xEF 0x53     the same with an answer, see `resize.rs`
//!   EXT4_IOC_SHUTDOWN                'X' 125       syncs everything and ends all changes
//!   extant's own                     0xE4 1        32 bytes: moves the file to fewer extents
//!
//!   command   direction 2 │ size 14 │ kind 8 │ number 8
//! ```
//!
//! Any other command is ENOTTY; docs/TESTING.md says why. The kernel passes only as many bytes as
//! the command number says, and only in its direction. SHUTDOWN's number says "to the caller", so
//! its flags do not arrive, and every mode of it acts as the mode that loses nothing.
//!
//! For commands that change something, the kernel checks the caller's permission, but only for the
//! exact command that it knows. The same number with another size or direction arrives without a
//! check, from any process that can open the file, and is refused as unknown. Source:
//! ioctl_iflags(2), ioctl_xfs_fsgetxattr(2).

use super::context::Context;
use super::errno;
use super::resize::{NewSize, RESIZE, ResizeAnswer};
use crate::operations::{Answer, Caller, NodeId};
use extant::resize::{Size, grow};
use extant::{Filesystem, InodeFlags, Node, SetAttributes};
use rustix::io::Errno;

const GET_FLAGS: u32 = command(READ, LONG_BYTES, 'f', 1);
/// The same command with 32 bits, from 32-bit programs.
const GET_FLAGS_32: u32 = command(READ, 4, 'f', 1);
const SET_FLAGS: u32 = command(WRITE, LONG_BYTES, 'f', 2);
const GET_VERSION: u32 = command(READ, LONG_BYTES, 'v', 1);
const GET_VERSION_32: u32 = command(READ, 4, 'v', 1);
const SET_VERSION: u32 = command(WRITE, LONG_BYTES, 'v', 2);
const SET_VERSION_32: u32 = command(WRITE, 4, 'v', 2);
const GET_VERSION_OLD: u32 = command(READ, LONG_BYTES, 'f', 3);
const SET_VERSION_OLD: u32 = command(WRITE, LONG_BYTES, 'f', 4);
const TRIM: u32 = command(READ | WRITE, 24, 'X', 121);
/// `struct { u32 flags, zero; u64 before, after, moved; }`: flags and zero from the caller, the
/// others to it, see [`Controls::defragment`].
const DEFRAGMENT: u32 = command(READ | WRITE, DEFRAGMENT_BYTES, '\u{e4}', 1);
const DEFRAGMENT_BYTES: usize = 32;
/// Flag of it: only count.
const ONLY_COUNT: u32 = 1;
const SHUT_DOWN: u32 = command(READ, 4, 'X', 125);
const RESIZE_FS: u32 = command(WRITE, 8, 'f', 16);
const GET_LABEL: u32 = command(READ, LABEL_BYTES, '\u{94}', 49);
const SET_LABEL: u32 = command(WRITE, LABEL_BYTES, '\u{94}', 50);
/// Size of a label in a call, in bytes.
const LABEL_BYTES: usize = 256;
const GET_XFLAGS: u32 = command(READ, XFLAGS_BYTES, 'X', 31);
const SET_XFLAGS: u32 = command(WRITE, XFLAGS_BYTES, 'X', 32);
/// Size of the structure that the last two carry, in bytes.
const XFLAGS_BYTES: usize = 28;
/// Size with which the other commands are declared, in bytes. They carry four bytes.
const LONG_BYTES: usize = size_of::<std::ffi::c_long>();
/// A command's direction: to the caller, from the caller.
const READ: u32 = 2;
const WRITE: u32 = 1;

/// The flags of `struct fsxattr` and the volume's flags for them.
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

/// Requests by `ioctl`.
pub(super) struct Controls<'a>(pub(super) &'a Context);

impl Controls<'_> {
    pub(super) fn answer(
        &self,
        by: &Caller,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Answer<usize> {
        let node = self.0.node(node)?;
        match command {
            TRIM => self.trim(by, input, out),
            DEFRAGMENT => self.defragment(by, &node, input, out),
            GET_LABEL => {
                let mut label = self.0.fs().label();
                label.resize(LABEL_BYTES, 0);
                put(out, &label)
            }
            SET_LABEL => {
                check_may_administer(by)?;
                let label = input.split(|byte| *byte == 0).next().unwrap_or_default();
                self.0.fs().set_label(label).map(|()| 0).map_err(errno)
            }
            RESIZE_FS => {
                check_may_administer(by)?;
                let blocks = number(input, 0)?;
                grow(self.0.fs(), Size::Blocks(blocks), &()).map(|_| 0).map_err(errno)
            }
            RESIZE => {
                check_may_administer(by)?;
                let size = NewSize::from_bytes(input).ok_or(Errno::INVAL)?;
                let before = self.0.fs().blocks_count();
                let done = grow(self.0.fs(), size.of(volume_bytes(self.0.fs())), &());
                let now = self.0.fs().blocks_count();
                // For a call that came second, the growth is that of another caller.
                let own = now > before && !matches!(done, Err(extant::Error::Busy));
                put(out, &ResizeAnswer::of(&done, own.then_some(now)).to_bytes())
            }
            SHUT_DOWN => match by.uid {
                0 => self.0.fs().shut_down(true).map(|()| 0).map_err(errno),
                _ => Err(Errno::PERM),
            },
            SET_VERSION | SET_VERSION_32 | SET_VERSION_OLD => {
                let owner = self.0.options().users.shown(node.metadata().uid());
                if self.0.options().check_permissions && by.uid != 0 && by.uid != owner {
                    return Err(Errno::PERM);
                }
                node.set_generation(word(input, 0)?).map_err(|error| match error {
                    // The errno that Linux returns.
                    extant::Error::NotSupported(_) => Errno::NOTTY,
                    error => errno(error),
                })?;
                self.0.made(0)
            }
            GET_FLAGS | GET_FLAGS_32 => put(out, &shown_flags(&node).bits().to_le_bytes()),
            GET_VERSION | GET_VERSION_32 | GET_VERSION_OLD => {
                put(out, &node.metadata().generation().to_le_bytes())
            }
            SET_FLAGS => {
                let flags = InodeFlags::from_bits_retain(word(input, 0)?);
                if !flags.intersection(refused(&node)).is_empty() {
                    return Err(Errno::OPNOTSUPP);
                }
                // Linux requires CAP_SYS_RESOURCE for it, and a request does not carry the caller's
                // capabilities.
                let changed = flags ^ shown_flags(&node);
                if changed.contains(InodeFlags::JOURNAL_DATA) && by.uid != 0 {
                    return Err(Errno::PERM);
                }
                let changes = SetAttributes { flags: Some(flags), ..Default::default() };
                node.set_attributes(&changes).map_err(errno)?;
                self.0.made(0)
            }
            GET_XFLAGS => put(out, &xflags(&node)),
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
                let changes =
                    SetAttributes { flags: Some(flags), project: projid, ..Default::default() };
                node.set_attributes(&changes).map_err(errno)?;
                self.0.made(0)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// Moves a file to fewer extents, or counts them. The result has the number of extents before,
    /// their number now, or how many the file needs if it was only counted, and how many blocks
    /// moved.
    ///
    /// No kernel checks this command, so a descriptor that is open for reading only brings it, too.
    /// Only root may use it, and the owner of a file who may write it.
    fn defragment(&self, by: &Caller, node: &Node, input: &[u8], out: &mut [u8]) -> Answer<usize> {
        let (flags, zero) = (word(input, 0)?, word(input, 4)?);
        let metadata = node.metadata();
        if flags & !ONLY_COUNT != 0 || zero != 0 || !metadata.is_file() {
            return Err(Errno::INVAL);
        }
        let owner = self.0.options().users.shown(metadata.uid());
        let may_write = by.uid == owner && metadata.mode() & 0o200 != 0;
        if self.0.options().check_permissions && by.uid != 0 && !may_write {
            return Err(Errno::PERM);
        }
        let [before, after, moved] = if flags & ONLY_COUNT != 0 {
            let (extents, needed) = node.count_extents().map_err(errno)?;
            [extents, needed, 0]
        } else {
            let done = node.defragment().map_err(errno)?;
            [done.before, done.after, done.moved_blocks]
        };
        let numbers = [u64::from(flags), before, after, moved];
        let answer: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        put(out, &answer)
    }

    /// `FITRIM`: the input is the range; the result is the range with the number of trimmed bytes
    /// as its length.
    fn trim(&self, by: &Caller, input: &[u8], out: &mut [u8]) -> Answer<usize> {
        check_may_administer(by)?;
        let (start, len, min) = (number(input, 0)?, number(input, 8)?, number(input, 16)?);
        let bytes = self.0.fs().trim(start..start.saturating_add(len), min).map_err(errno)?;
        let answer: Vec<u8> = [start, bytes, min].into_iter().flat_map(u64::to_le_bytes).collect();
        put(out, &answer)
    }
}

fn volume_bytes(fs: &Filesystem) -> u64 {
    fs.blocks_count() << fs.superblock().block_size.log2()
}

/// Permits root, and the user who mounted, what requires CAP_SYS_ADMIN on a mount of Linux.
fn check_may_administer(by: &Caller) -> Answer<()> {
    let is_ours = by.uid == 0 || by.uid == rustix::process::geteuid().as_raw();
    is_ours.then_some(()).ok_or(Errno::PERM)
}

/// What `FS_IOC_FSGETXATTR` returns for `node`.
fn xflags(node: &Node) -> [u8; XFLAGS_BYTES] {
    let metadata = node.metadata();
    let set = XFLAGS.iter().filter(|(_, flag)| metadata.flags().contains(*flag));
    let flags: u32 = set.map(|(bit, _)| bit).sum();
    let mut bytes = [0; XFLAGS_BYTES];
    bytes[..4].copy_from_slice(&flags.to_le_bytes());
    bytes[12..16].copy_from_slice(&metadata.project().to_le_bytes());
    bytes
}

/// The flags that a file of this kind cannot have.
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

/// The flags to show to a caller, the same ones that Linux shows.
fn shown_flags(node: &Node) -> InodeFlags {
    InodeFlags::from_bits_retain(node.metadata().flags().bits() & 0x72DB_DFFF)
}

fn put(out: &mut [u8], answer: &[u8]) -> Answer<usize> {
    // Four bytes even where a long is declared: programs expect four there.
    let place = out.get_mut(..answer.len()).ok_or(Errno::INVAL)?;
    place.copy_from_slice(answer);
    Ok(answer.len())
}

fn number(input: &[u8], at: usize) -> Answer<u64> {
    let bytes = input.get(at..at + 8).and_then(|bytes| bytes.first_chunk::<8>());
    Ok(u64::from_le_bytes(*bytes.ok_or(Errno::INVAL)?))
}

fn word(input: &[u8], at: usize) -> Answer<u32> {
    let bytes = input.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
    Ok(u32::from_le_bytes(*bytes.ok_or(Errno::INVAL)?))
}
