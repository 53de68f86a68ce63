//! The options that `mkfs` and `build` share: type, features, sizes, label, UUID.

use super::{of_option, uuid};
use crate::amount;
use crate::failure::Failure;
use crate::shown::Shown;
use extant::mkfs::{JournalSize, MkfsOptions};
use extant::{BlockSize, Environment};
use extant_image::Compat;

/// How a volume is laid out.
#[derive(Debug, clap::Args)]
pub(crate) struct FormatOptions {
    /// Feature set for a reader: `--compat help` lists the sets
    #[arg(long, value_name = "NAME", conflicts_with = "of_type")]
    compat: Option<String>,
    /// Type of the volume: ext2, ext3 or ext4
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = ["ext2", "ext3", "ext4"])]
    of_type: Option<String>,
    /// Block size: 1K to 64K
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = block_size)]
    pub(crate) block_size: Option<BlockSize>,
    /// Cluster size, with the feature bigalloc
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = small)]
    cluster_size: Option<u32>,
    /// Features to enable, or to disable with ^, named as in mke2fs; may be given more than once
    #[arg(short = 'O', long = "features", value_name = "FEATURE,^FEATURE…")]
    features: Vec<String>,
    /// Size of an inode: 128 bytes up to the block size
    #[arg(short = 'I', long, value_name = "BYTES", value_parser = inode_size)]
    inode_size: Option<u16>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL", value_parser = label)]
    label: Option<String>,
    /// UUID, or one of `random`, `time` and `clear`
    #[arg(short = 'U', long, value_name = "UUID", value_parser = uuid::choice)]
    uuid: Option<uuid::Choice>,
    /// Percentage of blocks reserved for root
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = percent)]
    reserved: Option<f64>,
    /// Size of the journal: size=SIZE (a number without a unit counts MiB)
    #[arg(short = 'J', long, value_name = "size=SIZE", value_parser = journal)]
    journal: Option<u64>,
    /// Blocks per group, a multiple of 8
    #[arg(short = 'g', long, value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups in a flex group, whose bitmaps and inode tables lie together; a power of two
    #[arg(short = 'G', long, value_name = "GROUPS")]
    flex_groups: Option<u32>,
}

impl FormatOptions {
    /// Whether only the list of feature sets was requested.
    pub(crate) fn wants_compat_list(&self) -> bool {
        self.compat.as_deref() == Some("help")
    }

    /// The engine's options without the UUID. `reserved` is the percentage of reserved blocks
    /// unless the user gives one.
    pub(crate) fn options(&self, reserved: Option<f64>) -> Result<MkfsOptions, Failure> {
        let set = match (&self.of_type, &self.compat) {
            (None, Some(name)) => Some(Compat::by_name(name).map_err(Failure::usage)?),
            _ => None,
        };
        let mut options = match (&self.of_type, &set) {
            (Some(name), _) => MkfsOptions::of_type(name).map_err(|e| of_option("-t", &e))?,
            (None, Some(set)) => set.mkfs(),
            (None, None) => MkfsOptions::new(),
        };
        for list in &self.features {
            // One at a time, so that an error names the feature.
            for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
                let option = || format!("-O {}", Shown(word.as_bytes()));
                options = options.features(word).map_err(|e| of_option(&option(), &e))?;
            }
        }
        // -O must not contradict what the name of the set promises.
        if let Some(set) = &set {
            set.check(&options.requested_features()).map_err(Failure::usage)?;
        }
        if let Some(size) = self.block_size {
            options = options.block_size(size);
        }
        if let Some(bytes) = self.cluster_size {
            options = options.cluster_bytes(bytes);
        }
        if let Some(bytes) = self.inode_size {
            options = options.inode_size(bytes);
        }
        if let Some(label) = &self.label {
            options = options.label(label).map_err(|error| of_option("-L", &error))?;
        }
        if let Some(percent) = self.reserved.or(reserved) {
            options = options.reserved_percent(percent);
        }
        if let Some(bytes) = self.journal {
            options = options.journal(JournalSize::Bytes(bytes));
        }
        if let Some(blocks) = self.blocks_per_group {
            options = options.blocks_per_group(blocks);
        }
        if let Some(groups) = self.flex_groups {
            options = options.flex_groups(groups);
        }
        Ok(options)
    }

    /// The requested UUID.
    pub(crate) fn uuid_bytes(&self, environment: &Environment) -> Option<[u8; 16]> {
        self.uuid.map(|choice| choice.bytes(environment))
    }
}

/// The largest id of a user or group. To Linux, the next number means "no id".
pub(crate) const ID_MAX: u32 = u32::MAX - 1;

/// Parses the id of a user or group.
pub(crate) fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= ID_MAX)
}

/// One of mke2fs's extended options.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extended {
    /// Owner and group of the root directory.
    RootOwner(u32, u32),
    /// Seed of the name hashes of directories.
    HashSeed([u8; 16]),
    /// An option that has no effect here.
    Nothing,
}

/// Parses one of them.
///
/// Errors: for an unknown option, a list of the known ones.
pub(super) fn extended(text: &str) -> Result<Extended, String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name {
        "root_owner" => owner(value).map(|(uid, gid)| Extended::RootOwner(uid, gid)),
        "hash_seed" => uuid::parse(value).map(Extended::HashSeed),
        "lazy_itable_init" | "lazy_journal_init" | "discard" | "nodiscard" => Ok(Extended::Nothing),
        _ => Err("-E supports root_owner=UID:GID and hash_seed=UUID; for other settings see \
                  --help"
            .into()),
    }
}

/// Parses `UID:GID`.
pub(crate) fn owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| Some((id(uid)?, id(gid)?)));
    numbers.ok_or_else(|| format!("'{text}' is not UID:GID, two numbers as in 0:0"))
}

/// Parses a label.
pub(crate) fn label(text: &str) -> Result<String, String> {
    match text.len() {
        0..=16 => Ok(text.to_owned()),
        len => Err(format!("a label has at most 16 bytes, and this one has {len}")),
    }
}

fn block_size(text: &str) -> Result<BlockSize, String> {
    let size = u32::try_from(amount::bytes(text)?).ok().and_then(BlockSize::from_bytes);
    size.ok_or_else(|| format!("'{text}' is not 1K, 2K, 4K, 8K, 16K, 32K or 64K"))
}

fn small(text: &str) -> Result<u32, String> {
    u32::try_from(amount::bytes(text)?).map_err(|_| format!("'{text}' is too large"))
}

fn inode_size(text: &str) -> Result<u16, String> {
    match u16::try_from(amount::bytes(text)?) {
        Ok(size) if size >= 128 && size.is_power_of_two() => Ok(size),
        _ => Err(format!("'{text}' is not 128, 256, 512, 1024, …")),
    }
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent),
        _ => Err(format!("'{text}' is not a percentage from 0 to 50")),
    }
}

pub(crate) fn journal(text: &str) -> Result<u64, String> {
    let size = text.strip_prefix("size=");
    let size = size.ok_or_else(|| format!("'{text}' is not size=SIZE, as in size=64M"))?;
    amount::scaled(size, 1 << 20)
}
