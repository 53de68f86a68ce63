//! Converting a full directory to its next form.
//!
//! ```text
//!   Inline ──full──► Linear, one block ──full──► Indexed: root in block 0, all names in block 1
//!                          │ no dir_index
//!                          └──full──► Linear, more blocks
//! ```
//!
//! There is no conversion back.

use crate::context::role::Role;
use crate::tree::dir::DirMut;
use crate::volume::Volume;
use extant_base::{LogicalBlock, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::dirent::{DirBlock, DirBlockMut, DirFormat, DirPacker, EntryKind};
use extant_ondisk::hash::HashVersion;
use extant_ondisk::htree::{IndexMut, RootInfo};
use extant_ondisk::inline_dir::{BLOCK_AREA_LEN, InlineDirMut};
use extant_ondisk::inode::InodeFlags;

/// The hash version for new indexes of this volume.
pub(super) fn new_hash_version(volume: &Volume) -> HashVersion {
    match HashVersion::from_code(volume.at_open().def_hash_version) {
        // SipHash needs the key of an encrypted directory.
        None | Some(HashVersion::SipHash) => HashVersion::HalfMd4,
        Some(version) => version,
    }
}

impl DirMut<'_> {
    /// Turns a directory of one linear block into an htree with one leaf.
    ///
    /// Errors: `NoSpace`, `Corrupt` (`DirentDot` if "." and ".." are not first). After an error
    /// nothing has changed.
    pub(super) fn linear_to_htree(&mut self, handle: &Handle<'_>) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        let block = dir.mapped_block(LogicalBlock(0))?;
        dir.check_block(LogicalBlock(0), &block)?;
        let (site, seed, format) = (dir.site_of(&block), dir.seed.unwrap_or(0), dir.format);
        let mut root = vec![0; self.volume.block_size().bytes()];
        let mut leaf = vec![0; root.len()];
        let parent = {
            let bytes = block.read();
            let mut entries = DirBlock::new(&bytes, format, site).entries();
            let mut dot = |name: &[u8]| {
                let entry = entries.next().ok_or(site.corrupt(What::DirentDot))??;
                let ino = entry.ino.filter(|_| entry.name == name);
                ino.ok_or(site.offset(entry.offset).corrupt(What::DirentDot))
            };
            dot(b".")?;
            let parent = dot(b"..")?;
            let mut packer = DirPacker::new(DirBlockMut::new(&mut leaf, format, seed, site));
            for entry in entries {
                let entry = entry?;
                if let Some(target) = entry.ino
                    && !packer.push(entry.name, target, entry.kind, entry.stored_hash)
                {
                    return Err(site.corrupt(What::DirentLength));
                }
            }
            packer.finish();
            parent
        };
        let info = RootInfo { hash_version: new_hash_version(self.volume), levels: 0 };
        let (at, added) = self.append(handle)?;
        IndexMut::init_root(&mut root, &format, seed, (self.ino(), parent), info, at);
        super::split::put(&added, handle, &leaf, Role::DirLeaf(self.ino()))?;
        super::split::put(&block, handle, &root, Role::DirRoot(self.ino()))?;
        self.body.disk.flags |= InodeFlags::INDEX;
        self.body.moves.note(LogicalBlock(0), at);
        Ok(())
    }

    /// Moves an inline directory into its first block.
    ///
    /// Errors: `NoSpace`, `Corrupt`. After an error nothing has changed.
    pub(super) fn inline_to_block(&mut self, handle: &Handle<'_>) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        let (format, seed, site) = (dir.format, dir.seed.unwrap_or(0), dir.site());
        let mut first = vec![0; self.volume.block_size().bytes()];
        {
            let inline = dir.inline()?;
            let mut packer = DirPacker::new(DirBlockMut::new(&mut first, format, seed, site));
            packer.push(b".", self.ino(), EntryKind::Directory, None);
            packer.push(b"..", inline.parent()?, EntryKind::Directory, None);
            for entry in inline.entries() {
                let entry = entry?;
                if let Some(target) = entry.ino
                    && !packer.push(entry.name, target, entry.kind, entry.stored_hash)
                {
                    return Err(site.corrupt(What::DirentLength));
                }
            }
            packer.finish();
        }
        let saved = self.body.clone();
        self.volume.inline_mut(self.body).end()?;
        let appended = self.append(handle);
        let (_, block) = match appended {
            Ok(appended) => appended,
            Err(error) => {
                *self.body = saved;
                return Err(error);
            }
        };
        super::split::put(&block, handle, &first, Role::DirLeaf(self.ino()))
    }

    /// Grows the attribute of an inline directory as far as the inode has free space. Returns
    /// `false` if the space does not suffice for another name.
    pub(super) fn grow_inline(&mut self) -> Result<bool> {
        let old = self.volume.file(self.body).inline_value_range()?.len();
        let most = self.volume.file(self.body).inline_value_max()?;
        if most < old + DirFormat::need_plain(1) {
            return Ok(false);
        }
        let saved = self.body.clone();
        self.volume.inline_mut(self.body).resize_value(most)?;
        let format = self.volume.file(self.body).dir_format();
        let range = self.volume.file(self.body).inline_value_range()?;
        let site = Site::of_ino(self.ino());
        let (i_block, value) = (&mut self.body.disk.i_block, &mut self.body.raw[range]);
        if let Err(error) = InlineDirMut::new(i_block, value, format, site).value_grown(old) {
            *self.body = saved;
            return Err(error);
        }
        self.body.disk.size = (BLOCK_AREA_LEN + most) as u64;
        Ok(true)
    }
}
