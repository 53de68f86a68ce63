//! Every directory hangs below the root, every file has a name, and link counts agree.
//!
//! ```text
//!   root ─► made again if it is lost
//!   second names of directories ─► the one that ".." names stays
//!   no way to the root, no name ─► its old name, from blocks or the log; else lost+found/#ino
//!   ".." and link counts        ─► set
//! ```

mod nameless;

use crate::map::Mapping;
use crate::names::{self, Names};
use crate::report::Class;
use crate::scan::{Node, Table};
use crate::usage::Usage;
use crate::volume::{Role, Volume};
use extant_base::{Error, Ino, Result};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{EXTRA_ISIZE, FileKind, Inode, InodeFlags, LINK_MAX};
use extant_ondisk::time::Timestamp;
use hashbrown::{HashMap, HashSet};

const ROOT: u32 = Ino::ROOT.get();
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Makes sure that there is a root directory, before names are read.
pub(crate) fn root(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    if table.nodes.has_dir(ROOT) {
        return Ok(());
    }
    volume.report.note("the root directory is lost: a new one was made");
    volume.report.add_file(Class::InodeLost, ROOT);
    table.maps.remove(&ROOT);
    table.gave_up = true;
    new_directory(volume, table, usage, ROOT, 0o755, ROOT)
}

/// Makes an empty directory in a slot, with one block.
fn new_directory(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    permissions: u16,
    parent: u32,
) -> Result<()> {
    let extents = volume.has_incompat(Incompat::EXTENTS);
    let time = Timestamp::decode(volume.now, None);
    let mut inode = Inode {
        mode: FileKind::Directory.mode_bits() | permissions,
        links: 2,
        atime: time,
        ctime: time,
        mtime: time,
        crtime: Some(time),
        extra_isize: match volume.geometry.inode_size() {
            128 => 0,
            _ => volume.format.want_extra_isize().max(EXTRA_ISIZE),
        },
        ..Inode::default()
    };
    inode.flags.set(InodeFlags::EXTENTS, extents);
    volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
    let mut empty = Mapping { extents, ..Mapping::default() };
    crate::map::write(volume, usage, ino, &mut inode, &mut empty)?;
    volume.put_inode(ino, &inode)?;
    table.nodes.insert(
        ino,
        Node {
            mode: inode.mode,
            links: 2,
            flags: inode.flags,
            hidden: false,
            suspect: false,
            has_content: true,
        },
    );
    names::first_block(volume, table, usage, ino, parent)
}

