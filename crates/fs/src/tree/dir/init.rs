//! Making an empty directory, and appending a block to one.
//!
//! ```text
//!   inline   i_block: parent, 56 bytes unused │ attribute "system.data": 0 bytes     size 60
//!   block 0  "." ".." ──────────────────────────────────────────────────── │tail     size 1 block
//! ```

use crate::inodes::map::Target;
use crate::tree::dir::DirMut;
use extant_base::{Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, Ineligible, MetaBlock};
use extant_ondisk::dirent::DirBlockMut;
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::Incompat;
use extant_ondisk::htree::BLOCKS_MAX;
use extant_ondisk::inline_dir::{BLOCK_AREA_LEN, InlineDirMut};
use extant_ondisk::inode::InodeFlags;

use crate::context::role::Role;

/// The largest directory without `large_dir`, in bytes.
const SIZE_MAX: u64 = (1 << 31) - 1;

impl DirMut<'_> {
    /// Makes a new directory empty: in the inode if the volume has `inline_data` and the inode has
    /// enough space, otherwise in one block.
    ///
    /// The caller stores the inode. Errors: `NoSpace` (body unchanged), `Device`. Locks: the caller
    /// holds the inode's; takes `Group`.
    pub(crate) fn init(&mut self, handle: &Handle<'_>, parent: Ino) -> Result<()> {
        self.volume.context().require_full_commit(handle, Ineligible::Directory);
        let flags = self.body.disk.flags;
        if !flags.contains(InodeFlags::ENCRYPT) && self.volume.inline_mut(self.body).begin()? {
            let format = self.volume.file(self.body).dir_format();
            let at = Site::of_ino(self.ino());
            InlineDirMut::new(&mut self.body.disk.i_block, &mut [], format, at).init(parent);
            self.body.disk.size = BLOCK_AREA_LEN as u64;
            return Ok(());
        }
        let (_, block) = self.append(handle)?;
        let format = self.volume.file(self.body).dir_format();
        let seed = self.body.seed(self.volume.context()).unwrap_or(0);
        let site = Site::of_ino(self.ino()).block(block.nr());
        let block_mut = block.write(handle)?;
        DirBlockMut::new(&mut block_mut.bytes_mut(), format, seed, site)
            .init_first(self.ino(), parent);
        block.set_verified_as(Role::DirLeaf(self.ino()).kind());
        Ok(())
    }

    /// Appends one zeroed block to a directory and increases its size.
    ///
    /// The caller fills the whole block. Errors: `NoSpace`, also if the directory may not grow
    /// (body unchanged); `Corrupt`; `Device`.
    pub(crate) fn append(&mut self, handle: &Handle<'_>) -> Result<(LogicalBlock, MetaBlock)> {
        let size = self.volume.block_size();
        let at = u32::try_from(self.body.disk.size >> size.log2()).unwrap_or(u32::MAX);
        self.check_dir_blocks(u64::from(at) + 1)?;
        self.volume.context().require_full_commit(handle, Ineligible::DirectoryGrew);
        let mut nr = None;
        self.volume.file_mut(self.body).fill(
            handle,
            at..at + 1,
            ExtentState::Written,
            &mut |run| {
                if let Target::Written(first) = run.target {
                    nr = Some(first);
                }
                Ok(())
            },
        )?;
        let nr = nr.ok_or_else(|| Site::of_ino(self.ino()).corrupt(What::ExtentUnwritten))?;
        let block = self.volume.journal().cache().get_new(nr)?;
        self.body.disk.size = u64::from(at + 1) << size.log2();
        Ok((LogicalBlock(at), block))
    }

    /// `NoSpace` if a directory may not have this many blocks.
    pub(super) fn check_dir_blocks(&self, blocks: u64) -> Result<()> {
        let bytes = blocks.saturating_mul(self.volume.block_size().bytes() as u64);
        let large = self.volume.has_incompat(Incompat::LARGEDIR);
        if blocks > u64::from(BLOCKS_MAX) || (!large && bytes > SIZE_MAX) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }
}
