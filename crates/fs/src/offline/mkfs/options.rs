//! Options of a new volume.

use crate::offline::mkfs::settings::Settings;
use extant_base::{BlockSize, Error, Result};
use extant_ondisk::features::{Compat, Features, Incompat, RoCompat};
use extant_ondisk::quota::QuotaKind;

/// The size of a new volume's journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalSize {
    /// As mke2fs: by the size of the volume; none below 2048 blocks.
    #[default]
    Auto,
    /// This many bytes.
    Bytes(u64),
    /// This many blocks.
    Blocks(u32),
}

/// How many inodes a new volume has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InodeCount {
    /// As mke2fs: one for a number of bytes that depends on the size of the volume.
    #[default]
    Auto,
    /// One for this many bytes.
    BytesPerInode(u64),
    /// At least this many.
    AtLeast(u32),
    /// This many, rounded as `mke2fs -N` does: up to whole blocks of a group's table, then down to
    /// a multiple of 8 per group.
    Near(u32),
}

/// Options of [`crate::offline::mkfs::format()`]: mke2fs's defaults, unless changed.
///
/// ```
/// use extant::mkfs::MkfsOptions;
/// let options = MkfsOptions::new().label("data")?.features("metadata_csum_seed,^resize_inode")?;
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    pub(crate) blocks: Option<u64>,
    pub(crate) block_size: Option<BlockSize>,
    pub(crate) cluster_bytes: Option<u32>,
    pub(crate) inode_size: Option<u16>,
    pub(crate) inodes: InodeCount,
    pub(crate) reserved_percent: f64,
    pub(crate) journal: JournalSize,
    pub(crate) blocks_per_group: Option<u32>,
    pub(crate) flex_groups: u32,
    pub(crate) base: Features,
    pub(crate) label: [u8; 16],
    pub(crate) last_mounted: [u8; 64],
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) hash_seed: Option<[u8; 16]>,
    pub(crate) root_owner: (u32, u32),
    pub(crate) root_mode: u16,
    pub(crate) lost_and_found: bool,
    pub(crate) lost_and_found_owner: Option<(u32, u32)>,
    pub(crate) zeroed: bool,
    pub(crate) stride: u16,
    pub(crate) stripe_width: u32,
    pub(crate) backups: u32,
    pub(crate) max_growth: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) quota_kinds: Option<Vec<QuotaKind>>,
    pub(crate) packed_metadata: bool,
    pub(crate) fast_commit_blocks: Option<u32>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        MkfsOptions::new()
    }
}

impl MkfsOptions {
    /// A volume as `mke2fs -t ext4` makes it.
    pub fn new() -> MkfsOptions {
        MkfsOptions {
            blocks: None,
            block_size: None,
            cluster_bytes: None,
            inode_size: None,
            inodes: InodeCount::Auto,
            reserved_percent: 5.0,
            journal: JournalSize::Auto,
            blocks_per_group: None,
            flex_groups: 16,
            base: default_features(),
            label: [0; 16],
            last_mounted: [0; 64],
            uuid: None,
            hash_seed: None,
            root_owner: (0, 0),
            root_mode: 0o755,
            lost_and_found: true,
            lost_and_found_owner: None,
            zeroed: false,
            stride: 0,
            stripe_width: 0,
            backups: 2,
            max_growth: None,
            settings: Settings::default(),
            quota_kinds: None,
            packed_metadata: false,
            fast_commit_blocks: None,
        }
    }

    /// A volume as `mke2fs -t ext2`, `ext3` or `ext4` makes it.
    ///
    /// # Errors
    /// `Invalid` for any other name.
    pub fn of_type(name: &str) -> Result<MkfsOptions> {
        let mut options = MkfsOptions::new();
        match name {
            "ext4" => {}
            "ext3" | "ext2" => {
                options.base = Features {
                    compat: Compat::EXT_ATTR | Compat::RESIZE_INODE | Compat::DIR_INDEX,
                    incompat: Incompat::FILETYPE,
                    ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
                };
                if name == "ext3" {
                    options.base.compat |= Compat::HAS_JOURNAL;
                }
            }
            _ => return Err(Error::Invalid("the type of a volume is ext2, ext3 or ext4")),
        }
        Ok(options)
    }

