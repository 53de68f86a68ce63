//! Changing settings of an existing volume: label, UUID, limits, features.
//!
//! ```text
//!   Tune ─► checked against the volume ─► files made or freed, descriptors resealed, superblock
//!                                                └──────── one transaction of the log ────────┘
//!                                         ─► backups
//! ```
//!
//! Only changes that leave the volume consistent are made; others are refused with the reason. A
//! journal is added or removed in a transaction of its own, which is in that very journal.

pub(crate) mod data_csum;
mod features;
mod files;
mod journal;
mod rewrite;
mod users;

use crate::context::environment::Environment;
use crate::context::superblock::{patch_errors, read_superblock};
use crate::open::OpenOptions;
use crate::open::exclusive::{Devices, Exclusive};
use extant_base::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_crc32c::crc32c;
use extant_ondisk::features::{Compat, FeatureBit, Features, Incompat, RoCompat};
pub use extant_ondisk::superblock::{DefaultMountOpts, ErrorPolicy};
use extant_ondisk::superblock::{ErrorRecord, Superblock, VolumeState};
use std::path::Path;
use std::sync::Arc;

/// What to change; `None` leaves a setting as it is.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::tune::{Tune, tune};
/// let changes = Tune { label: Some("root".into()), ..Tune::default() }.features("quota,project")?;
/// tune("disk.img", &changes)?;
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tune {
    /// Label, at most 16 bytes.
    pub label: Option<String>,
    /// UUID. If checksums depend on it, the volume stores their seed from then on
    /// (`metadata_csum_seed`).
    pub uuid: Option<[u8; 16]>,
    /// Blocks reserved for root.
    pub reserved_blocks: Option<u64>,
    /// User who may use the reserved blocks.
    pub reserved_uid: Option<u32>,
    /// Group that may use the reserved blocks.
    pub reserved_gid: Option<u32>,
    /// What Linux does on an error.
    pub errors: Option<ErrorPolicy>,
    /// Default mount options that are turned on.
    pub mount_options_on: DefaultMountOpts,
    /// Default mount options that are turned off.
    pub mount_options_off: DefaultMountOpts,
    /// Mount options as text, at most 63 bytes.
    pub mount_text: Option<String>,
    /// Mounts between checks; 0 or less means never.
    pub max_mounts: Option<i16>,
    /// Seconds between checks; 0 means never.
    pub check_interval: Option<u32>,
    /// Mounts since the last check.
    pub mount_count: Option<u16>,
    /// Time of the last check, in seconds since 1970.
    pub last_check: Option<u64>,
    /// Time when the volume was made, in seconds since 1970.
    pub made: Option<u64>,
    /// Time of the last mount, in seconds since 1970; 0 means never.
    pub last_mount: Option<u64>,
    /// Where the volume was last mounted, at most 63 bytes.
    pub last_mounted: Option<String>,
    /// Hash of new directories: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: Option<u8>,
    /// RAID stride and stripe width, in blocks.
    pub stride: Option<(u16, u32)>,
    /// Blocks of a journal that is added; `None` means by the volume's size.
    pub journal_blocks: Option<u32>,
    /// Features to turn on (`true`) or off, in order.
    pub features: Vec<(FeatureBit, bool)>,
}

