//! The matrix of clean volumes: a row for each combination of features with its own code path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::e2fsprogs::{e2fsck, mke2fs};
use crate::loop_mount::{LoopDevice, LoopMount};
use crate::manifest::Manifest;
use crate::populate::populate;
use crate::scratch::make_sparse;
use crate::uml::Uml;

/// What fills a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// This machine's kernel, by a loop mount.
    Host,
    /// User-mode Linux: features that this machine's kernel may lack.
    Uml,
    /// `mke2fs -d`: blocks larger than a page.
    Mke2fs,
}

/// One volume of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct CleanCase {
    /// Its unique name.
    pub name: &'static str,
    /// Size of the image.
    pub mib: u64,
    /// What fills it.
    pub maker: Maker,
    /// Options for mke2fs.
    pub mkfs: &'static str,
    /// Mount options in addition to `noatime`.
    pub mount: &'static str,
    /// Profiles for [`populate`].
    pub profiles: &'static str,
}

/// A finished volume, unmounted and clean.
#[derive(Debug)]
pub struct CleanVolume {
    /// The image.
    pub img: PathBuf,
    /// Its external journal.
    pub journal: Option<PathBuf>,
    /// What Linux shows of it; for [`Maker::Mke2fs`], what the source directory contains.
    pub manifest: Manifest,
    /// What the filesystem refused.
    pub skipped: Vec<String>,
}

