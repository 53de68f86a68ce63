//! One inode: which rules it breaks, and the smallest change that mends it.
//!
//! ```text
//!   slot ─► free? ─► type ─► raw fields ─► flags, times ─► attributes ─► content ─► sectors
//!            │        └ from names, from content                  │
//!            └ deletion time, checksum                            └ map, inline, target, device
//! ```

use super::attributes;
use super::census::Evidence;
use super::{Node, Table};
use crate::map::{self, Mapping, ShortMap};
use crate::report::Class;
use crate::volume::{Role, Volume};
use extant_base::{Ino, Result};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::inode::{
    EXTRA_ISIZE, FileKind, I_BLOCK_SIZE, Inode, InodeFlags, InodeFormat, checksum_is_right,
    is_zero_slot, set_checksum,
};
use hashbrown::HashSet;

/// Whether the inode's `i_block` is a map of blocks.
pub(super) fn has_map(inode: &Inode, format: &InodeFormat) -> bool {
    let special = matches!(
        inode.kind(),
        Some(FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket)
    );
    !special && !inode.has_inline_data() && !is_fast_link(inode, format)
}

/// Whether a symlink's target is in `i_block`, even if flags or counts contradict that.
fn is_fast_link(inode: &Inode, format: &InodeFormat) -> bool {
    if !inode.is_symlink() || inode.has_inline_data() {
        return false;
    }
    let plain = inode.is_fast_symlink(format)
        && (!inode.has_extents() || inode.size < I_BLOCK_SIZE as u64 && inode.sectors == 0);
    plain || is_text(inode)
}

/// Whether `i_block` holds exactly a text of the inode's size, and zeros after it.
fn is_text(inode: &Inode) -> bool {
    let Some(len) = usize::try_from(inode.size).ok().filter(|len| (1..60).contains(len)) else {
        return false;
    };
    let (text, rest) = inode.i_block.split_at(len);
    text.iter().all(|byte| *byte >= b' ') && rest.iter().all(|byte| *byte == 0)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |half| u16::from_le_bytes(*half))
}

/// Judges an inode that is sound, or free. Returns whether it is doubtful instead.
pub(super) fn first_look(
    volume: &mut Volume,
    table: &mut Table,
    ino: u32,
    slot: &[u8],
    orphans: &HashSet<u32>,
) -> Result<bool> {
    let Some(nr) = Ino::new(ino) else { return Ok(false) };
    let role = volume.role(ino);
    let right = checksum_is_right(slot, nr, &volume.checksums) || is_zero_slot(slot);
    if role != Role::Ordinary {
        internal(volume, table, ino, role, slot, right)?;
        return Ok(false);
    }
    let (mode, links) = (half(slot, 0), half(slot, 0x1A));
    if orphans.contains(&ino) {
        volume.report.add_file(Class::Orphans, ino);
        if links == 0 {
            free(volume, ino, slot)?;
            return Ok(false);
        }
        table.truncate.insert(ino);
    }
    if links == 0 && ino != Ino::ROOT.get() {
        let time = word(slot, 0x14);
        let deleted = mode == 0 && time == 0 || time > volume.geometry.inodes_count();
        return Ok(!deleted || !right);
    }
    let Ok(inode) = Inode::parse_unverified(slot, nr, &volume.format) else { return Ok(true) };
    if !right || does_not_fit(volume, table, ino, &inode)? {
        return Ok(true);
    }
    used(volume, table, ino, slot.to_vec(), false, &Evidence::default())?;
    Ok(false)
}

/// Takes an inode with which a check found no fault. Returns whether it could be read.
///
/// Errors: `Device`.
pub(super) fn accept(volume: &Volume, table: &mut Table, ino: u32, slot: &[u8]) -> Result<bool> {
    if half(slot, 0x1A) == 0 {
        return Ok(true);
    }
    let parsed = Ino::new(ino).map(|nr| Inode::parse_unverified(slot, nr, &volume.format));
    let Some(Ok(inode)) = parsed else { return Ok(false) };
    match ShortMap::of(volume, slot) {
        Some(map) => table.claim(volume, map.runs(), &[]),
        None if has_map(&inode, &volume.format) => {
            let map = map::read(volume, ino, &inode, &mut table.budget, false)?;
            table.claim(volume, &map.runs, &map.nodes);
        }
        None => {}
    }
    if let Some(block) = inode.file_acl {
        table.blocks.entry(block.0).or_default().push(ino);
    }
    table.nodes.insert(ino, node_of(&inode, Role::Ordinary, false));
    Ok(true)
}

