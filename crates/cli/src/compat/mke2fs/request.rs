//! The volume that a call requests: the options, what the configuration adds, and the size.
//!
//! ```text
//!   bytes ─► usage ─► types ─► configuration ─► block size ─► blocks ─► features ─► MkfsOptions
//!            floppy   ext4,                     by the types
//!            small …  small
//! ```

use super::extended::{Extended, bad};
use super::features::Features;
use super::options::{Options, Wrong, scaled};
use super::profile::Profile;
use crate::compat::console::Console;
use crate::failure::Failure;
use crate::shown::Shown;
use crate::verb::mkfs::uuid;
use extant::mkfs::{self, InodeCount, JournalSize, MkfsOptions, Planned, Settings};
use extant::tune::{ErrorPolicy, Tune};
use extant::{BlockSize, Environment, Error};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// What is known of the device before the volume is planned.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) path: &'a Path,
    /// Bytes of the device or file after the offset; `None` if it does not exist.
    pub(super) bytes: Option<u64>,
    /// Bytes of a sector.
    pub(super) sector: u32,
    /// The size that the call gives.
    pub(super) size: Option<&'a str>,
}

/// A volume to be made.
#[derive(Debug)]
pub(super) struct Request {
    /// The types by which the configuration was read.
    pub(super) types: Vec<String>,
    pub(super) mkfs: MkfsOptions,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) extended: Extended,
    /// A journal was requested, whether the volume has space for one or not.
    pub(super) journal: bool,
    pub(super) discard: bool,
}

impl Request {
    /// The volume on a device of `bytes`. Its journal has the original's number of blocks for fast
    /// commits.
    ///
    /// Errors: `Invalid`.
    pub(super) fn plan(&mut self, bytes: u64) -> Result<Planned, Error> {
        let planned = mkfs::planned(&self.mkfs, bytes)?;
        if planned.fast_commit_blocks == 0 {
            return Ok(planned);
        }
        // By the usual size of the journal, whatever size it has.
        let usual = mkfs::planned(&self.mkfs.clone().journal(JournalSize::Auto), bytes)?;
        let log = usual.journal_blocks - usual.fast_commit_blocks;
        self.mkfs = self.mkfs.clone().fast_commit_blocks((log / 64).max(1));
        mkfs::planned(&self.mkfs, bytes)
    }
}

/// The unit in bytes of a size without a unit.
pub(super) fn unit(options: &Options) -> u64 {
    options.block_bytes.filter(|&size| size > 0).map_or(1024, i64::unsigned_abs)
}

/// Reads the options of one call together.
pub(super) struct Reader<'a> {
    pub(super) options: &'a Options,
    pub(super) profile: &'a Profile,
    pub(super) place: Place<'a>,
    /// The type that the name of the program says.
    pub(super) named_type: Option<&'a str>,
    pub(super) environment: &'a Environment,
}

type Done<T> = Result<Result<T, Wrong>, Failure>;

/// `?` for [`Done`].
macro_rules! take {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(wrong) => return Ok(Err(wrong)),
        }
    };
}

