//! Settings of a new volume's superblock that do not change its layout.

use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::{DefaultMountOpts, ErrorPolicy, SuperFlags, Superblock};

/// The settings: mke2fs's defaults, unless changed.
///
/// ```
/// use extant::mkfs::{MkfsOptions, Settings};
/// use extant::tune::ErrorPolicy;
/// let settings = Settings { errors: ErrorPolicy::PANIC, ..Settings::default() };
/// let options = MkfsOptions::new().settings(settings);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What Linux does on an error.
    pub errors: ErrorPolicy,
    /// Mount options that are on by default.
    pub mount_options: DefaultMountOpts,
    /// Hash of new directories: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// Mounts between checks; 0 or less means never.
    pub max_mounts: i16,
    /// Seconds between checks; 0 means never.
    pub check_interval: u32,
    /// With the feature `mmp`: seconds between updates of its block.
    pub mmp_interval: u16,
    /// With the feature `casefold`: whether names must be valid UTF-8.
    pub strict_encoding: bool,
    /// Whether the volume is marked for a filesystem driver in development.
    pub test_filesystem: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            errors: ErrorPolicy::CONTINUE,
            mount_options: DefaultMountOpts::XATTR_USER | DefaultMountOpts::ACL,
            hash_version: 1,
            max_mounts: -1,
            check_interval: 0,
            mmp_interval: 5,
            strict_encoding: false,
            test_filesystem: false,
        }
    }
}

impl Settings {
    /// Writes the settings to a superblock whose features are final.
    pub(super) fn apply(&self, sb: &mut Superblock) {
        sb.errors = self.errors;
        sb.default_mount_opts = self.mount_options;
        sb.def_hash_version = self.hash_version;
        (sb.max_mnt_count, sb.checkinterval) = (self.max_mounts, self.check_interval);
        if sb.features.incompat.contains(Incompat::MMP) {
            sb.mmp_update_interval = self.mmp_interval;
        }
        if sb.features.incompat.contains(Incompat::CASEFOLD) {
            sb.encoding_flags = u16::from(self.strict_encoding);
        }
        sb.flags.set(SuperFlags::TEST_FILESYS, self.test_filesystem);
    }
}