/// What later steps need to know of an inode.
fn node_of(inode: &Inode, role: Role, suspect: bool) -> Node {
    let is_file = inode.kind() == Some(FileKind::Regular);
    Node {
        mode: inode.mode,
        links: inode.links,
        flags: inode.flags,
        hidden: role != Role::Ordinary,
        suspect,
        has_content: inode.size > 0 || inode.sectors > 0 || !is_file,
    }
}

/// Whether the content of an inode contradicts its type.
fn does_not_fit(volume: &Volume, table: &mut Table, ino: u32, inode: &Inode) -> Result<bool> {
    let acl = if inode.file_acl.is_some() { volume.cluster_sectors() } else { 0 };
    Ok(match inode.kind() {
        None => true,
        Some(FileKind::Directory) if inode.has_inline_data() => false,
        Some(FileKind::Directory) => {
            let map = map::read(volume, ino, inode, &mut table.budget, false)?;
            match map.locate(0) {
                Some(block) => {
                    let bytes = volume.disk.read(block)?;
                    bytes[6] != 1 && bytes[8] != b'.' && bytes[18] != 2
                }
                None => map.runs.is_empty(),
            }
        }
        Some(FileKind::Regular) => false,
        Some(FileKind::Symlink)
            if inode.has_inline_data() || inode.flags.contains(InodeFlags::ENCRYPT) =>
        {
            false
        }
        Some(FileKind::Symlink) if is_fast_link(inode, &volume.format) => {
            let len = usize::try_from(inode.size).unwrap_or(usize::MAX);
            inode.i_block.get(..len).is_none_or(|target| target.is_empty() || target.contains(&0))
        }
        Some(FileKind::Symlink) => inode.sectors == acl || inode.size < I_BLOCK_SIZE as u64,
        Some(_) => inode.sectors != acl || inode.size != 0 || inode.has_extents(),
    })
}

/// Judges an inode with what names say about it.
pub(super) fn doubtful(
    volume: &mut Volume,
    table: &mut Table,
    ino: u32,
    evidence: &Evidence,
) -> Result<()> {
    let (Some(slot), Some(nr)) = (volume.slot(ino)?, Ino::new(ino)) else { return Ok(()) };
    let right = checksum_is_right(&slot, nr, &volume.checksums);
    let links = half(&slot, 0x1A);
    let kind = FileKind::from_mode(half(&slot, 0));
    if links == 0 && ino != Ino::ROOT.get() {
        // A freed inode has a deletion time. Without one, but with a type and a name, it was lost.
        let deleted = word(&slot, 0x14) > volume.geometry.inodes_count();
        let named = evidence.names > 0 && !evidence.disagree;
        let fits = kind.is_some_and(|kind| evidence.kind == 0 || code(kind) == evidence.kind);
        if deleted || !named || !fits || word(&slot, 0x20) == 0 && word(&slot, 0x04) == 0 {
            return free(volume, ino, &slot);
        }
        volume.report.add_file(Class::InodeRevived, ino);
    }
    let nameless = kind.is_none() && evidence.names == 0 && ino != Ino::ROOT.get();
    if nameless && !has_credible_map(volume, table, ino)? {
        volume.report.add_file(Class::InodeLost, ino);
        return free(volume, ino, &slot);
    }
    if !right {
        volume.report.add_file(Class::InodeChecksum, ino);
    }
    used(volume, table, ino, slot, !right, evidence)
}

fn code(kind: FileKind) -> u8 {
    extant_ondisk::dirent::EntryKind::from_mode(kind.mode_bits()).code()
}

fn has_credible_map(volume: &Volume, table: &mut Table, ino: u32) -> Result<bool> {
    let Some(inode) = volume.inode(ino)? else { return Ok(false) };
    let map = map::read(volume, ino, &inode, &mut table.budget, false)?;
    Ok(!map.damaged && !map.runs.is_empty())
}

/// Whether a slot holds no inode, and held none: e2fsck finds fault with such free slots, too.
fn is_garbage(slot: &[u8]) -> bool {
    let mode = half(slot, 0);
    let has_extents = word(slot, 0x20) & InodeFlags::EXTENTS.bits() != 0;
    mode != 0 && FileKind::from_mode(mode).is_none()
        || has_extents && half(slot, 0x28) != extant_ondisk::extent::EXTENT_MAGIC
}

