//! The attributes that `stat` shows, and changes of them.

use super::context::Context;
use super::nodes::id_of;
use super::{KEPT, errno};
use crate::operations::{Answer, Attributes, Caller, NodeId, SetAttr, SetTime};
use extant::{DeviceNumber, InodeFlags, Metadata, Node, SetAttributes, Timestamp};
use rustix::io::Errno;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Set-user-ID.
const SUID: u16 = 0o4000;
/// Set-group-ID.
const SGID: u16 = 0o2000;
const GROUP_EXEC: u16 = 0o010;

/// A device number packed into 32 bits as the kernel does it.
fn packed(device: DeviceNumber) -> u32 {
    let DeviceNumber { major, minor } = device;
    minor & 0xFF | (major & 0xFFF) << 8 | (minor & !0xFF) << 12
}

/// The device number that the kernel packed into 32 bits.
pub(super) fn unpacked(rdev: u32) -> DeviceNumber {
    DeviceNumber { major: rdev >> 8 & 0xFFF, minor: rdev & 0xFF | rdev >> 12 & 0xFFF00 }
}

/// The time as an inode can hold it: whole seconds in an inode of 128 bytes, otherwise up to the
/// year 2446.
fn holdable(time: Timestamp, inode_bytes: u16) -> Timestamp {
    let with_extra = inode_bytes > 128;
    let (base, extra) = time.encode(with_extra);
    let held = Timestamp::decode(base, with_extra.then_some(extra));
    let at_an_end = held.sec == Timestamp::MIN.sec || held.sec == Timestamp::MAX.sec;
    // As Linux: no fractions of a second at the limits.
    if at_an_end { Timestamp { nsec: 0, ..held } } else { held }
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

impl Context {
    /// The attributes to show for a file.
    pub(super) fn attributes(&self, metadata: &Metadata) -> Attributes {
        let held = |time| holdable(time, self.fs().superblock().inode_size);
        let id = id_of(metadata.ino());
        // As Linux, count content in the inode too, so that no program takes the file for a hole.
        let inline = metadata.is_file() && metadata.flags().contains(InodeFlags::INLINE_DATA);
        let inline = if inline { metadata.len().div_ceil(512) } else { 0 };
        Attributes {
            ino: u64::from(metadata.ino().get()),
            size: metadata.len(),
            blocks: metadata.sectors() + inline,
            atime: held(
                self.nodes()
                    .with_reads(id, |reads| reads.accessed)
                    .flatten()
                    .unwrap_or(metadata.accessed()),
            ),
            mtime: held(metadata.modified()),
            ctime: held(metadata.changed()),
            btime: metadata.created(),
            mode: metadata.mode(),
            nlink: metadata.nlink(),
            uid: self.options().users.shown(metadata.uid()),
            gid: self.options().groups.shown(metadata.gid()),
            rdev: metadata.device().map_or(0, packed),
            blksize: self.fs().superblock().block_size.bytes() as u32,
        }
    }

    pub(super) fn change_attributes(
        &self,
        node: NodeId,
        request: &SetAttr,
    ) -> Answer<(Attributes, Duration)> {
        let id = node;
        let node = self.node(id)?;
        let held = |time| holdable(time, self.fs().superblock().inode_size);
        let time = |time: SetTime| match time {
            SetTime::Now => held(now()),
            SetTime::To(time) => held(time),
        };
        let is_now = |time: Option<SetTime>| !matches!(time, Some(SetTime::To(_)));
        let mut mode = request.mode.map(|mode| (mode & 0o7777) as u16);
        if request.kill_suid_sgid && mode.is_none() {
            mode = without_set_ids(&node);
        }
        let changes = SetAttributes {
            mode,
            uid: request.uid.map(|uid| self.options().users.stored(uid)),
            gid: request.gid.map(|gid| self.options().groups.stored(gid)),
            size: request.size,
            accessed: request.atime.map(time),
            modified: request.mtime.map(time),
            touch: is_now(request.atime) && is_now(request.mtime),
            changed: request.ctime.map(held),
            ..SetAttributes::default()
        };
        node.set_attributes(&changes).map_err(errno)?;
        if changes.accessed.is_some() {
            self.nodes().with_reads(id, |reads| reads.accessed = None);
        }
        self.made(())?;
        let metadata = node.metadata();
        Ok((self.attributes(&metadata), kept(&metadata)))
    }

    /// Clears set-user-ID and set-group-ID before a write for which the kernel requests that.
    pub(super) fn drop_set_ids(&self, node: &Node) -> Answer<()> {
        match without_set_ids(node) {
            Some(mode) => {
                let mode = Some(mode);
                node.set_attributes(&SetAttributes { mode, ..Default::default() }).map_err(errno)
            }
            None => Ok(()),
        }
    }

    /// The same before an allocation or copy by `by`. The kernel does not request it for those.
    ///
    /// As Linux since 6.2: if the group may not execute the file, set-group-ID is cleared too,
    /// unless the caller is in the group.
    pub(super) fn drop_set_ids_of_others(&self, by: &Caller, node: &Node) -> Answer<()> {
        let metadata = node.metadata();
        let group = metadata.gid();
        let mode = match without_set_ids(node).unwrap_or(metadata.permissions()) {
            mode if mode & SGID != 0 && metadata.is_file() && !self.is_in_group(by, group) => {
                mode & !SGID
            }
            mode => mode,
        };
        match mode != metadata.permissions() {
            true => {
                let mode = Some(mode);
                node.set_attributes(&SetAttributes { mode, ..Default::default() }).map_err(errno)
            }
            false => Ok(()),
        }
    }

    /// Whether `group` of the volume is the caller's group or a supplementary group of its process.
    fn is_in_group(&self, by: &Caller, group: u32) -> bool {
        let is = |gid| self.options().groups.stored(gid) == group;
        // A request carries one group. A process that has ended has no supplementary groups.
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", by.pid)).unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let mut groups = groups.unwrap_or_default().split_whitespace();
        is(by.gid) || groups.any(|gid| gid.parse().is_ok_and(is))
    }

    pub(super) fn link_target(&self, node: NodeId) -> Answer<Vec<u8>> {
        let link = self.node(node)?;
        let target = link.read_link().map_err(errno)?;
        self.note_access(node, &link, 0);
        match target.as_os_str().is_empty() {
            true => Err(Errno::NOENT),
            false => Ok(target.into_os_string().into_encoded_bytes()),
        }
    }
}

/// How long the kernel may cache a file's attributes. Not at all while the file has set-ID bits: a
/// write clears them here, and a kernel with the old attributes would still run the file with its
/// owner's rights.
pub(super) fn kept(metadata: &Metadata) -> Duration {
    match metadata.is_file() && metadata.permissions() & (SUID | SGID) != 0 {
        true => Duration::ZERO,
        false => KEPT,
    }
}

/// The permission bits without the set-ID bits, or `None` if the file has none that a write clears.
fn without_set_ids(node: &Node) -> Option<u16> {
    let metadata = node.metadata();
    let mode = metadata.permissions();
    let mut gone = SUID;
    if mode & GROUP_EXEC != 0 {
        gone |= SGID;
    }
    (metadata.is_file() && mode & gone != 0).then_some(mode & !gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_to_what_an_inode_holds() {
        let time = |sec, nsec| Timestamp { sec, nsec };
        for (request, inode_bytes, held) in [
            (time(5, 6), 256, time(5, 6)),
            (time(5, 6), 128, time(5, 0)),
            (time(i64::MAX, 6), 256, time(15_032_385_535, 0)),
            (time(15_032_385_535, 6), 256, time(15_032_385_535, 0)),
            (time(i64::MIN, 6), 256, time(-2_147_483_648, 0)),
            (time(-2_147_483_648, 6), 256, time(-2_147_483_648, 0)),
            (time(1 << 40, 6), 128, time(2_147_483_647, 0)),
        ] {
            assert_eq!(holdable(request, inode_bytes), held);
        }
    }

    #[test]
    fn device_numbers_pack_as_linux_packs_them() {
        for (major, minor, rdev) in [(1, 3, 0x103), (8, 0, 0x800), (300, 70_000, 0x1111_2C70)] {
            assert_eq!(packed(DeviceNumber { major, minor }), rdev);
            assert_eq!(unpacked(rdev), DeviceNumber { major, minor });
        }
    }
}
