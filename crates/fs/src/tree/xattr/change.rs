//! Setting and removing attributes. Each attribute is stored where Linux would store it.
//!
//! ```text
//!   value larger than a block could hold, ea_inode ──► value inode, its entry as below
//!   inode tail has space ──► there
//!   block has space      ──► there        (with ea_inode an eighth of a block is kept free)
//!   ea_inode             ──► value inode, its entry in the tail or the block
//!   else                 ──► NoSpace
//! ```
//!
//! For a symlink whose target is in the inode, entries of value inodes go into a block, where Linux
//! may leave them in the tail. Blocks are charged to such a link, and only an attribute block tells
//! e2fsck that the link has no other blocks.
//!
//! Access control lists arrive in the format of the system calls and are stored in ext4's. A list
//! that says no more than the mode is stored in the mode alone. Source: ext4 documentation,
//! "Extended Attributes".

use super::list::{Attribute, Stored};
use crate::inodes::inline::INLINE_NAME;
use crate::state::inode::Body;
use crate::tree::xattr::by_name::XattrMode;
use crate::tree::xattr::{XattrStore, Xattrs, XattrsMut};
use extant_base::narrow::len_u32;
use extant_base::{Error, Ino, Result};
use extant_journal::Handle;
use extant_ondisk::acl::Acl;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::FileKind;
use extant_ondisk::xattr::{
    BLOCK_HEADER_LEN, NameIndex, NewXattr, TERMINATOR_LEN, block_len, in_inode_len,
};

/// The largest value that a system call can pass, in bytes.
const CALL_MAX: usize = 65536;
/// An access control list without entries, in the format of the system calls: only the version.
const EMPTY_ACL: [u8; 4] = [2, 0, 0, 0];

/// One attribute for [`XattrsMut::set_all`]: prefix, name without it, value.
pub(crate) type NewAttribute<'a> = (NameIndex, &'a [u8], &'a [u8]);

/// The attributes of an inode, from both places, while they are changed.
struct Homes {
    tail: Vec<Attribute>,
    block: Vec<Attribute>,
    block_changed: bool,
    /// Value inodes that lost their entry in the tail.
    gone: Vec<Ino>,
    /// Value inodes that got a reference for a new entry.
    made: Vec<Ino>,
}