    /// Size in blocks. Default: all of the device.
    pub fn blocks(mut self, blocks: u64) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Block size, 1 to 64 KiB. Default: 1 KiB below 512 MiB, else 4 KiB.
    pub fn block_size(mut self, size: BlockSize) -> Self {
        self.block_size = Some(size);
        self
    }

    /// Cluster size in bytes, for `bigalloc`. Default: 16 blocks.
    pub fn cluster_bytes(mut self, bytes: u32) -> Self {
        self.cluster_bytes = Some(bytes);
        self
    }

    /// Bytes of an inode: a power of two from 128 to the block size. Default: 256.
    pub fn inode_size(mut self, bytes: u16) -> Self {
        self.inode_size = Some(bytes);
        self
    }

    /// How many inodes.
    pub fn inodes(mut self, count: InodeCount) -> Self {
        self.inodes = count;
        self
    }

    /// Percentage of blocks that only root may use, 0 to 50. Default: 5.
    pub fn reserved_percent(mut self, percent: f64) -> Self {
        self.reserved_percent = percent;
        self
    }

    /// Size of the journal, if the volume has one.
    pub fn journal(mut self, size: JournalSize) -> Self {
        self.journal = size;
        self
    }

    /// With the feature `fast_commit`: blocks of the journal for fast commits, in addition to its
    /// size. Default: a 64th of the journal, but at least a quarter of it or 256.
    pub fn fast_commit_blocks(mut self, blocks: u32) -> Self {
        self.fast_commit_blocks = Some(blocks);
        self
    }

    /// Blocks in a group: a multiple of 8, up to 8 for each byte of a block. Default: that, but at
    /// most 65528.
    pub fn blocks_per_group(mut self, blocks: u32) -> Self {
        self.blocks_per_group = Some(blocks);
        self
    }

    /// Groups whose bitmaps and tables lie together (`flex_bg`), a power of two. Default: 16.
    pub fn flex_groups(mut self, groups: u32) -> Self {
        self.flex_groups = groups;
        self
    }

    /// Enables features, or disables them with `^`, as mke2fs's `-O` does: names separated by
    /// commas. `none` first disables all. May be called more than once.
    ///
    /// # Errors
    /// `Invalid` for an unknown name.
    pub fn features(mut self, names: &str) -> Result<Self> {
        let mut trial = self.base;
        apply(&mut trial, names)?;
        self.base = trial;
        Ok(self)
    }

    /// The features requested so far. Making the volume may add or drop features that follow from
    /// others or from the size: [`Made`](crate::offline::mkfs::Made) has the result.
    pub fn requested_features(&self) -> Features {
        self.base
    }

    /// Label, at most 16 bytes.
    ///
    /// # Errors
    /// `Invalid` when it is longer.
    pub fn label(mut self, label: &str) -> Result<Self> {
        let Some(field) = self.label.get_mut(..label.len()) else {
            return Err(Error::Invalid("a label has at most 16 bytes"));
        };
        field.copy_from_slice(label.as_bytes());
        Ok(self)
    }

    /// The path recorded as the last mount point, at most 64 bytes.
    ///
    /// # Errors
    /// `Invalid` when it is longer.
    pub fn last_mounted(mut self, path: &str) -> Result<Self> {
        let Some(field) = self.last_mounted.get_mut(..path.len()) else {
            return Err(Error::Invalid("a path of last mount has at most 64 bytes"));
        };
        field.copy_from_slice(path.as_bytes());
        Ok(self)
    }

    /// UUID. Default: random.
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Seed of name hashes in directories. Default: random.
    pub fn hash_seed(mut self, seed: [u8; 16]) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    /// Owner and group of the root directory. Default: 0, 0.
    pub fn root_owner(mut self, uid: u32, gid: u32) -> Self {
        self.root_owner = (uid, gid);
        self
    }