const fn row(
    name: &'static str,
    mib: u64,
    maker: Maker,
    [mkfs, mount, profiles]: [&'static str; 3],
) -> CleanCase {
    CleanCase { name, mib, maker, mkfs, mount, profiles }
}

const fn host(name: &'static str, mib: u64, mkfs: &'static str, fill: &'static str) -> CleanCase {
    row(name, mib, Maker::Host, [mkfs, "", fill])
}

const CASES: &[CleanCase] = &[
    host("default-4k", 64, "-b 4096", "common htree5k"),
    host("1k", 64, "-b 1024", "common htree5k"),
    host("2k", 64, "-b 2048", "common htree5k"),
    host("ext2-rev0", 32, "-t ext2 -r 0 -b 1024 -I 128 -O none", "small churn"),
    host("ext2-1k", 32, "-t ext2 -b 1024", "common"),
    host("ext2-4k-no-dir-index", 32, "-t ext2 -b 4096 -O ^dir_index", "common"),
    host("ext3-4k", 64, "-t ext3 -b 4096", "common htree5k"),
    host("ext3-1k-inode128", 64, "-t ext3 -b 1024 -I 128", "common htree5k"),
    host("no-journal", 64, "-b 4096 -O ^has_journal", "common churn"),
    host("no-extent-1k", 64, "-b 1024 -O ^extent,^64bit", "common"),
    host("no-extent-4k", 64, "-b 4096 -O ^extent,^64bit", "common churn"),
    host("no-64bit", 64, "-b 4096 -O ^64bit", "common"),
    host("no-metadata-csum", 64, "-b 4096 -O ^metadata_csum", "common htree5k"),
    host("gdt-csum", 64, "-b 4096 -O ^metadata_csum,uninit_bg", "common"),
    host("gdt-csum-1k-32bit", 64, "-b 1024 -O ^metadata_csum,uninit_bg,^64bit", "common churn"),
    host("csum-seed", 64, "-b 4096 -O metadata_csum_seed", "common htree5k"),
    host("orphan-file", 64, "-b 4096 -O orphan_file", "common"),
    host("bigalloc-16k", 64, "-b 4096 -O bigalloc -C 16384", "common"),
    host("bigalloc-1k-64k", 64, "-b 1024 -O bigalloc -C 65536", "common"),
    host("inline", 64, "-b 4096 -O inline_data", "common inline"),
    host("inline-inode1024", 64, "-b 4096 -I 1024 -O inline_data", "common inline"),
    host("inline-1k", 64, "-b 1024 -O inline_data", "common inline"),
    host("inline-no-extent", 64, "-b 4096 -O inline_data,^extent,^64bit", "files inline"),
    host("inode128", 64, "-b 4096 -I 128", "common"),
    host("inode512", 64, "-b 4096 -I 512", "common"),
    host("inode1024", 64, "-b 4096 -I 1024", "common"),
    host("inode4096", 64, "-b 4096 -I 4096 -N 1024", "small xattrs"),
    host("no-flex-bg", 64, "-b 1024 -O ^flex_bg", "common"),
    host("flex-bg-4", 64, "-b 1024 -G 4 -g 2048", "common"),
    host("meta-bg", 64, "-b 1024 -O meta_bg,^resize_inode -g 1024", "common"),
    host("meta-bg-4k", 64, "-b 4096 -O meta_bg,^resize_inode -g 512", "small"),
    host("no-sparse-super", 64, "-b 1024 -O ^sparse_super,^resize_inode", "small"),
    host("sparse-super2", 64, "-b 1024 -O sparse_super2,^resize_inode", "common"),
    host(
        "sparse-super2-one",
        64,
        "-b 1024 -O sparse_super2,^resize_inode -E num_backup_sb=1",
        "small",
    ),
    host("no-resize-inode", 64, "-b 4096 -O ^resize_inode", "small"),
    host("packed-meta", 64, "-b 4096 -E packed_meta_blocks=1", "small"),
    host("no-filetype", 64, "-b 4096 -O ^filetype,^has_journal,^metadata_csum", "small dirs"),
    host("no-ext-attr-no-dir-index", 64, "-b 4096 -O ^ext_attr,^dir_index", "small dirs"),
    host(
        "no-extra-isize-dir-nlink-huge-file",
        64,
        "-b 4096 -O ^extra_isize,^dir_nlink,^huge_file",
        "small dirs",
    ),
    row(
        "lazy-init",
        64,
        Maker::Host,
        ["-b 4096 -E lazy_itable_init=1,lazy_journal_init=1", "noinit_itable", "small"],
    ),
    host("htree-100k", 64, "-b 4096 -N 20000", "htree100k"),
    host("htree-100k-1k", 64, "-b 1024 -N 20000", "htree100k"),
    host("large-dir-1k-depth3", 96, "-b 1024 -O large_dir -N 8000", "htree_deep"),
    host("htree-tea", 32, "-b 1024 -E hash_alg=tea", "htree5k names"),
    host("htree-legacy", 32, "-b 1024 -E hash_alg=legacy", "htree5k names"),
    host("ea-inode", 64, "-b 4096 -O ea_inode", "common eainode"),
    host("ea-inode-1k", 64, "-b 1024 -O ea_inode", "common eainode"),
    host("mmp", 64, "-b 4096 -O mmp", "small"),
    host(
        "stride-label",
        64,
        "-b 4096 -E stride=16,stripe_width=64 -L LABEL1234567890 -M /some/where -m 7",
        "small",
    ),
    row("data-journal", 64, Maker::Host, ["-b 4096", "data=journal", "small magic churn"]),
    host("fast-commit", 64, "-b 4096 -O fast_commit", "common"),
    host(
        "all-new-1k",
        64,
        "-b 1024 -O fast_commit,orphan_file,metadata_csum_seed,inline_data,ea_inode,large_dir",
        "common inline eainode",
    ),
    host("encrypt", 64, "-b 4096 -O encrypt,stable_inodes", "files encrypt"),
    host("bad-blocks", 32, "-b 1024 -l BADBLOCKS", "small"),
    host("external-journal", 32, "-b 4096 -J device=JOURNAL", "small churn"),
    host("many-groups", 64, "-b 1024 -g 256 -N 8192", "common"),
    row(
        "quota-project",
        64,
        Maker::Uml,
        [
            "-b 4096 -O quota,project -E quotatype=usrquota:grpquota:prjquota",
            "prjquota",
            "common project",
        ],
    ),
    row(
        "quota-1k",
        64,
        Maker::Uml,
        ["-b 1024 -O quota,project -E quotatype=prjquota", "prjquota", "files project"],
    ),
    row("older-kernel-4k", 64, Maker::Uml, ["-b 4096", "", "common htree5k"]),
    row("64k", 128, Maker::Mke2fs, ["-b 65536", "", "tree"]),
    row("32k", 128, Maker::Mke2fs, ["-b 32768", "", "tree"]),
    row("16k", 64, Maker::Mke2fs, ["-b 16384", "", "tree"]),
    row("8k", 64, Maker::Mke2fs, ["-b 8192 -I 512", "", "tree"]),
    row("mke2fs-4k", 64, Maker::Mke2fs, ["-b 4096", "", "tree htree5k"]),
    row(
        "mke2fs-inline-orphan-file",
        64,
        Maker::Mke2fs,
        ["-b 4096 -O inline_data,orphan_file,metadata_csum_seed", "", "tree"],
    ),
];

/// Every row.
pub fn clean_cases() -> &'static [CleanCase] {
    CASES
}