impl XattrsMut<'_> {
    /// Sets the attribute, or removes it if `value` is `None`.
    ///
    /// The caller stores the inode and sets its ctime. Errors: `Exists` or `NoAttribute` as `mode`
    /// requires (and `NoAttribute` if there is nothing to remove); `NoSpace` if the attribute does
    /// not fit; `Invalid` for a bad name or access control list; `NotSupported` for a list on a
    /// file that cannot have one, `Denied` for a default list on a file that is not a directory;
    /// `Corrupt`, `Device`. After an error the body is unchanged. Locks: the caller holds the
    /// inode's; takes `Shared`, `Group`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn set(
        &mut self,
        handle: &Handle<'_>,
        index: NameIndex,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.change_xattrs(handle, |homes, body| {
            let there = homes.has(index, name);
            match (mode, there) {
                (XattrMode::Create, true) => return Err(Error::Exists),
                (XattrMode::Replace, false) => return Err(Error::NoAttribute),
                _ => {}
            }
            match self.volume.xattrs_mut(body).as_stored(index, name, value)? {
                Some(value) => {
                    self.volume.xattrs(body).put_attribute(handle, homes, (index, name, &value))
                }
                // A list that was stored in the mode alone is no attribute, so removing it is not
                // an error.
                None if !there && value.is_none() => Err(Error::NoAttribute),
                None => {
                    homes.remove(index, name);
                    Ok(())
                }
            }
        })
    }

    /// Sets many attributes at once, each as [`XattrsMut::set`] would with `XattrMode::Any`. For
    /// new inodes.
    pub(crate) fn set_all(
        &mut self,
        handle: &Handle<'_>,
        attributes: &[NewAttribute<'_>],
    ) -> Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        self.change_xattrs(handle, |homes, body| {
            for (index, name, value) in attributes {
                match self.volume.xattrs_mut(body).as_stored(*index, name, Some(value))? {
                    Some(value) => {
                        self.volume.xattrs(body).put_attribute(
                            handle,
                            homes,
                            (*index, name, &value),
                        )?;
                    }
                    None => homes.remove(*index, name),
                }
            }
            Ok(())
        })
    }

    /// Frees everything that the attributes of an inode hold outside the inode.
    pub(crate) fn release_all(&mut self, handle: &Handle<'_>) -> Result<()> {
        let tail = self.as_ref().tail_list()?;
        let block = self.as_ref().block_list()?;
        let charged =
            self.volume.xattr_store().charge(&tail) + self.volume.xattr_store().charge(&block);
        self.body.disk.sectors = self.body.disk.sectors.saturating_sub(charged);
        self.volume.quota_accounting().values(
            handle,
            self.body,
            -(values(&tail) + values(&block)),
        )?;
        self.store_block(handle, &[])?;
        self.store_tail(&[])?;
        for attribute in tail {
            if let Stored::InInode { ino: value, .. } = attribute.value {
                self.volume.xattr_store().value_drop(handle, self.body, value)?;
            }
        }
        Ok(())
    }

    /// Reads the attributes of both places, lets `edit` change them, and stores them again.
    fn change_xattrs(
        &mut self,
        handle: &Handle<'_>,
        edit: impl FnOnce(&mut Homes, &mut Body) -> Result<()>,
    ) -> Result<()> {
        let mut homes = Homes {
            tail: self.as_ref().tail_list()?,
            block: self.as_ref().block_list()?,
            block_changed: false,
            gone: Vec::new(),
            made: Vec::new(),
        };
        let saved = self.body.clone();
        let before = self.volume.xattr_store().charge(&homes.tail)
            + self.volume.xattr_store().charge(&homes.block);
        let values_before = values(&homes.tail) + values(&homes.block);
        let done = edit(&mut homes, self.body)
            .map(|()| {
                if self.body.disk.is_fast_symlink(self.volume.inode_format())
                    && homes.block.is_empty()
                {
                    homes.move_values_to_block();
                }
            })
            .and_then(|()| self.store_tail(&homes.tail))
            .and_then(|()| match homes.block_changed {
                true => self.store_block(handle, &homes.block),
                false => Ok(()),
            });
        let drop_now = match done {
            Ok(()) => {
                let after = self.volume.xattr_store().charge(&homes.tail)
                    + self.volume.xattr_store().charge(&homes.block);
                self.body.disk.sectors = (self.body.disk.sectors + after).saturating_sub(before);
                let values_after = values(&homes.tail) + values(&homes.block);
                self.volume.quota_accounting().values(
                    handle,
                    self.body,
                    values_after - values_before,
                )?;
                homes.gone
            }
            Err(_) => {
                *self.body = saved;
                homes.made
            }
        };
        for value in drop_now {
            self.volume.xattr_store().value_drop(handle, self.body, value)?;
        }
        done
    }
}

impl XattrStore<'_> {
    /// How many sectors the value inodes add to their owner's count: whole clusters for each entry,
    /// however many inodes share the value.
    fn charge(self, list: &[Attribute]) -> u64 {
        let cluster =
            u64::from(self.volume.geometry().cluster_ratio()) << self.volume.block_size().log2();
        let sizes = list.iter().filter_map(|attribute| match attribute.value {
            Stored::InInode { size, .. } => Some(u64::from(size)),
            Stored::Here(_) => None,
        });
        sizes.map(|size| size.next_multiple_of(cluster) >> 9).sum()
    }
}

impl XattrsMut<'_> {
    /// The bytes to store for a caller's value; `None` if nothing is to be stored. An access list
    /// also sets the mode.
    fn as_stored(
        &mut self,
        index: NameIndex,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        if name.len() > 255 || name.contains(&0) {
            return Err(Error::Invalid("an attribute name is too long or holds NUL"));
        }
        if index == NameIndex::SYSTEM && name == INLINE_NAME {
            return Err(Error::Invalid("the attribute of inline data has no value of its own"));
        }
        let Some(value) = value else { return Ok(None) };
        if !matches!(index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT) {
            return Ok(Some(value.to_vec()));
        }
        match self.body.file_kind() {
            FileKind::Symlink => return Err(Error::NotSupported("a symlink has no access list")),
            _ if value == EMPTY_ACL => return Ok(None),
            FileKind::Directory => {}
            _ if index == NameIndex::ACL_DEFAULT => {
                return Err(Error::Denied("only a directory has a default access list"));
            }
            _ => {}
        }
        let acl = Acl::from_call(value).ok_or(Error::Invalid("malformed access control list"))?;
        if index == NameIndex::ACL_ACCESS {
            let (mode, whole) = acl.to_mode();
            self.body.disk.mode = self.body.disk.mode & !0o777 | mode;
            if whole {
                return Ok(None);
            }
        }
        Ok(Some(acl.to_disk()))
    }
}