impl Reader<'_> {
    /// The whole request. The outer error is one of printing.
    pub(super) fn read(&self, console: &mut Console) -> Done<Request> {
        let unit = unit(self.options);
        let units = take!(self.units(unit));
        let types = take!(self.types(units.saturating_mul(unit), console)?);
        let block_bytes = take!(self.block_bytes(&types));
        let block_size = u32::try_from(block_bytes).ok().and_then(BlockSize::from_bytes);
        let wrong = || Wrong::Named(format!("invalid block size - {block_bytes}"));
        let block_size = take!(block_size.ok_or_else(wrong));
        if block_bytes > 4096 {
            let text = format!("{block_bytes}-byte blocks too big for system (max 4096)");
            if !self.options.force {
                return Ok(Err(Wrong::Named(text)));
            }
            console.error(format_args!("Warning: {text}, forced to continue\n"));
        }
        let blocks = match self.options.block_bytes {
            Some(1..) => units,
            _ => units / (block_bytes / 1024),
        };
        let mut extended = Extended::default();
        for words in self.profile.of_types(&types, "options") {
            take!(extended.take(words));
        }
        take!(extended.take(self.options.extended.as_deref().unwrap_or("")));
        let features = take!(self.features(&types, &mut extended));
        if !self.options.quiet {
            for line in features.advice() {
                console.print(format_args!("{line}"))?;
            }
        }
        let inode_bytes = take!(self.inode_bytes(&types, &features, block_bytes));
        if inode_bytes == 128 && self.profile.flag(&types, "warn_y2038_dates") != Some(false) {
            console.print(format_args!(
                "128-byte inodes cannot handle dates beyond 2038 and are deprecated\n"
            ))?;
        }
        let mkfs = MkfsOptions::new().block_size(block_size).inode_size(inode_bytes);
        let words = features.words();
        let known = mkfs.blocks(blocks).features(&words);
        let mkfs = take!(known.map_err(|_| Wrong::Named(format!("unknown feature in {words}"))));
        let mkfs = take!(self.layout(mkfs, &types, &features, (block_bytes, blocks)));
        let mkfs = take!(self.inodes(mkfs, &types, (inode_bytes, block_bytes, blocks)));
        let mkfs = take!(self.extended(mkfs, &extended, (block_size, blocks)));
        let mkfs = take!(self.names(mkfs, &extended));
        let settings = take!(self.settings(&types, &extended));
        let discard = self.profile.flag(&types, "discard").unwrap_or(true);
        let discard = self.options.discard.or(extended.discard).unwrap_or(discard);
        let journal = features.has("has_journal");
        let mkfs = mkfs.settings(settings);
        Ok(Ok(Request { types, mkfs, block_bytes, blocks, extended, journal, discard }))
    }

    /// The size in units of `unit` bytes.
    fn units(&self, unit: u64) -> Result<u64, Wrong> {
        let name = Shown::path(self.place.path);
        if let Some(text) = self.place.size {
            let bytes = scaled(text, unit.ilog2());
            let units = bytes.map(|bytes| bytes / unit).filter(|&units| units > 0);
            let wrong = || Wrong::Named(format!("invalid blocks '{text}' on device '{name}'"));
            return units.ok_or_else(wrong);
        }
        match self.place.bytes {
            None => Err(Wrong::Text(format!(
                "The file {name} does not exist and no size was specified.\n"
            ))),
            Some(0) => Err(Wrong::Named(
                "Device size reported to be zero.  Invalid partition specified, or\n\
                 \tpartition table wasn't reread after running fdisk, due to\n\
                 \ta modified partition being busy and in use.  You may need to reboot\n\
                 \tto re-read your partition table.\n"
                    .into(),
            )),
            // Whole pages, as the original.
            Some(bytes) => Ok(bytes / unit.max(4096) * unit.max(4096) / unit),
        }
    }

    /// The types of a volume of `bytes`, by which the configuration is read.
    fn types(&self, bytes: u64, console: &mut Console) -> Done<Vec<String>> {
        let options = self.options;
        let of_type = match (&options.of_type, self.named_type) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => match self.profile.default_value("fs_type").unwrap_or("ext2") {
                "ext2" if options.journal => "ext3".to_owned(),
                name => name.to_owned(),
            },
        };
        if of_type != "ext2" && !self.profile.has_type(&of_type) {
            console.print(format_args!(
                "\nYour mke2fs.conf file does not define the {of_type} filesystem type.\n"
            ))?;
            if ["ext3", "ext4"].contains(&of_type.as_str()) {
                console.print(format_args!(
                    "You probably need to install an updated mke2fs.conf file.\n\n"
                ))?;
            }
            if !options.force {
                return Ok(Err(Wrong::Printed("Aborting...\n")));
            }
        }
        let by_size = match bytes / MIB {
            0..3 => "floppy",
            3..512 => "small",
            512..0x40_0000 => "default",
            0x40_0000..0x100_0000 => "big",
            _ => "huge",
        };
        let mut types = vec![of_type];
        for usage in options.usage.as_deref().unwrap_or(by_size).split(',') {
            if usage.is_empty() {
            } else if self.profile.has_type(usage) {
                types.push(usage.to_owned());
            } else if usage != "default" {
                console.error(format_args!(
                    "\nWarning: the fs_type {usage} is not defined in mke2fs.conf\n\n"
                ));
            }
        }
        Ok(Ok(types))
    }

    fn block_bytes(&self, types: &[String]) -> Result<u64, Wrong> {
        let sector = u64::from(self.place.sector);
        if let Some(size @ 1..) = self.options.block_bytes {
            let size = size.unsigned_abs();
            if size < sector {
                let text = "Invalid argument while setting blocksize; too small for device\n";
                return Err(Wrong::Named(text.into()));
            }
            return Ok(size);
        }
        let usual = match self.profile.number(types, "blocksize") {
            Some(-1) => rustix::param::page_size().min(65_536) as u64,
            Some(size) => u64::try_from(size).unwrap_or(0),
            None => 4096,
        };
        let least = self.options.block_bytes.map_or(0, i64::unsigned_abs);
        Ok(usual.max(sector).max(least))
    }

    fn features(&self, types: &[String], extended: &mut Extended) -> Result<Features, Wrong> {
        let mut features = Features::default();
        let base = self.profile.get(types, "base_features");
        features.edit(base.unwrap_or("sparse_super,large_file,filetype,resize_inode,dir_index"))?;
        for words in self.profile.of_types(types, "features") {
            features.edit(words)?;
        }
        match &self.options.features {
            Some(words) => features.edit(words)?,
            None => features.edit(self.profile.get(types, "default_features").unwrap_or(""))?,
        }
        let by_name = self.named_type == Some("ext3");
        if self.options.journal || by_name {
            features.set("has_journal", true);
        }
        if extended.encoding {
            features.set("casefold", true);
        }
        if extended.strict_encoding.is_some() && !features.has("casefold") {
            let text = "error: An encoding must be explicitly specified when passing \
                        encoding-flags\n";
            return Err(Wrong::Text(text.into()));
        }
        let projects = |kinds: &Vec<_>| kinds.contains(&extant::QuotaKind::Project);
        if features.has("quota") && extended.quota_kinds.as_ref().is_some_and(projects) {
            features.set("project", true);
        }
        if let Some(kinds) = &mut extended.quota_kinds
            && !features.has("project")
        {
            kinds.retain(|&kind| kind != extant::QuotaKind::Project);
        }
        features.settle()?;
        Ok(features)
    }

    fn inode_bytes(
        &self,
        types: &[String],
        features: &Features,
        block_bytes: u64,
    ) -> Result<u16, Wrong> {
        let usual = || self.profile.number(types, "inode_size").and_then(|n| u64::try_from(n).ok());
        let size = self.options.inode_bytes.or_else(usual).unwrap_or(256);
        let fits = (128..=block_bytes).contains(&size) && size.is_power_of_two();
        let wrong =
            || Wrong::Named(format!("invalid inode size {size} (min 128/max {block_bytes})"));
        let size = u16::try_from(size).ok().filter(|_| fits).ok_or_else(wrong)?;
        let small =
            |what: &str| Err(Wrong::Named(format!("128 byte inodes are too small for {what}")));
        match size {
            128 if features.has("inline_data") => small("inline data; specify larger size"),
            128 if features.has("project") => small("project quota"),
            _ => Ok(size),
        }
    }

    /// Clusters, groups, reserved blocks and the journal.
    fn layout(
        &self,
        mut mkfs: MkfsOptions,
        types: &[String],
        features: &Features,
        (block_bytes, blocks): (u64, u64),
    ) -> Result<MkfsOptions, Wrong> {
        let options = self.options;
        let number = |key| {
            let number = self.profile.number(types, key).and_then(|n| u32::try_from(n).ok());
            number.filter(|&number| number > 0)
        };
        let mut ratio = 1;
        if features.has("bigalloc") {
            let usual = || u32::try_from(block_bytes * 16).unwrap_or(u32::MAX);
            let bytes = options.cluster_bytes.or(number("cluster_size")).unwrap_or_else(usual);
            ratio = bytes / u32::try_from(block_bytes).unwrap_or(u32::MAX);
            mkfs = mkfs.cluster_bytes(bytes);
        } else if options.cluster_bytes.is_some() {
            let text = "specifying a cluster size requires the bigalloc feature";
            return Err(Wrong::Named(text.into()));
        }
        if let Some(count) = options.blocks_per_group {
            let most = u32::try_from(block_bytes * 8).unwrap_or(u32::MAX);
            if !(256..=most).contains(&count) {
                return Err(Wrong::Named("blocks per group count out of range".into()));
            }
            // With clusters the number counts clusters.
            let blocks = count.checked_mul(ratio.max(1));
            let wrong = || Wrong::Named("blocks per group count out of range".into());
            mkfs = mkfs.blocks_per_group(blocks.ok_or_else(wrong)?);
        }
        if !features.has("flex_bg") && options.flex_groups.is_some() {
            let text = "Flex_bg feature not enabled, so flex_bg size may not be specified";
            return Err(Wrong::Named(text.into()));
        }
        let power = |groups: &u32| groups.is_power_of_two();
        let groups = options.flex_groups.or(number("flex_bg_size").filter(power));
        mkfs = mkfs.flex_groups(groups.unwrap_or(16));
        let percent = self.profile.get(types, "reserved_ratio").and_then(|text| text.parse().ok());
        let percent = options.reserved_percent.or(percent).unwrap_or(5.0);
        mkfs = mkfs.reserved_percent(percent.clamp(0.0, 50.0));
        if let Some(mib) = options.journal_mib
            && blocks >= 2048
        {
            let wanted = u64::from(mib) * (MIB / block_bytes);
            if !(1024..=10_240_000).contains(&wanted) {
                return Err(Wrong::Text(format!(
                    "\nThe total requested journal size is {wanted} blocks; it must be\n\
                     between 1024 and 10240000 blocks.  Aborting.\n"
                )));
            }
            if wanted > blocks / 2 {
                let text = "\nTotal journal size too big for filesystem.\n";
                return Err(Wrong::Text(text.into()));
            }
            mkfs = mkfs.journal(JournalSize::Bytes(wanted * block_bytes));
        }
        Ok(mkfs)
    }

    fn inodes(
        &self,
        mkfs: MkfsOptions,
        types: &[String],
        (inode_bytes, block_bytes, blocks): (u16, u64, u64),
    ) -> Result<MkfsOptions, Wrong> {
        if let Some(count) = self.options.inodes {
            if u64::from(count) * u64::from(inode_bytes) / block_bytes >= blocks {
                return Err(Wrong::Named(format!(
                    "inode_size ({inode_bytes}) * inodes_count ({count}) too big for a\n\
                     \tfilesystem with {blocks} blocks, specify higher inode_ratio (-i)\n\
                     \tor lower inode count (-N).\n"
                )));
            }
            return Ok(mkfs.inodes(InodeCount::Near(count)));
        }
        if let Some(ratio) = self.options.inode_ratio {
            return Ok(mkfs.inodes(InodeCount::BytesPerInode(ratio)));
        }
        let ratio = self.profile.number(types, "inode_ratio");
        let ratio = ratio.and_then(|ratio| u64::try_from(ratio).ok()).unwrap_or(8192);
        let cluster = match mkfs.requested_features().ro_compat {
            bits if bits.contains(extant::features::RoCompat::BIGALLOC) => {
                self.options.cluster_bytes.map_or(block_bytes * 16, u64::from)
            }
            _ => block_bytes,
        };
        // A ratio that gives more inodes than 32 bits count: as many as there can be.
        let ratio = ratio.max(cluster).max(1024);
        Ok(match blocks.saturating_mul(block_bytes) / ratio {
            0..0xFFFF_0000 => mkfs.inodes(InodeCount::BytesPerInode(ratio)),
            _ => mkfs.inodes(InodeCount::Auto),
        })
    }

    fn extended(
        &self,
        mut mkfs: MkfsOptions,
        extended: &Extended,
        (block_size, blocks): (BlockSize, u64),
    ) -> Result<MkfsOptions, Wrong> {
        let size = block_size.bytes() as u64;
        if let Some(text) = &extended.resize {
            let most = scaled(text, block_size.log2()).unwrap_or(0) >> block_size.log2();
            if most <= blocks {
                let text = "The resize maximum must be greater than the filesystem size.\n";
                return Err(bad(text, ""));
            }
            // Without a further block of descriptors, the original takes its usual reserve.
            let per_group = self.options.blocks_per_group.map_or(size * 8, u64::from);
            let tables = |blocks: u64| blocks.div_ceil(per_group).div_ceil(size / 32);
            if tables(most) > tables(blocks) {
                mkfs = mkfs.max_growth(most);
            }
        }
        if let Some((uid, gid)) = extended.root_owner {
            mkfs = mkfs.root_owner(uid, gid);
        }
        if let Some(mode) = extended.root_mode {
            mkfs = mkfs.root_mode(mode);
        }
        if let Some(kinds) = &extended.quota_kinds {
            mkfs = mkfs.quota_kinds(kinds);
        }
        // Unlike the root, it always belongs to root.
        mkfs = mkfs.lost_and_found_owner(0, 0);
        mkfs = mkfs.stripe(extended.stride.unwrap_or(0), extended.stripe_width.unwrap_or(0));
        mkfs = mkfs.backups(extended.backups.unwrap_or(2));
        Ok(mkfs.packed_metadata(extended.packed == Some(true)))
    }

    /// Label, UUID, seed, and the operating system.
    fn names(&self, mut mkfs: MkfsOptions, extended: &Extended) -> Result<MkfsOptions, Wrong> {
        let options = self.options;
        let name = Shown::path(self.place.path);
        let long = |_| Wrong::Named("a label has at most 16 bytes".into());
        mkfs = mkfs.label(options.label.as_deref().unwrap_or("")).map_err(long)?;
        let long = |_| Wrong::Named("a path has at most 64 bytes".into());
        mkfs = mkfs.last_mounted(options.last_mounted.as_deref().unwrap_or("")).map_err(long)?;
        let text = options.uuid.as_deref().unwrap_or("random");
        let wrong = |_| Wrong::Text(format!("{name}: could not parse UUID: {text}\n\n"));
        let choice = uuid::choice(text).map_err(wrong)?;
        mkfs = mkfs.uuid(choice.bytes(self.environment));
        if let Some(seed) = extended.hash_seed {
            mkfs = mkfs.hash_seed(seed);
        }
        match options.os.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("linux" | "0") => Ok(mkfs),
            Some("hurd" | "gnu" | "masix" | "freebsd" | "lites" | "1" | "2" | "3" | "4") => {
                Err(Wrong::Named("only volumes of Linux can be made: use -o linux".into()))
            }
            Some(os) => Err(Wrong::Named(format!("unknown os - {os}"))),
        }
    }

    fn settings(&self, types: &[String], extended: &Extended) -> Result<Settings, Wrong> {
        let profile = self.profile;
        let words = profile.get(types, "default_mntopts").unwrap_or("acl,user_xattr");
        let wrong = |_| Wrong::Text(format!("Invalid mount options set: {words}\n"));
        let mount_options = Tune::default().mount_options(words).map_err(wrong)?;
        let errors = match profile.get(types, "errors") {
            Some("remount-ro") => ErrorPolicy::REMOUNT_RO,
            Some("panic") => ErrorPolicy::PANIC,
            _ => ErrorPolicy::CONTINUE,
        };
        let checked = profile.flag(types, "enable_periodic_fsck").unwrap_or(false);
        Ok(Settings {
            errors: self.options.errors.unwrap_or(errors),
            mount_options: mount_options.mount_options_on,
            hash_version: match profile.get(types, "hash_alg") {
                Some("legacy") => 0,
                Some("tea") => 2,
                _ => 1,
            },
            max_mounts: if checked { 20 } else { -1 },
            check_interval: if checked { 180 * 86_400 } else { 0 },
            mmp_interval: extended.mmp_interval.filter(|&seconds| seconds > 0).unwrap_or(5),
            strict_encoding: extended.strict_encoding == Some(true),
            test_filesystem: extended.test_filesystem,
        })
    }
}