impl CleanCase {
    /// Makes the volume in `dir`. `Err` if a tool failed or e2fsck finds an error in the result.
    pub fn make(&self, dir: &Path) -> Result<CleanVolume, String> {
        let img = dir.join("image.img");
        let bytes = self.mib << 20;
        let journal = self.mkfs.contains("JOURNAL").then(|| dir.join("journal.img"));
        let mut mkfs = self.mkfs.to_owned();
        if mkfs.contains("BADBLOCKS") {
            let list = dir.join("badblocks");
            std::fs::write(&list, "5000\n5001\n9000\n").map_err(|e| e.to_string())?;
            mkfs = mkfs.replace("BADBLOCKS", &list.display().to_string());
        }
        let (manifest, skipped) = match self.maker {
            Maker::Host => {
                make_with_journal(&img, bytes, &mkfs, journal.as_deref())?;
                let mount = LoopMount::mount(&img, journal.as_deref(), self.mount)?;
                let skipped = populate(mount.path(), self.profiles)?;
                mount.unmount()?;
                let mount = LoopMount::mount(&img, journal.as_deref(), "ro")?;
                let manifest = Manifest::walk(mount.path())?;
                mount.unmount()?;
                (manifest, skipped)
            }
            Maker::Uml => {
                mke2fs(&img, bytes, &mkfs, None)?;
                self.fill_in_guest(&img, dir)?
            }
            Maker::Mke2fs => {
                let source = dir.join("source");
                std::fs::create_dir(&source).map_err(|e| e.to_string())?;
                let skipped = populate(&source, self.profiles)?;
                mke2fs(&img, bytes, &mkfs, Some(&source))?;
                (Manifest::walk(&source)?, skipped)
            }
        };
        e2fsck(&img, journal.as_deref()).expect_clean()?;
        Ok(CleanVolume { img, journal, manifest, skipped })
    }

    fn fill_in_guest(&self, img: &Path, dir: &Path) -> Result<(Manifest, Vec<String>), String> {
        let script = format!(
            "modprobe $MODULES quota_v2 2>/dev/null\n\
             mount -t ext4 -o noatime,{} /dev/ubda /dev/shm/m || exit 9\n\
             $KIT populate /dev/shm/m {} > /mnt/work/skipped || exit 8\n\
             umount /dev/shm/m\n\
             mount -t ext4 -o ro /dev/ubda /dev/shm/m || exit 7\n\
             $KIT manifest /dev/shm/m > /mnt/work/manifest || exit 6\n\
             umount /dev/shm/m",
            if self.mount.is_empty() { "rw" } else { self.mount },
            self.profiles,
        );
        let limit = Duration::from_secs(120);
        Uml::get()?.run(&script, &[img], dir, limit)?.success()?;
        let read = |name| std::fs::read_to_string(dir.join(name)).map_err(|e| e.to_string());
        let skipped = read("skipped")?.lines().map(str::to_owned).collect();
        Ok((Manifest::from_json_lines(&read("manifest")?)?, skipped))
    }
}

/// Runs mke2fs, with an external journal at `journal` if the options contain `JOURNAL`.
pub(super) fn make_with_journal(
    img: &Path,
    bytes: u64,
    options: &str,
    journal: Option<&Path>,
) -> Result<(), String> {
    let Some(journal) = journal else {
        return mke2fs(img, bytes, options, None);
    };
    make_sparse(journal, 16 << 20)?;
    mke2fs(journal, 16 << 20, "-t ext4 -O journal_dev -b 4096", None)?;
    let device = LoopDevice::attach(journal)?;
    mke2fs(img, bytes, &options.replace("JOURNAL", &device.path().display().to_string()), None)
}