impl Xattrs<'_> {
    /// Finds the place for one attribute and puts it there.
    fn put_attribute(
        self,
        handle: &Handle<'_>,
        homes: &mut Homes,
        (index, name, value): NewAttribute<'_>,
    ) -> Result<()> {
        if value.len() > CALL_MAX {
            return Err(Error::NoSpace);
        }
        let block_size = self.volume.block_size().bytes();
        let ea_inode = self.volume.has_incompat(Incompat::EA_INODE);
        let most = block_size - BLOCK_HEADER_LEN - TERMINATOR_LEN - 20;
        let attribute = |value| Attribute { index, name: name.to_vec(), value, fresh: true };
        let tail_len = self.body.xattr_tail(self.volume.context()).len();
        let mut block_most = block_size;
        if !ea_inode || value.len().next_multiple_of(4) <= most {
            if ea_inode {
                block_most -= (block_size / 8).min(1024);
            }
            let stored = attribute(Stored::Here(value.to_vec()));
            if homes.place(stored, tail_len, block_most) {
                return Ok(());
            }
            if !ea_inode || value.is_empty() {
                return Err(Error::NoSpace);
            }
        }
        let stored = self.volume.xattr_store().value_make(handle, self.body, value)?;
        if let Stored::InInode { ino, .. } = stored {
            homes.made.push(ino);
        }
        match homes.place(attribute(stored), tail_len, block_size) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }
}

impl Homes {
    fn has(&self, index: NameIndex, name: &[u8]) -> bool {
        self.tail.iter().chain(&self.block).any(|attribute| attribute.is(index, name))
    }

    fn remove(&mut self, index: NameIndex, name: &[u8]) {
        self.remove_from_tail(index, name);
        self.remove_from_block(index, name);
    }

    /// Returns the attribute's former position in the tail.
    fn remove_from_tail(&mut self, index: NameIndex, name: &[u8]) -> Option<usize> {
        let n = self.tail.iter().position(|attribute| attribute.is(index, name))?;
        if let Stored::InInode { ino, .. } = self.tail.remove(n).value {
            self.gone.push(ino);
        }
        Some(n)
    }

    fn remove_from_block(&mut self, index: NameIndex, name: &[u8]) {
        let Some(n) = self.block.iter().position(|attribute| attribute.is(index, name)) else {
            return;
        };
        let old = self.block.remove(n);
        self.block_changed = true;
        // The references of the block on disk belong to that block and are dropped with it.
        if let Stored::InInode { ino, .. } = old.value
            && old.fresh
        {
            self.gone.push(ino);
        }
    }

    /// Moves the entries of value inodes from the tail to the empty block, with their references.
    fn move_values_to_block(&mut self) {
        let in_inode = |attribute: &Attribute| matches!(attribute.value, Stored::InInode { .. });
        let (moved, stay): (Vec<_>, _) = self.tail.drain(..).partition(in_inode);
        self.tail = stay;
        self.block_changed |= !moved.is_empty();
        self.block.extend(moved.into_iter().map(|entry| Attribute { fresh: true, ..entry }));
    }

    /// Puts the attribute into the tail or the block, and replaces the one with the same name.
    /// Returns `false`, without a change, if it fits in neither.
    fn place(&mut self, attribute: Attribute, tail_len: usize, block_most: usize) -> bool {
        let fits_tail = len_with(&self.tail, &attribute, in_inode_len) <= tail_len;
        if !fits_tail && len_with(&self.block, &attribute, block_len) > block_most {
            return false;
        }
        let (index, name) = (attribute.index, attribute.name.clone());
        let place = self.remove_from_tail(index, &name);
        self.remove_from_block(index, &name);
        if fits_tail {
            self.tail.insert(place.unwrap_or(self.tail.len()), attribute);
        } else {
            self.block.push(attribute);
            self.block_changed = true;
        }
        true
    }
}

/// How many attributes have value inodes.
fn values(list: &[Attribute]) -> i64 {
    let in_inode = |attribute: &&Attribute| matches!(attribute.value, Stored::InInode { .. });
    len_u32(list.iter().filter(in_inode).count()).into()
}

/// Bytes of one place as `len` counts them, with `attribute` replacing the one with the same name.
fn len_with(list: &[Attribute], attribute: &Attribute, len: fn(&[NewXattr<'_>]) -> usize) -> usize {
    let others = list.iter().filter(|other| !other.is(attribute.index, &attribute.name));
    len(&others.chain([attribute]).map(Attribute::to_new).collect::<Vec<_>>())
}