/// Marks a slot as free; what else is in it stays, for an undelete. A slot of the volume's own
/// inodes is cleared.
fn free(volume: &mut Volume, ino: u32, slot: &[u8]) -> Result<()> {
    if volume.role(ino) != Role::Ordinary || is_garbage(slot) {
        volume.report.add(Class::InodeField);
        return volume.put_slot(ino, &vec![0; slot.len()]);
    }
    let mut bytes = slot.to_vec();
    bytes[0x1A..0x1C].fill(0);
    // A small time would be the number of the next orphan.
    let time = word(&bytes, 0x14);
    if time <= volume.geometry.inodes_count() && (half(&bytes, 0) != 0 || time != 0) {
        let now = volume.now.max(volume.geometry.inodes_count());
        bytes[0x14..0x18].copy_from_slice(&now.to_le_bytes());
    }
    if let Some(nr) = Ino::new(ino) {
        set_checksum(&mut bytes, nr, &volume.checksums);
    }
    if bytes != slot {
        volume.report.add(Class::InodeField);
    }
    volume.put_slot(ino, &bytes)
}

/// Frees an inode in use.
pub(crate) fn remove(volume: &mut Volume, table: &mut Table, ino: u32) -> Result<()> {
    table.nodes.remove(ino);
    table.maps.remove(&ino);
    table.claimed = None;
    table.gave_up = true;
    for users in table.blocks.values_mut() {
        users.retain(|user| *user != ino);
    }
    match volume.slot(ino)? {
        Some(slot) => free(volume, ino, &slot),
        None => Ok(()),
    }
}

/// Inodes of the volume itself.
fn internal(
    volume: &mut Volume,
    table: &mut Table,
    ino: u32,
    role: Role,
    slot: &[u8],
    right: bool,
) -> Result<()> {
    if is_zero_slot(slot) {
        if role == Role::Own || role == Role::Resize {
            table.broken_own.push(ino);
        }
        return Ok(());
    }
    let Some(nr) = Ino::new(ino) else { return Ok(()) };
    let parsed = Inode::parse_unverified(slot, nr, &volume.format).ok();
    let is_file = parsed.as_ref().is_some_and(|inode| inode.is_file() && inode.links > 0);
    let is_idle = half(slot, 0) == 0 && half(slot, 0x1A) == 0 && slot[0x1C..0x64] == [0; 0x48];
    let clear = match role {
        Role::Own | Role::Resize if !is_file => {
            table.broken_own.push(ino);
            true
        }
        Role::Unused => {
            let counts = word(slot, 0x1C) != 0 || half(slot, 0x74) != 0;
            let mapped = half(slot, 0x1A) != 0 || counts || word(slot, 0x28) != 0;
            match ino {
                3 | 4 | 8 => mapped || parsed.is_none(),
                7 => mapped || half(slot, 0) != 0,
                _ => half(slot, 0) != 0 || mapped,
            }
        }
        Role::BootLoader => parsed.is_none() || !(is_file || right && is_idle),
        Role::BadBlocks => parsed.is_none(),
        _ => false,
    };
    if clear {
        volume.report.add(Class::OwnFiles);
        return volume.put_slot(ino, &vec![0; slot.len()]);
    }
    match role {
        Role::Resize => {
            if !right {
                table.broken_own.push(ino);
            }
            Ok(())
        }
        Role::Unused | Role::BootLoader if right && half(slot, 0) == 0 => Ok(()),
        _ => used(volume, table, ino, slot.to_vec(), !right, &Evidence::default()),
    }
}