/// Connects what is not connected, and sets parents and link counts.
pub(crate) fn run(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    names: &mut Names,
) -> Result<()> {
    second_names(volume, table, names)?;
    loops(volume, table, names)?;
    nameless::run(volume, table, usage, names)?;
    let there = names::find(volume, table, ROOT, LOST_AND_FOUND)?;
    let is_dir = there.is_some_and(|ino| table.nodes.has_dir(ino));
    if let Some(ino) = there {
        restore_owner(volume, table, ino)?;
    }
    // As e2fsck does; but nothing is added to a volume that lost nothing.
    if volume.report.may_have_loss() && !is_dir {
        match lost_and_found(volume, table, usage, names) {
            Ok(_) | Err(Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
    }
    parents(volume, table, names)?;
    links(volume, table, names)
}

/// Of several names of a directory, the one stays that its ".." names.
fn second_names(volume: &mut Volume, table: &mut Table, names: &mut Names) -> Result<()> {
    for (dir, name, child) in std::mem::take(&mut names.second) {
        let says = names.dotdots.get(&child).copied().unwrap_or(0);
        let first = names.parents.get(&child).copied().unwrap_or(0);
        let gone = match says == dir && first != dir {
            true => {
                names.parents.insert(child, dir);
                names::name_in(volume, table, first, child)?.map(|name| (first, name))
            }
            false => Some((dir, name)),
        };
        if let Some((dir, name)) = gone {
            volume.report.add_file(Class::NameField, dir);
            names::remove_entry(volume, table, dir, &name, child)?;
        }
    }
    Ok(())
}

/// Opens loops of directories that no name outside leads to.
fn loops(volume: &mut Volume, table: &mut Table, names: &mut Names) -> Result<()> {
    let mut good: HashSet<u32> = HashSet::from([ROOT]);
    let dirs: Vec<u32> = names.parents.keys().copied().collect();
    let mut sorted = dirs;
    sorted.sort_unstable();
    for start in sorted {
        let mut path = Vec::new();
        let mut here = HashSet::new();
        let mut at = start;
        while !good.contains(&at) && here.insert(at) {
            path.push(at);
            match names.parents.get(&at) {
                Some(parent) => at = *parent,
                None => break,
            }
        }
        if !good.contains(&at)
            && path.iter().filter(|one| **one == at).count() == 1
            && names.parents.contains_key(&at)
        {
            // The path came back to `at`.
            if let Some(dir) = names.dir_of(at)
                && let Some(name) = names::name_in(volume, table, dir, at)?
            {
                names::remove_entry(volume, table, dir, &name, at)?;
                volume.report.add_file(Class::NameField, dir);
            }
            names.forget_dir(at);
        }
        good.extend(path);
    }
    Ok(())
}

/// Whether a directory is there and has no such name.
fn is_free_in(volume: &Volume, table: &mut Table, dir: u32, name: &[u8]) -> Result<bool> {
    if !table.nodes.has_dir(dir) {
        return Ok(false);
    }
    Ok(names::find(volume, table, dir, name)?.is_none())
}

/// The directory for files without a name. It is made if it is not there.
fn lost_and_found(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    names: &mut Names,
) -> Result<u32> {
    let there = names::find(volume, table, ROOT, LOST_AND_FOUND)?;
    if let Some(ino) = there {
        let usable = table
            .nodes
            .get(ino)
            .is_some_and(|node| node.is_dir() && !node.flags.contains(InodeFlags::ENCRYPT));
        if usable {
            return Ok(ino);
        }
        // Another file has the name: it gets a similar one.
        names::remove_entry(volume, table, ROOT, LOST_AND_FOUND, ino)?;
        let mut other = b"lost+found~1".to_vec();
        while !is_free_in(volume, table, ROOT, &other)? {
            other.push(b'_');
        }
        if let Err(error) = names::insert(volume, table, usage, ROOT, &other, ino) {
            names::insert(volume, table, usage, ROOT, LOST_AND_FOUND, ino)?;
            return Err(error);
        }
        volume.report.add_file(Class::NameChanged, ino);
    }
    let ino = free_inode(volume, table)?;
    let made = new_directory(volume, table, usage, ino, 0o700, ROOT)
        .and_then(|()| names::insert(volume, table, usage, ROOT, LOST_AND_FOUND, ino));
    if let Err(error) = made {
        crate::claims::release(volume, table, usage, ino)?;
        return Err(error);
    }
    names.add(ROOT, LOST_AND_FOUND, ino, true);
    names.dotdots.insert(ino, ROOT);
    volume.report.note("lost+found was made again");
    Ok(ino)
}

/// Gives lost+found the owner and the mode with which it is made, if its inode was damaged: what it
/// has may be anything.
fn restore_owner(volume: &mut Volume, table: &Table, ino: u32) -> Result<()> {
    let damaged = [Class::InodeField, Class::InodeChecksum, Class::InodeRevived];
    if !table.nodes.has_dir(ino) || !volume.report.has_any(ino, &damaged) {
        return Ok(());
    }
    let Some(mut inode) = volume.inode(ino)? else { return Ok(()) };
    (inode.uid, inode.gid) = (0, 0);
    inode.mode = FileKind::Directory.mode_bits() | 0o700;
    volume.put_inode(ino, &inode)
}

/// A free inode number.
fn free_inode(volume: &mut Volume, table: &mut Table) -> Result<u32> {
    let per_group = volume.geometry.inodes_per_group();
    let first = volume.sb().first_ino;
    for ino in first..=volume.geometry.inodes_count() {
        let group = ((ino - 1) / per_group) as usize;
        if table.nodes.has(ino) || volume.role(ino) != Role::Ordinary {
            continue;
        }
        if volume.groups.get(group).is_some_and(|group| !group.table_lost) {
            let slot = (ino - 1) % per_group;
            table.marks[group] = table.marks[group].max(slot + 1);
            return Ok(ino);
        }
    }
    Err(Error::NoSpace)
}

/// Stores the right parent in "..".
fn parents(volume: &mut Volume, table: &mut Table, names: &mut Names) -> Result<()> {
    let mut all: Vec<(u32, u32)> =
        names.parents.iter().map(|(child, parent)| (*child, *parent)).collect();
    all.push((ROOT, ROOT));
    all.sort_unstable();
    for (child, parent) in all {
        if names.dotdots.get(&child).copied() != Some(parent) {
            volume.report.add_file(Class::NameField, child);
            names::set_parent(volume, table, child, parent)?;
        }
    }
    Ok(())
}

/// Sets link counts to the number of names.
fn links(volume: &mut Volume, table: &Table, names: &Names) -> Result<()> {
    let mut children: HashMap<u32, u32> = HashMap::new();
    for parent in names.parents.values() {
        *children.entry(*parent).or_default() += 1;
    }
    let most = u32::from(LINK_MAX);
    for (ino, node) in table.nodes.iter() {
        if node.hidden || node.is_value() {
            continue;
        }
        let right = match node.is_dir() {
            true => 2 + children.get(&ino).copied().unwrap_or(0),
            false => names.count(ino),
        };
        let many = node.is_dir() && right > most;
        let right = if many { 1 } else { right.min(most) };
        if u32::from(node.links) == right {
            continue;
        }
        if let Some(mut inode) = volume.inode(ino)? {
            inode.links = extant_base::narrow::low_u16(right);
            volume.report.add_file(Class::Links, ino);
            volume.put_inode(ino, &inode)?;
        }
    }
    Ok(())
}
