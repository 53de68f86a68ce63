//! Named sets of features that a given reader can mount.
//!
//! ```text
//!   default        what mke2fs 1.47 makes
//!   kernel-N       nothing that Linux N cannot mount for writing
//!   grub-2.06      nothing that GRUB 2.06 cannot read: no csum_seed, no large_dir
//!   ext2, ext3     the old types
//! ```

use crate::build::error::BuildError;

/// A set by its name, and what it switches, in mke2fs's notation.
#[derive(Clone, Copy, Debug)]
pub struct Compat {
    /// Its name, as `--compat` takes it.
    pub name: &'static str,
    /// The type it starts from.
    pub of_type: &'static str,
    /// Features switched on, or off with `^`.
    pub features: &'static str,
    /// Who can read and write such a volume.
    pub readers: &'static str,
}

/// All sets.
pub const COMPAT_SETS: &[Compat] = &[
    Compat {
        name: "default",
        of_type: "ext4",
        features: "",
        readers: "Linux 3.18 and later, e2fsprogs 1.43 and later, GRUB 2.02 and later",
    },
    Compat {
        name: "kernel-6.1",
        of_type: "ext4",
        features: "metadata_csum_seed,orphan_file",
        readers: "Linux 5.15 and later, e2fsprogs 1.47 and later",
    },
    Compat {
        name: "kernel-4.19",
        of_type: "ext4",
        features: "metadata_csum_seed",
        readers: "Linux 4.4 and later, e2fsprogs 1.43 and later",
    },
    Compat {
        name: "kernel-3.10",
        of_type: "ext4",
        features: "^metadata_csum,uninit_bg",
        readers: "Linux 2.6.28 and later, any e2fsprogs 1.42",
    },
    Compat {
        name: "grub-2.06",
        of_type: "ext4",
        features: "^metadata_csum_seed,^large_dir,^ea_inode,^inline_data,^casefold,^encrypt",
        readers: "GRUB 2.02 and later, Linux 3.18 and later",
    },
    Compat { name: "ext3", of_type: "ext3", features: "", readers: "anything that knows ext3" },
    Compat { name: "ext2", of_type: "ext2", features: "", readers: "anything that knows ext2" },
];

impl Compat {
    /// The set called `name`.
    ///
    /// Errors: `Option`, naming the sets there are.
    pub fn by_name(name: &str) -> Result<Compat, BuildError> {
        COMPAT_SETS.iter().find(|set| set.name == name).copied().ok_or_else(|| {
            let names: Vec<_> = COMPAT_SETS.iter().map(|set| set.name).collect();
            BuildError::Option(format!(
                "no compatibility set is called {name}: there are {}",
                names.join(", ")
            ))
        })
    }
}