    /// Permissions of the root directory. Default: 0755.
    pub fn root_mode(mut self, mode: u16) -> Self {
        self.root_mode = mode & 0o7777;
        self
    }

    /// Whether to make `/lost+found`. Default: yes.
    pub fn lost_and_found(mut self, make: bool) -> Self {
        self.lost_and_found = make;
        self
    }

    /// Owner and group of `/lost+found`. Default: those of the root directory.
    pub fn lost_and_found_owner(mut self, uid: u32, gid: u32) -> Self {
        self.lost_and_found_owner = Some((uid, gid));
        self
    }

    /// Declares that the device reads as zeros everywhere, as a new file does: nothing is zeroed.
    pub fn zeroed(mut self, zeroed: bool) -> Self {
        self.zeroed = zeroed;
        self
    }

    /// RAID hints in blocks: one disk's chunk and the whole stripe's.
    pub fn stripe(mut self, stride: u16, width: u32) -> Self {
        self.stride = stride;
        self.stripe_width = width;
        self
    }

    /// Backup superblocks with `sparse_super2`: 0 to 2. Default: 2.
    pub fn backups(mut self, count: u32) -> Self {
        self.backups = count.min(2);
        self
    }

    /// The size in blocks to which the volume may grow while in use, with `resize_inode`. Default:
    /// 1024 times its size.
    pub fn max_growth(mut self, blocks: u64) -> Self {
        self.max_growth = Some(blocks);
        self
    }

    /// Settings of the superblock that do not change the layout.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The kinds of quota that the feature `quota` accounts. Default: users and groups, and
    /// projects with the feature `project`. Projects need that feature.
    pub fn quota_kinds(mut self, kinds: &[QuotaKind]) -> Self {
        self.quota_kinds = Some(kinds.to_vec());
        self
    }

    /// Whether the bitmaps and inode tables of all groups lie together at the start of the volume.
    /// Needs the feature `flex_bg`. Default: no.
    pub fn packed_metadata(mut self, packed: bool) -> Self {
        self.packed_metadata = packed;
        self
    }
}

/// The features that `mke2fs -t ext4` of e2fsprogs 1.47 enables.
fn default_features() -> Features {
    Features {
        compat: Compat::HAS_JOURNAL | Compat::EXT_ATTR | Compat::RESIZE_INODE | Compat::DIR_INDEX,
        incompat: Incompat::FILETYPE | Incompat::EXTENTS | Incompat::IS_64BIT | Incompat::FLEX_BG,
        ro_compat: RoCompat::SPARSE_SUPER
            | RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE
            | RoCompat::METADATA_CSUM,
    }
}

/// Applies a request in mke2fs's notation.
fn apply(features: &mut Features, names: &str) -> Result<()> {
    for word in names.split([',', ' ']).filter(|word| !word.is_empty()) {
        if word == "none" {
            *features = Features::default();
            continue;
        }
        let (on, name) = match word.strip_prefix('^') {
            Some(name) => (false, name),
            None => (true, word),
        };
        if let Some(bit) = Compat::by_name(name) {
            features.compat.set(bit, on);
        } else if let Some(bit) = Incompat::by_name(name) {
            features.incompat.set(bit, on);
        } else if let Some(bit) = RoCompat::by_name(name) {
            features.ro_compat.set(bit, on);
        } else {
            return Err(Error::Invalid("no feature has this name"));
        }
        // What one feature implies for another, as in mke2fs.
        if on {
            if features.incompat.contains(Incompat::META_BG) && name == "meta_bg" {
                features.compat.remove(Compat::RESIZE_INODE);
            }
            if name == "metadata_csum" {
                features.ro_compat.remove(RoCompat::GDT_CSUM);
            }
            if matches!(name, "uninit_bg" | "uninit_groups" | "gdt_csum") {
                features.ro_compat.remove(RoCompat::METADATA_CSUM);
            }
        }
    }
    Ok(())
}