/// An inode in use: everything about it that breaks a rule is changed.
fn used(
    volume: &mut Volume,
    table: &mut Table,
    ino: u32,
    mut slot: Vec<u8>,
    suspect: bool,
    evidence: &Evidence,
) -> Result<()> {
    let Some(nr) = Ino::new(ino) else { return Ok(()) };
    let role = volume.role(ino);
    let before = slot.clone();
    raw_fields(volume, &mut slot, role);
    extra_size(volume, &mut slot, nr);
    let Ok(mut inode) = Inode::parse_unverified(&slot, nr, &volume.format) else { return Ok(()) };
    let parsed = inode.clone();
    if role == Role::BadBlocks {
        (inode.mode, inode.uid, inode.gid, inode.links) = (0, 0, 0, 0);
        inode.file_acl = None;
        inode.flags.remove(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
    } else if !settle_kind(volume, table, ino, &mut inode, suspect, evidence)? {
        volume.report.add_file(Class::InodeLost, ino);
        if role != Role::Ordinary {
            table.broken_own.push(ino);
        }
        return free(volume, ino, &before);
    }
    inode.links = match inode.links {
        0 if role == Role::Ordinary => 1,
        links => links,
    };
    inode.dtime = 0;
    settle_flags(volume, &mut inode, role);
    let mut subject = Subject { ino, role, suspect, slot };
    let charged = subject.attributes(volume, table, &mut inode)?;
    let own = match has_map(&inode, &volume.format) {
        true => subject.mapped(volume, table, &mut inode)?,
        false if inode.has_inline_data() => subject.inline(volume, &mut inode),
        false => subject.unmapped(volume, &mut inode),
    };
    let Some(own) = own else {
        volume.report.add_file(Class::InodeLost, ino);
        if let Some(block) = inode.file_acl.and_then(|block| table.blocks.get_mut(&block.0)) {
            block.retain(|user| *user != ino);
        }
        return free(volume, ino, &before);
    };
    let acl = if inode.file_acl.is_some() { volume.cluster_sectors() } else { 0 };
    let all = own + acl + charged;
    // Values of the old style are not charged to their owners.
    if inode.sectors != all && (charged == 0 || inode.sectors != own + acl) {
        inode.sectors = all;
    }
    let slot = &mut subject.slot;
    if inode != parsed {
        inode.write(slot, nr, &volume.format)?;
    }
    set_checksum(slot, nr, &volume.checksums);
    if *slot != before && !suspect {
        volume.report.add_file(Class::InodeField, ino);
    }
    let has_changed = suspect || *slot != before;
    if inode.is_symlink() && is_misread(volume, &inode, charged > 0 && acl == 0, has_changed) {
        table.links_to_move.push(ino);
    }
    volume.put_slot(ino, slot)?;
    table.nodes.insert(ino, node_of(&inode, role, suspect));
    Ok(())
}

/// Whether e2fsprogs misreads a symlink: it takes a short target for a map if blocks of attributes
/// are charged to it, and does not count an inline target in the quota. A sound symlink stays.
fn is_misread(volume: &Volume, inode: &Inode, is_charged: bool, has_changed: bool) -> bool {
    match inode.has_inline_data() {
        true => has_changed && volume.has_ro_compat(RoCompat::QUOTA),
        false => is_charged && !has_map(inode, &volume.format),
    }
}

/// Fields that the decoded inode does not show.
fn raw_fields(volume: &Volume, slot: &mut [u8], role: Role) {
    let is_dir = FileKind::from_mode(half(slot, 0)) == Some(FileKind::Directory);
    if !volume.format.has_huge_file() {
        slot[0x74..0x76].fill(0);
    }
    if !volume.has_incompat(Incompat::IS_64BIT) && volume.sb().creator_os == 0 {
        slot[0x76..0x78].fill(0);
    }
    if role == Role::Ordinary {
        slot[0x70..0x74].fill(0);
    }
    let is_link = FileKind::from_mode(half(slot, 0)) == Some(FileKind::Symlink);
    if (is_dir && !volume.has_incompat(Incompat::LARGEDIR)) || is_link {
        slot[0x6C..0x70].fill(0);
    }
    let extra = usize::from(half(slot, 0x80));
    let is_value = word(slot, 0x20) & InodeFlags::EA_INODE.bits() != 0;
    for (base, more) in [(0x0C, 0x84), (0x10, 0x88), (0x08, 0x8C), (0x90, 0x94)] {
        if slot.len() > 128 && 128 + extra >= more + 4 && more + 4 <= slot.len() && !is_value {
            // A time before 1970 with the epoch bits of times after 2310.
            if word(slot, base) >> 31 != 0 && word(slot, more) & 3 == 3 {
                slot[more] &= !3;
            }
        }
    }
}

/// Makes `i_extra_isize` legal: the length after which attributes begin, or the usual one.
fn extra_size(volume: &Volume, slot: &mut [u8], nr: Ino) {
    let extra = half(slot, 0x80);
    let legal =
        Inode::parse_unverified(slot, nr, &volume.format).is_ok() && (extra == 0 || extra >= 4);
    if slot.len() <= 128 || legal {
        return;
    }
    let magic = extant_ondisk::xattr::MAGIC;
    let found = (4..u16::try_from(slot.len() - 128).unwrap_or(4))
        .step_by(4)
        .find(|extra| word(slot, 128 + usize::from(*extra)) == magic);
    let extra = found.unwrap_or(volume.format.want_extra_isize().max(EXTRA_ISIZE.min(28)));
    slot[0x80..0x82].copy_from_slice(&extra.to_le_bytes());
}

/// Finds the inode's type. Returns false if it has none.
fn settle_kind(
    volume: &Volume,
    table: &mut Table,
    ino: u32,
    inode: &mut Inode,
    suspect: bool,
    evidence: &Evidence,
) -> Result<bool> {
    if ino == Ino::ROOT.get() && inode.kind() != Some(FileKind::Directory) {
        let looks = super::census::looks_like_directory(volume, table, ino)?;
        inode.mode = inode.mode & 0o777 | FileKind::Directory.mode_bits();
        return Ok(looks);
    }
    let named = (1..=7).find(|code| *code == evidence.kind).filter(|_| {
        evidence.names > 0 && !evidence.disagree && volume.has_incompat(Incompat::FILETYPE)
    });
    let stored = inode.kind();
    let named = named.and_then(kind_of);
    let chosen = match (stored, named) {
        (Some(stored), Some(named)) if stored == named => return Ok(true),
        (Some(stored), None) => {
            let fits = !does_not_fit(volume, table, ino, inode)?;
            if evidence.looks_like_directory && stored != FileKind::Regular {
                Some(FileKind::Directory)
            } else if fits || !suspect && stored != FileKind::Directory {
                return Ok(true);
            } else {
                Some(stored)
            }
        }
        (Some(stored), Some(named)) => {
            // The entry and the inode disagree. The content decides.
            let mut other = inode.clone();
            other.mode = inode.mode & 0o7777 | named.mode_bits();
            let stored_fits = !does_not_fit(volume, table, ino, inode)?;
            let named_fits = !does_not_fit(volume, table, ino, &other)?;
            match (stored_fits, named_fits) {
                (true, false) => return Ok(true),
                (true, true) if !suspect => return Ok(true),
                _ if named == FileKind::Directory && !evidence.looks_like_directory => Some(stored),
                _ => Some(named),
            }
        }
        (None, Some(named)) => Some(named),
        (None, None) if evidence.looks_like_directory => Some(FileKind::Directory),
        (None, None) => {
            let map = map::read(volume, ino, inode, &mut table.budget, false)?;
            (!map.runs.is_empty() && !map.damaged).then_some(FileKind::Regular)
        }
    };
    let Some(kind) = chosen else { return Ok(false) };
    inode.mode = inode.mode & 0o7777 | kind.mode_bits();
    Ok(true)
}

fn kind_of(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

fn settle_flags(volume: &Volume, inode: &mut Inode, role: Role) {
    let no = |feature| !volume.has_incompat(feature);
    let kind = inode.kind();
    let is_dir = kind == Some(FileKind::Directory);
    let is_file = kind == Some(FileKind::Regular);
    let special = !is_dir && !is_file && kind != Some(FileKind::Symlink);
    let mut illegal = InodeFlags::empty();
    if no(Incompat::INLINE_DATA) {
        illegal |= InodeFlags::INLINE_DATA;
    }
    if role != Role::Ordinary {
        illegal |= InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
    }
    if no(Incompat::EA_INODE) || !is_file {
        illegal |= InodeFlags::EA_INODE;
    }
    if no(Incompat::CASEFOLD) || !is_dir {
        illegal |= InodeFlags::CASEFOLD;
    }
    if !volume.has_compat(Compat::IMAGIC_INODES) {
        illegal |= InodeFlags::IMAGIC;
    }
    if !is_dir || inode.has_inline_data() || !volume.has_compat(Compat::DIR_INDEX) {
        illegal |= InodeFlags::INDEX;
    }
    if !is_dir && !is_file {
        illegal |= InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    }
    if special && role == Role::Ordinary {
        illegal |= InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    }
    if kind == Some(FileKind::Symlink)
        && (is_text(inode) || inode.is_fast_symlink(&volume.format))
        && !inode.has_inline_data()
    {
        illegal |= InodeFlags::EXTENTS;
    }
    inode.flags.remove(illegal);
    if special && role == Role::Ordinary {
        inode.size = 0;
    }
}

/// Which flags of an inode go that has both those of inline data and of extents.
fn both_flags(volume: &Volume, inode: &Inode, has_value: bool) -> InodeFlags {
    if inode.i_block[..2] == [0x0A, 0xF3] {
        return InodeFlags::INLINE_DATA;
    }
    let mut pointers = extant_ondisk::block_map::pointers(&inode.i_block);
    let legal = |pointer: u32| pointer == 0 || volume.is_usable(u64::from(pointer));
    match !has_value && inode.i_block != [0; I_BLOCK_SIZE] && pointers.all(legal) {
        true => InodeFlags::INLINE_DATA | InodeFlags::EXTENTS,
        false => InodeFlags::EXTENTS,
    }
}

/// Where a symlink's target is.
enum Target {
    InInode,
    InBlock,
    Nowhere,
}

/// An inode that is being judged.
struct Subject {
    ino: u32,
    role: Role,
    suspect: bool,
    slot: Vec<u8>,
}

impl Subject {
    /// Judges the attributes. Returns the sectors of value inodes that are charged to the inode.
    fn attributes(
        &mut self,
        volume: &mut Volume,
        table: &mut Table,
        inode: &mut Inode,
    ) -> Result<u64> {
        let mut area = attributes::in_inode(volume, inode, &self.slot, self.suspect);
        if inode.has_inline_data() && inode.has_extents() {
            inode.flags.remove(both_flags(volume, inode, area.inline_value().is_some()));
        }
        if inode.has_inline_data() && area.inline_value().is_none() {
            area.sound = false;
            if inode.i_block[..2] == [0x0A, 0xF3] {
                inode.flags.remove(InodeFlags::INLINE_DATA);
                inode.flags.insert(InodeFlags::EXTENTS);
            } else {
                area.attributes.insert(0, attributes::inline_attribute(Vec::new()));
            }
        }
        if !area.sound {
            let range = inode.xattr_area(&volume.format);
            let lost = !area.put_in_inode(&mut self.slot[range]);
            area.lossy |= lost;
            attributes::report(volume, self.ino, &area);
            if inode.has_inline_data() && area.inline_value().is_none() {
                inode.flags.remove(InodeFlags::INLINE_DATA);
                inode.i_block.fill(0);
                inode.size = 0;
            }
        }
        let (mut charged, _) = area.charge(volume);
        let mut has_context = area.has_context();
        if let Some(block) = inode.file_acl {
            if !volume.has_compat(Compat::EXT_ATTR) {
                volume.change_superblock(|sb| sb.features.compat.insert(Compat::EXT_ATTR))?;
            }
            match table.area(volume, block.0)?.map(|area| (area.charge(volume), area.has_context()))
            {
                Some(((sectors, _), context)) => {
                    charged += sectors;
                    has_context |= context;
                    table.blocks.entry(block.0).or_default().push(self.ino);
                }
                None => {
                    inode.file_acl = None;
                    volume.report.add_file(Class::AttributesLost, self.ino);
                }
            }
        }
        if inode.flags.contains(InodeFlags::ENCRYPT) && !has_context && self.role == Role::Ordinary
        {
            inode.flags.remove(InodeFlags::ENCRYPT);
        }
        Ok(charged)
    }

    /// Judges the map and the size that follows from it. Returns the sectors that it takes; `None`
    /// if the inode has no use without its map.
    fn mapped(
        &mut self,
        volume: &mut Volume,
        table: &mut Table,
        inode: &mut Inode,
    ) -> Result<Option<u64>> {
        let mut map = map::read(volume, self.ino, inode, &mut table.budget, false)?;
        let lost = std::mem::take(&mut map.lost);
        if !lost.is_empty() {
            volume.report.add_file(Class::MapLost, self.ino);
            let log = volume.geometry.block_size().log2();
            for range in lost {
                let end = (u64::from(range.end) << log).min(inode.size);
                let start = u64::from(range.start) << log;
                if start < end && self.role == Role::Ordinary {
                    volume.report.add_range(self.ino, start..end);
                }
            }
        }
        let mut rewrite = map.damaged || map.wrong_sums;
        if table.truncate.contains(&self.ino) {
            let size = volume.geometry.block_size();
            let end = u32::try_from(size.blocks_for(inode.size)).unwrap_or(u32::MAX);
            if map.end() > end {
                map.unmap(end..u32::MAX);
                rewrite = true;
            }
        }
        match inode.kind() {
            Some(FileKind::Directory) => rewrite |= self.directory(volume, inode, &mut map),
            Some(FileKind::Symlink) => match self.symlink(volume, inode, &mut map)? {
                Target::Nowhere => return Ok(None),
                Target::InInode => return Ok(Some(0)),
                Target::InBlock => rewrite |= map.damaged,
            },
            _ if self.role != Role::BadBlocks => self.file_size(volume, inode, &map),
            _ => {}
        }
        table.claim(volume, &map.runs, &map.nodes);
        let log = volume.geometry.log_cluster_ratio();
        let clusters = map.clusters(log) + map.nodes.len() as u64;
        if rewrite {
            volume.report.add_file(Class::MapRebuilt, self.ino);
            map.damaged = true;
            table.maps.insert(self.ino, map);
        }
        Ok(Some(clusters * volume.cluster_sectors()))
    }

    /// Makes a directory's map one without holes and unwritten parts. Returns whether it changed.
    fn directory(&self, volume: &Volume, inode: &mut Inode, map: &mut Mapping) -> bool {
        let mut changed = false;
        let mut next = 0;
        let most = 1u64 << (31 - volume.geometry.block_size().log2());
        if !volume.has_incompat(Incompat::LARGEDIR) && u64::from(map.end()) > most {
            map.unmap(u32::try_from(most).unwrap_or(u32::MAX)..u32::MAX);
            changed = true;
        }
        for run in &mut map.runs {
            changed |= run.logical != next || !run.written;
            run.logical = next;
            run.written = true;
            next = run.end();
        }
        // Without its first blocks, an index names others than before.
        if changed || map.damaged {
            inode.flags.remove(InodeFlags::INDEX);
        }
        inode.size = u64::from(next) << volume.geometry.block_size().log2();
        changed
    }

    /// Judges a symlink whose target is in a block. A target that fits into the inode moves there,
    /// because e2fsck takes every symlink of such a size for one whose target is in the inode.
    fn symlink(&self, volume: &mut Volume, inode: &mut Inode, map: &mut Mapping) -> Result<Target> {
        let Some(block) = map.locate(0) else { return Ok(Target::Nowhere) };
        // A pointer to a block of pointers makes e2fsck clear the symlink.
        let deep = !map.nodes.is_empty();
        if deep || map.end() > 1 || map.runs.iter().any(|run| !run.written) {
            map.unmap(1..u32::MAX);
            map.runs.iter_mut().for_each(|run| run.written = true);
            map.damaged = true;
        }
        let bytes = volume.disk.read(block)?;
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            let fits = usize::from(half(&bytes, 0)) + 2 <= bytes.len()
                && (I_BLOCK_SIZE as u64..bytes.len() as u64).contains(&inode.size);
            return Ok(if fits { Target::InBlock } else { Target::Nowhere });
        }
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        self.report_cut(volume, &bytes, len, inode.size);
        inode.size = len as u64;
        if (1..I_BLOCK_SIZE).contains(&len) {
            inode.i_block.fill(0);
            inode.i_block[..len].copy_from_slice(&bytes[..len]);
            inode.flags.remove(InodeFlags::EXTENTS);
            return Ok(Target::InInode);
        }
        Ok(if (1..bytes.len()).contains(&len) { Target::InBlock } else { Target::Nowhere })
    }

    /// Raises a file's size to its last written block, and lowers one that no map can have.
    fn file_size(&self, volume: &Volume, inode: &mut Inode, map: &Mapping) {
        let log = volume.geometry.block_size().log2();
        let written = map.written_end();
        let start = u64::from(written.saturating_sub(1)) << log;
        // e2fsck takes the size for the end of the last leaf, if there are leaves.
        let has_leaves = map.extents && !map.nodes.is_empty();
        let short = inode.size < start || (has_leaves && inode.size == start && start > 0);
        let below = short && !inode.flags.contains(InodeFlags::VERITY);
        if below || inode.size > inode.max_size(&volume.format) {
            inode.size = u64::from(written) << log;
        }
    }

    /// Judges content that the inode holds itself. Returns its sectors, which are none; `None` for
    /// a symlink without a target.
    fn inline(&mut self, volume: &mut Volume, inode: &mut Inode) -> Option<u64> {
        let mut area = attributes::in_inode(volume, inode, &self.slot, false);
        let capacity = (I_BLOCK_SIZE + area.inline_value().map_or(0, <[u8]>::len)) as u64;
        match inode.kind() {
            Some(FileKind::Directory) => inode.size = capacity,
            Some(FileKind::Symlink) => {
                let mut target = inode.i_block.to_vec();
                target.extend_from_slice(area.inline_value().unwrap_or_default());
                let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
                let nul = target.iter().position(|byte| *byte == 0).filter(|_| !encrypted);
                let most = nul.unwrap_or(target.len());
                let len = usize::try_from(inode.size).map_or(most, |size| size.min(most));
                if len == 0 {
                    return None;
                }
                self.report_cut(volume, &target, len, inode.size);
                inode.size = len as u64;
                // e2fsck wants a target that fills the inode and the attribute, and a shorter one
                // without the flag.
                if len < target.len() {
                    target.truncate(len);
                    area.attributes.retain(|one| !one.is_inline());
                    match target.len() < I_BLOCK_SIZE {
                        true => inode.flags.remove(InodeFlags::INLINE_DATA),
                        false => {
                            let rest = target.split_off(I_BLOCK_SIZE);
                            area.attributes.insert(0, attributes::inline_attribute(rest));
                        }
                    }
                    inode.i_block.fill(0);
                    inode.i_block[..target.len()].copy_from_slice(&target);
                    let range = inode.xattr_area(&volume.format);
                    area.put_in_inode(&mut self.slot[range]);
                }
            }
            // Without a checksum, a size that the inode does not hold may be right: mke2fs stores a
            // file that is one hole inline.
            _ if inode.size > capacity
                && (self.suspect || inode.size > inode.max_size(&volume.format)) =>
            {
                inode.size = capacity;
            }
            _ => {}
        }
        Some(0)
    }

    /// Judges an inode without blocks: a device, a pipe, a short symlink. Returns its sectors;
    /// `None` for a symlink without a target.
    fn unmapped(&self, volume: &mut Volume, inode: &mut Inode) -> Option<u64> {
        if inode.is_symlink() && !inode.flags.contains(InodeFlags::ENCRYPT) {
            let len = inode.i_block.iter().position(|byte| *byte == 0).unwrap_or(0);
            if len == 0 {
                return None;
            }
            self.report_cut(volume, &inode.i_block, len, inode.size);
            inode.size = len as u64;
        } else if inode.is_symlink() {
            inode.size = inode.size.min(I_BLOCK_SIZE as u64);
        }
        Some(0)
    }

    /// Reports a symlink of `size` bytes whose target ends at byte `len` of the bytes that are for
    /// it. A size that has no room there says nothing: then the bytes after the end do.
    fn report_cut(&self, volume: &mut Volume, bytes: &[u8], len: usize, size: u64) {
        let is_cut = match usize::try_from(size) {
            Ok(size) if size < bytes.len() => len < size,
            _ => bytes[len..].iter().any(|byte| *byte != 0),
        };
        if is_cut && len > 0 {
            volume.report.add_file(Class::TargetCut, self.ino);
        }
    }
}

/// Recomputes the sectors of an inode whose map was written.
pub(crate) fn sectors(volume: &Volume, table: &mut Table, ino: u32, inode: &Inode) -> Result<u64> {
    let mut sectors = 0;
    if has_map(inode, &volume.format) {
        let map = table.map_of(volume, ino)?;
        let clusters = map.clusters(volume.geometry.log_cluster_ratio()) + map.nodes.len() as u64;
        sectors += clusters * volume.cluster_sectors();
    }
    let slot = volume.slot(ino)?.unwrap_or_default();
    sectors += attributes::in_inode(volume, inode, &slot, false).charge(volume).0;
    if let Some(block) = inode.file_acl {
        sectors += volume.cluster_sectors();
        sectors += table.area(volume, block.0)?.map_or(0, |area| area.charge(volume).0);
    }
    Ok(sectors)
}
