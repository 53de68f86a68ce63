//! Power cuts during a change of settings: the volume has the old or the new settings, and is
//! consistent, whatever recovers it.

use crate::common::image_of;
use extant::check;
use extant::superblock::Superblock;
use extant::tune::{Tune, tune_device};
use extant::{BlockDevice, Filesystem, MemoryDevice, OpenOptions};
use extant_ondisk::features::{FeatureBit, Incompat, RoCompat};
use extant_ondisk::superblock::{DefaultMountOpts, ErrorPolicy, RawSuperblock};
use extant_testdev::Recorder;
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{clear_data_csum, e2fsck, mke2fs};
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use zerocopy::FromBytes;

const BYTES: u64 = 8 << 20;

/// Name, options of mke2fs, features to change, or one of the other settings of [`changes`].
const ROWS: &[(&str, &str, &str)] = &[
    ("settings", "-b 1024", ""),
    ("settings-seed", "-b 1024 -O metadata_csum_seed", ""),
    ("settings-gdt-csum", "-b 1024 -O ^metadata_csum,uninit_bg", ""),
    ("settings-4k", "-b 4096", ""),
    ("journal-on", "-b 1024 -O ^has_journal", "has_journal"),
    ("journal-on-ext2", "-t ext2 -b 1024", "has_journal"),
    ("journal-on-bigalloc", "-b 1024 -O ^has_journal,bigalloc -C 4096", "has_journal"),
    ("journal-on-4k", "-b 4096 -O ^has_journal", "has_journal"),
    ("journal-off", "-b 1024", "^has_journal"),
    ("journal-off-ext3", "-t ext3 -b 1024", "^has_journal"),
    ("journal-off-4k", "-b 4096", "^has_journal"),
    ("journal-off-bigalloc", "-b 1024 -O bigalloc -C 4096", "^has_journal"),
    ("orphan-file-on", "-b 1024", "orphan_file"),
    ("orphan-file-off", "-b 1024 -O orphan_file", "^orphan_file"),
    ("quota-on", "-b 1024", "quota"),
    ("project-and-quota", "-b 1024", "project,quota"),
    ("quota-project-off", "-b 1024 -O quota,project", "^quota,^project"),
    ("reserve", "-b 1024", "-m"),
    ("reserve-group", "-b 1024", "-g"),
    ("mount-options", "-b 1024", "-o"),
    ("mount-options-ext2", "-t ext2 -b 1024", "-o"),
    ("project-alone", "-b 1024", "project"),
    ("project-off", "-b 1024 -O project", "^project"),
    ("fast-commit", "-b 1024 -J size=2", "fast_commit"),
    ("fast-commit-off", "-b 1024 -J size=2 -O fast_commit", "^fast_commit"),
    ("dir-index", "-b 1024 -O ^dir_index", "dir_index"),
    ("dir-index-no-journal", "-b 1024 -O ^dir_index,^has_journal", "dir_index"),
    ("ext-attr", "-b 1024 -O ^ext_attr", "ext_attr"),
    ("large-file", "-b 1024 -O ^large_file,^huge_file", "large_file"),
    ("huge-file", "-b 1024 -O ^huge_file", "huge_file"),
    ("dir-nlink", "-b 1024 -O ^dir_nlink", "dir_nlink"),
    ("seed-on", "-b 1024", "metadata_csum_seed"),
    ("seed-off", "-b 1024 -O metadata_csum_seed", "^metadata_csum_seed"),
    ("uninit-on", "-b 1024 -O ^metadata_csum,^uninit_bg", "uninit_bg"),
    ("casefold", "-b 1024", "casefold"),
    ("data-csum-on", "-b 1024", "data_csum"),
    ("data-csum-on-4k", "-b 4096 -O quota", "data_csum"),
    ("data-csum-off", "-b 1024", "^data_csum"),
    ("others", "-b 1024", "large_dir,ea_inode,verity,stable_inodes"),
];

fn changes(features: &str) -> Tune {
    match features {
        "" => Tune {
            label: Some("fresh".into()),
            uuid: Some(*b"\x01\x02\x03\x04\x05\x06\x47\x08\x89\x0a\x0b\x0c\x0d\x0e\x0f\x10"),
            reserved_blocks: Some(77),
            reserved_uid: Some(5),
            max_mounts: Some(9),
            check_interval: Some(86_400),
            errors: Some(ErrorPolicy::REMOUNT_RO),
            mount_text: Some("noatime".into()),
            ..Tune::default()
        },
        "-m" => Tune { reserved_blocks: Some(811), ..Tune::default() },
        "-g" => Tune { reserved_gid: Some(70_000), ..Tune::default() },
        "-o" => Tune {
            mount_options_on: DefaultMountOpts::JOURNAL_DATA | DefaultMountOpts::NODELALLOC,
            mount_options_off: DefaultMountOpts::ACL,
            ..Tune::default()
        },
        features => Tune::default().features(features).unwrap(),
    }
}

/// The fields that a change of settings can change.
fn settings(sb: &Superblock) -> impl PartialEq + std::fmt::Debug + use<> {
    let incompat = sb.features.incompat - Incompat::RECOVER;
    (
        (sb.volume_name, sb.uuid, sb.features.compat, incompat, sb.features.ro_compat),
        (sb.reserved_blocks, sb.def_resuid, sb.errors, sb.max_mnt_count, sb.checkinterval),
        (sb.def_resgid, sb.default_mount_opts, sb.def_hash_version),
        (sb.journal_inum, sb.overhead_clusters, sb.orphan_file_inum, sb.usr_quota_inum),
    )
}