impl Tune {
    /// Adds features by name, in the format of `-O`: `quota,^orphan_file`.
    ///
    /// # Errors
    /// `Invalid` for an unknown feature name.
    pub fn features(mut self, changes: &str) -> Result<Tune> {
        for word in changes.split(',').filter(|word| !word.is_empty()) {
            let (name, on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let bit = FeatureBit::by_name(name);
            let bit = bit.ok_or(Error::Invalid("no feature has this name"))?;
            self.features.push((bit, on));
        }
        Ok(self)
    }

    /// Adds default mount options by name, in the format of `-o`: `acl,^user_xattr`.
    ///
    /// # Errors
    /// `Invalid` for an unknown option name.
    pub fn mount_options(mut self, changes: &str) -> Result<Tune> {
        for word in changes.split(',').filter(|word| !word.is_empty()) {
            let (name, on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let option = mount_option(name);
            let option = option.ok_or(Error::Invalid("no default mount option has this name"))?;
            if !on {
                self.mount_options_off |= option;
                continue;
            }
            if DATA_MODES.contains(option) {
                // The bits are one value of three, not independent.
                self.mount_options_off |= DATA_MODES - option;
            }
            self.mount_options_on |= option;
        }
        Ok(self)
    }
}

/// The data mode: one value in two bits.
const DATA_MODES: DefaultMountOpts =
    DefaultMountOpts::JOURNAL_DATA.union(DefaultMountOpts::JOURNAL_DATA_ORDERED);

fn mount_option(name: &str) -> Option<DefaultMountOpts> {
    Some(match name {
        "debug" => DefaultMountOpts::DEBUG,
        "bsdgroups" => DefaultMountOpts::BSDGROUPS,
        "user_xattr" => DefaultMountOpts::XATTR_USER,
        "acl" => DefaultMountOpts::ACL,
        "uid16" => DefaultMountOpts::UID16,
        "journal_data" => DefaultMountOpts::JOURNAL_DATA,
        "journal_data_ordered" => DefaultMountOpts::JOURNAL_DATA_ORDERED,
        "journal_data_writeback" => DATA_MODES,
        "nobarrier" => DefaultMountOpts::NOBARRIER,
        "block_validity" => DefaultMountOpts::BLOCK_VALIDITY,
        "discard" => DefaultMountOpts::DISCARD,
        "nodelalloc" => DefaultMountOpts::NODELALLOC,
        _ => return None,
    })
}

/// Changes the settings of the volume in a file or block device. Returns its new superblock.
///
/// A volume that needs recovery is recovered first.
///
/// # Errors
/// `Busy`; `Invalid` for an impossible value; `NotSupported` with the reason for a change that
/// would leave the volume inconsistent; `NoSpace` if there is no space for a file; `Unsupported`,
/// `Corrupt`, `Device`. After an error nothing has changed, unless the journal is added or removed
/// together with other changes: that is a transaction of its own.
pub fn tune(path: impl AsRef<Path>, changes: &Tune) -> Result<Superblock> {
    tune_with(&OpenOptions::new(), path, changes)
}

/// As [`tune`], but opens the volume with the options `open`: a partition inside an image, or the
/// device of an external journal. A volume with an external journal needs that device.
///
/// # Errors
/// As [`tune`]; `JournalElsewhere` without the journal's device.
pub fn tune_with(open: &OpenOptions, path: impl AsRef<Path>, changes: &Tune) -> Result<Superblock> {
    open.change_file(path.as_ref(), |_, devices| run(devices, changes, open.environment_used()))
}

/// As [`tune_with`], for a volume on any device.
///
/// # Errors
/// As [`tune_with`].
pub fn tune_device(
    open: &OpenOptions,
    device: &Arc<dyn BlockDevice>,
    changes: &Tune,
) -> Result<Superblock> {
    open.change_whole(Arc::clone(device), b"", |devices| {
        run(devices, changes, open.environment_used())
    })
}

/// Marks a volume with multiple mount protection as unused, after a checker or another user of the
/// volume ended without doing so. The caller must know that none of them writes to the volume any
/// more.
///
/// # Errors
/// `Busy`; `Invalid` for a volume without that protection; `Corrupt`, `Device`.
pub fn clear_mmp(open: &OpenOptions, path: impl AsRef<Path>) -> Result<()> {
    open.clear_hold(path.as_ref())
}

/// Records that a check of the whole volume found nothing: the time, no mounts since then, and that
/// the volume is valid and has no errors. Returns the superblock as it was before, after a
/// recovery.
///
/// The caller has checked the volume. No power cut leaves a superblock with a wrong checksum.
///
/// # Errors
/// `Busy`; `Unsupported` for a volume that may not be written; `Corrupt`, `Device`.
pub fn mark_checked(open: &OpenOptions, path: impl AsRef<Path>) -> Result<Superblock> {
    let now = u64::try_from(open.environment_used().now().sec).unwrap_or(0);
    open.change_file(path.as_ref(), |_, devices| {
        let before = read_superblock(&*devices.volume, None)?;
        record_check(&*devices.volume, now)?;
        Ok(before)
    })
}

/// Writes what [`mark_checked`] records; `now` in seconds since 1970. Without a name of a last
/// error, the first sector can keep the checksum right (rule D13).
fn record_check(home: &dyn BlockDevice, now: u64) -> Result<()> {
    patch_errors(home, |sb| {
        (sb.lastcheck, sb.wtime, sb.mnt_count) = (now, now, 0);
        sb.state.insert(VolumeState::VALID);
        sb.state.remove(VolumeState::ERROR);
        sb.error_count = 0;
        (sb.first_error, sb.last_error) = (ErrorRecord::default(), ErrorRecord::default());
    })
}

fn run(devices: &Devices, changes: &Tune, environment: &Environment) -> Result<Superblock> {
    if data_csum::remove_feature_only(devices, changes)? {
        return read_superblock(&*devices.volume, None);
    }
    let old = Exclusive::check(devices)?;
    let new = changed(&old, changes)?;
    let users = if new.uuid == old.uuid { None } else { users::Users::of(devices)? };
    let journal = FeatureBit::Compat(Compat::HAS_JOURNAL);
    let fast = FeatureBit::Compat(Compat::FAST_COMMIT);
    let gets_fast = switched(&old.features, &new.features, fast) == Some(true);
    if new.features.has(journal) && !old.features.has(journal) {
        // Without a journal, the feature may have been set but had no effect.
        let fast_commits = new.features.has(fast);
        journal::add(devices, &old, (changes.journal_blocks, fast_commits), environment)?;
    } else if changes.journal_blocks.is_some() {
        return Err(match old.features.has(journal) {
            true => Error::NotSupported(
                "the size of a journal cannot be changed: remove it, then add one of that size",
            ),
            false => Error::Invalid("a journal's size needs has_journal"),
        });
    } else if gets_fast {
        files::check_fast_commit(&Exclusive::begin_unmarked(devices, environment)?)?;
    }
    let users = match users {
        Some(mut users) => {
            users.add(new.uuid)?;
            Some(users)
        }
        None => None,
    };
    apply(devices, changes, environment)?;
    if let Some(mut users) = users {
        users.remove(old.uuid)?;
    }
    if old.features.has(journal) && !new.features.has(journal) {
        journal::remove(devices, environment)?;
    }
    Exclusive::check(devices)
}

/// Makes all changes except those of the journal, in one transaction.
fn apply(devices: &Devices, changes: &Tune, environment: &Environment) -> Result<()> {
    let old = Exclusive::check(devices)?;
    let mut new = changed(&old, changes)?;
    let journal = old.features.compat & Compat::HAS_JOURNAL;
    new.features.compat.remove(Compat::HAS_JOURNAL);
    new.features.compat.insert(journal);
    if new == old {
        return Ok(());
    }
    let mut exclusive = Exclusive::begin(devices, environment)?;
    let done = step(&mut exclusive, &old, &new);
    // Changes that were not committed are dropped: the volume is as it was.
    let finished = exclusive.finish();
    done.and(finished)
}

fn step(exclusive: &mut Exclusive, old: &Superblock, new: &Superblock) -> Result<()> {
    let mut volume = exclusive.volume()?;
    if let Some(log) = exclusive.staged.log() {
        volume.guard_log(log.map());
    }
    files::switch(exclusive, &volume, &old.features, &new.features)?;
    {
        let mut sb = volume.context().superblock().write();
        let mut new = Superblock {
            usr_quota_inum: sb.usr_quota_inum,
            grp_quota_inum: sb.grp_quota_inum,
            prj_quota_inum: sb.prj_quota_inum,
            orphan_file_inum: sb.orphan_file_inum,
            state: sb.state,
            ..new.clone()
        };
        // The marks of a volume that is being changed stay until the end.
        new.features.incompat |= sb.features.incompat & Incompat::RECOVER;
        *sb = new;
    }
    volume.mount_state().update_superblock()?;
    volume.journal().sync()?;
    let geometry = *volume.geometry();
    drop(volume);
    let resealed = old.checksums() != new.checksums();
    if resealed {
        rewrite::descriptors(exclusive, &geometry, &old.checksums(), &new.checksums())?;
    }
    let now = exclusive.now();
    exclusive.staged.commit_whole_step(geometry.blocks_count(), now)?;
    rewrite::backups(exclusive, &geometry, resealed)
}

/// The superblock that `changes` describes.
fn changed(old: &Superblock, changes: &Tune) -> Result<Superblock> {
    let mut new = old.clone();
    new.features = features::with_implied(old, &changes.features)?;
    if let Some(label) = &changes.label {
        new.volume_name = padded(label, Error::Invalid("a label has at most 16 bytes"), 0)?;
    }
    if let Some(text) = &changes.mount_text {
        let long = Error::Invalid("mount options have at most 63 bytes");
        new.mount_opts = padded(text, long, 1)?;
    }
    if let Some(blocks) = changes.reserved_blocks {
        if blocks > old.blocks_count / 2 {
            return Err(Error::Invalid("at most half of the blocks can be kept for root"));
        }
        new.reserved_blocks = blocks;
    }
    new.def_resuid = changes.reserved_uid.unwrap_or(old.def_resuid);
    new.def_resgid = changes.reserved_gid.unwrap_or(old.def_resgid);
    new.errors = changes.errors.unwrap_or(old.errors);
    new.default_mount_opts.insert(changes.mount_options_on);
    new.default_mount_opts.remove(changes.mount_options_off);
    new.max_mnt_count = changes.max_mounts.unwrap_or(old.max_mnt_count);
    new.checkinterval = changes.check_interval.unwrap_or(old.checkinterval);
    new.mnt_count = changes.mount_count.unwrap_or(old.mnt_count);
    new.lastcheck = changes.last_check.unwrap_or(old.lastcheck);
    new.mkfs_time = changes.made.unwrap_or(old.mkfs_time);
    new.mtime = changes.last_mount.unwrap_or(old.mtime);
    if let Some(path) = &changes.last_mounted {
        let long = Error::Invalid("the path of the last mount has at most 63 bytes");
        new.last_mounted = padded(path, long, 1)?;
    }
    new.def_hash_version = hash_version(changes.hash_version, old)?;
    if let Some((stride, width)) = changes.stride {
        (new.raid_stride, new.raid_stripe_width) = (stride, width);
    }
    if new.features.incompat.contains(Incompat::CASEFOLD) && old.encoding == 0 {
        new.encoding = 1;
    }
    if new.features.compat.contains(Compat::DIR_INDEX) && old.def_hash_version == 0 {
        new.def_hash_version = 1;
    }
    change_uuid(old, &mut new, changes.uuid)?;
    new.checksum_type = u8::from(new.features.ro_compat.contains(RoCompat::METADATA_CSUM));
    new.check_fields(extant_base::Site::NOWHERE)?;
    Ok(new)
}

/// Sets the UUID, and keeps the checksum seed.
fn change_uuid(old: &Superblock, new: &mut Superblock, uuid: Option<[u8; 16]>) -> Result<()> {
    let had = old.features.incompat.contains(Incompat::CSUM_SEED);
    let has = new.features.incompat.contains(Incompat::CSUM_SEED);
    if let Some(uuid) = uuid.filter(|uuid| *uuid != old.uuid) {
        if old.features.compat.contains(Compat::STABLE_INODES) {
            return Err(Error::NotSupported("a volume with stable_inodes keeps its UUID"));
        }
        let has_checksums = old.features.ro_compat.contains(RoCompat::METADATA_CSUM);
        if !has_checksums && old.features.incompat.contains(Incompat::EA_INODE) {
            return Err(Error::NotSupported(
                "attribute values in inodes of their own depend on the UUID: ea_inode forbids \
                 another one without metadata_csum",
            ));
        }
        new.uuid = uuid;
        if has_checksums {
            new.features.incompat.insert(Incompat::CSUM_SEED);
            new.checksum_seed = old.csum_seed();
            return Ok(());
        }
    }
    if has && !had {
        new.checksum_seed = old.csum_seed();
    }
    if had && !has {
        if old.csum_seed() != crc32c(!0, &new.uuid) {
            return Err(Error::NotSupported(
                "the checksums use an earlier UUID: metadata_csum_seed cannot be turned off",
            ));
        }
        new.checksum_seed = 0;
    }
    Ok(())
}

fn hash_version(version: Option<u8>, old: &Superblock) -> Result<u8> {
    match version {
        None => Ok(old.def_hash_version),
        Some(version @ 0..=2) => Ok(version),
        Some(_) => Err(Error::Invalid("a directory hash is 0, 1 or 2")),
    }
}

fn padded<const N: usize>(text: &str, long: Error, spare: usize) -> Result<[u8; N]> {
    if text.contains('\0') {
        return Err(Error::Invalid("the text holds NUL"));
    }
    let mut bytes = [0; N];
    if text.len() > N - spare {
        return Err(long);
    }
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(bytes)
}

/// Whether a feature changes between two sets: `Some(true)` if it is turned on.
fn switched(old: &Features, new: &Features, bit: FeatureBit) -> Option<bool> {
    (old.has(bit) != new.has(bit)).then(|| new.has(bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::superblock::raw_superblock;
    use crate::offline::mkfs::{MkfsOptions, format};
    use extant_base::Site;
    use extant_blockdev::MemoryDevice;
    use extant_ondisk::superblock::SUPERBLOCK_OFFSET;
    use extant_testdev::Recorder;

    #[test]
    fn a_power_cut_while_a_check_is_recorded_leaves_the_checksum_right() {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        format(device.clone(), &MkfsOptions::new(), &Environment::default()).unwrap();
        patch_errors(&*device, |sb| {
            sb.state = VolumeState::ERROR;
            (sb.mnt_count, sb.error_count) = (9, 3);
            sb.last_error = ErrorRecord { line: 7, time: 1, ..ErrorRecord::default() };
        })
        .unwrap();
        let recorder = Recorder::new(MemoryDevice::copy_of(&*device).unwrap());
        record_check(&recorder, 1_900_000_000).unwrap();
        let plan = recorder.crash_plan(&device).samples(4).torn(4);
        let mut seen = std::collections::BTreeSet::new();
        for state in plan.states() {
            let raw = raw_superblock(&state.image, SUPERBLOCK_OFFSET).unwrap();
            assert!(raw.checksum_is_right(), "{state}");
            let sb = raw.parse(Site::NOWHERE).unwrap();
            seen.insert((sb.mnt_count, sb.state.bits()));
        }
        let checked = (0, VolumeState::VALID.bits());
        assert_eq!(seen, [checked, (9, VolumeState::ERROR.bits())].into());
    }
}