fn holds_all(device: Arc<dyn BlockDevice>) -> Result<Superblock, String> {
    let fs = Filesystem::open_device(device).map_err(|e| e.to_string())?;
    for n in 0..20 {
        let content = fs.read(format!("/a/file {n}")).map_err(|e| e.to_string())?;
        if content != vec![n as u8; n * 700] {
            return Err(format!("file {n} changed"));
        }
    }
    Ok(fs.superblock().clone())
}

fn cut(options: &str, changes: &Tune, states: usize) -> Result<String, String> {
    let scratch = Scratch::new();
    let (from, img, out) = (scratch.file("from"), scratch.file("a.img"), scratch.file("cut.img"));
    fs::create_dir_all(from.join("a")).unwrap();
    for n in 0..20 {
        fs::write(from.join(format!("a/file {n}")), vec![n as u8; n * 700]).unwrap();
    }
    mke2fs(&img, BYTES * if options.contains("4096") { 4 } else { 1 }, options, Some(&from))?;
    if options.contains("quota") {
        // mke2fs counts quota before it fills the volume.
        run_args("e2fsck", &["-fy", img.to_str().unwrap_or_default()])?;
    }
    let base = MemoryDevice::from_bytes(&fs::read(&img).map_err(|e| e.to_string())?);
    let data_csum = FeatureBit::RoCompat(RoCompat::DATA_CSUM);
    let base = match changes.features.contains(&(data_csum, false)) {
        true => {
            let device = Arc::new(base);
            let dynamic = Arc::clone(&device) as Arc<dyn BlockDevice>;
            let on = Tune::default().features("data_csum").map_err(|e| e.to_string())?;
            tune_device(&OpenOptions::new(), &dynamic, &on).map_err(|e| e.to_string())?;
            MemoryDevice::clone(&device)
        }
        false => base,
    };
    let has_data_csum = changes.features.iter().any(|(bit, _)| *bit == data_csum);
    let old = settings(&holds_all(Arc::new(base.clone()))?);
    let recorder = Arc::new(Recorder::new(base.clone()));
    let device = Arc::clone(&recorder) as Arc<dyn BlockDevice>;
    let new = tune_device(&OpenOptions::new(), &device, changes).map_err(|e| e.to_string())?;
    let new = settings(&new);
    if old == new {
        return Err("nothing changed".into());
    }
    let judge = |what: &str, bytes: &[u8]| -> Result<bool, String> {
        let at = |e: String| format!("{what}: {e}");
        fs::write(&out, bytes).map_err(|e| at(e.to_string()))?;
        clear_data_csum(&out).map_err(at)?;
        e2fsck(&out, None).expect_clean().map_err(at)?;
        if has_data_csum {
            let options = check::Options { data: true, ..check::Options::default() };
            let device = Arc::new(MemoryDevice::from_bytes(bytes));
            let report =
                check::check_device(device, &options, &()).map_err(|e| at(e.to_string()))?;
            if !report.clean {
                return Err(at(format!("{:?}", report.findings)));
            }
        }
        let sb = holds_all(Arc::new(MemoryDevice::from_bytes(bytes))).map_err(at)?;
        let now = settings(&sb);
        match (now == old, now == new) {
            (false, false) => Err(at(format!("neither old nor new: {now:?}"))),
            (_, is_new) => Ok(is_new),
        }
    };
    judge("done", &image_of(&*device))?;
    let plan = recorder.crash_plan(&base).seed(9).samples(2).exhaustive_up_to(2);
    let every = (plan.states().count() / states).max(1);
    let (mut checked, mut new_count) = (0, 0);
    for state in plan.states().step_by(every) {
        let what = state.to_string();
        let bytes = image_of(&state.image);
        let device: Arc<dyn BlockDevice> = Arc::new(state.image);
        let recovered = OpenOptions::new().recover_device_in_place(Arc::clone(&device));
        recovered.map_err(|e| format!("{what}: recovery: {e}"))?;
        let is_new = judge(&what, &image_of(&*device))?;
        (checked, new_count) = (checked + 1, new_count + usize::from(is_new));
        let (raw, _) = RawSuperblock::ref_from_prefix(&bytes[1024..]).unwrap();
        // e2fsck treats a torn superblock as a damaged one.
        let has_checksums = raw.s_feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() != 0;
        // The log may contain data checksums, which e2fsck does not know.
        if !has_data_csum && (!has_checksums || raw.checksum_is_right()) {
            repaired_by_e2fsck(&out, &bytes)?;
            judge(&format!("{what}, e2fsck"), &fs::read(&out).map_err(|e| e.to_string())?)?;
        }
    }
    Ok(format!("{checked} states, {new_count} of them new"))
}

fn repaired_by_e2fsck(out: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(out, bytes).map_err(|e| e.to_string())?;
    run_args("e2fsck", &["-fy", out.to_str().unwrap_or_default()]).map(drop)
}

#[test]
fn a_cut_leaves_the_old_settings_or_the_new_ones() {
    require!(E2fsprogs);
    run_cases(
        "tune/cut",
        ROWS,
        |row| row.0.to_owned(),
        |&(_, options, features)| {
            let soak = std::env::var_os("EXTANT_SOAK").is_some();
            cut(options, &changes(features), if soak { 200 } else { 5 })
        },
    );
}
