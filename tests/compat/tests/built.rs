//! Volumes that extant makes: e2fsck finds nothing, debugfs and dumpe2fs accept them, and Linux
//! mounts them, shows what the source contained, and continues to write to them.

use std::ffi::OsStr;
use std::path::Path;

use extant_compat_tests::{Verdict, linux_confirms};
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{
    clear_data_csum, debugfs, dumpe2fs, e2fsck, has_data_csum, mke2fs,
};
use extant_testkit::extant::Extant;
use extant_testkit::kernel_images::{CleanCase, Maker, clean_cases};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::populate::{populate, populate_for};
use extant_testkit::report::{expect_none, run_cases, try_cases};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;

/// Name, options for `extant build`, profiles for `populate`, largest block size in bytes that this
/// row uses (above 4096 only debugfs can read it back).
const BUILDS: &[(&str, &str, &str, u32)] = &[
    ("default", "", "tree htree5k", 4096),
    ("1k", "-b 1024", "tree htree5k", 1024),
    ("2k", "-b 2048", "tree", 2048),
    ("4k", "-b 4096", "tree churn", 4096),
    ("8k", "-b 8192", "tree", 8192),
    ("16k", "-b 16384", "tree", 16384),
    ("32k", "-b 32768", "tree", 32768),
    ("64k", "-b 65536", "tree", 65536),
    ("no-journal", "-O ^has_journal", "tree", 4096),
    ("no-extent", "-O ^extent,^64bit", "tree", 4096),
    ("no-extent-1k", "-b 1024 -O ^extent,^64bit", "tree htree5k", 1024),
    ("no-64bit", "-O ^64bit", "tree", 4096),
    ("no-metadata-csum", "-O ^metadata_csum", "tree htree5k", 4096),
    ("gdt-csum", "-O ^metadata_csum,uninit_bg", "tree", 4096),
    ("csum-seed", "-O metadata_csum_seed", "tree", 4096),
    ("orphan-file", "-O orphan_file", "tree", 4096),
    ("bigalloc", "-O bigalloc -C 16384", "tree", 4096),
    ("inline", "-O inline_data", "tree inline", 4096),
    ("inline-1k", "-b 1024 -O inline_data", "tree inline", 1024),
    ("inode128", "-I 128 -O ^metadata_csum", "tree", 4096),
    ("inode1024", "-I 1024", "tree", 4096),
    ("no-flex-bg", "-b 1024 -O ^flex_bg", "tree", 1024),
    ("meta-bg", "-b 1024 -O meta_bg,^resize_inode", "tree", 1024),
    ("sparse-super2", "-b 1024 -O sparse_super2,^resize_inode", "tree", 1024),
    ("no-dir-index", "-O ^dir_index", "tree", 4096),
    ("no-filetype", "-O ^filetype,^metadata_csum", "tree", 4096),
    ("ea-inode", "-O ea_inode", "tree eainode", 4096),
    ("large-dir", "-O large_dir", "tree htree5k", 4096),
    ("fast-commit", "-O fast_commit", "tree", 4096),
    ("small-groups", "-b 1024 -g 1024", "tree", 1024),
    ("data-csum", "-O data_csum,inline_data", "tree inline", 4096),
    ("data-csum-1k", "-b 1024 -O data_csum", "tree churn", 1024),
];

#[test]
fn built_images_hold_what_their_source_held() {
    require!(Root, Loop, E2fsprogs);
    let extant = Extant::get().expect("the extant command");
    run_cases(
        "built/tree",
        BUILDS,
        |row| row.0.to_owned(),
        |&(_, options, profiles, block_bytes)| {
            let scratch = Scratch::new();
            let (source, img) = (scratch.file("source"), scratch.file("built.img"));
            std::fs::create_dir(&source).map_err(|e| e.to_string())?;
            populate_for(&source, profiles, block_bytes as usize)?;
            let expected = Manifest::walk(&source)?;
            build(&extant, &source, &img, options)?;
            accepted(&img)?;
            extant.expect_clean(&img)?;
            let mut expected = expected;
            if options.contains("-I 128") {
                // Inodes of 128 bytes end with 2038.
                expected = expected.without_below("/times");
            }
            let look = Look { nanoseconds: !options.contains("-I 128"), ..Look::copy() };
            let shown = extant.manifest(&img)?;
            let shown = if look.nanoseconds { shown } else { shown.without_below("/times") };
            expected.diff(&shown, look).expect_same("source | extant")?;
            if block_bytes <= 4096 {
                let mount = LoopMount::ro(&img, "")?;
                let linux = Manifest::walk(mount.path())?;
                mount.unmount()?;
                let linux = if look.nanoseconds { linux } else { linux.without_below("/times") };
                expected.diff(&linux, look).expect_same("source | Linux")?;
                shown.diff(&linux, Look::all()).expect_same("extant | Linux")?;
            } else {
                dumped(&img, &expected, &scratch.file("dump"))?;
            }
            Ok(format!("{} entries", expected.entries.len()))
        },
    );
}

/// Runs `extant build`.
fn build(extant: &Extant, source: &Path, img: &Path, options: &str) -> Result<(), String> {
    let mut args: Vec<&OsStr> =
        vec!["build".as_ref(), source.as_ref(), "-o".as_ref(), img.as_ref()];
    args.extend(options.split_whitespace().map(OsStr::new));
    args.extend(["--free", "8M"].map(OsStr::new));
    extant.run(&args)?.success().map(drop)
}

/// e2fsck, dumpe2fs and debugfs report nothing.
fn accepted(img: &Path) -> Result<(), String> {
    let plain = img.with_extension("plain");
    let img = match has_data_csum(img) {
        true => {
            std::fs::copy(img, &plain).map_err(|e| e.to_string())?;
            clear_data_csum(&plain)?;
            &plain
        }
        false => img,
    };
    e2fsck(img, None).expect_clean()?;
    dumpe2fs(img)?;
    for request in ["stat <2>", "ls -l /", "stat /files/size_10000", "ex /files/size_300001"] {
        // `ex` is for files with extents only; its messages about others are ignored.
        match debugfs(img, request) {
            Err(error) if !request.starts_with("ex ") => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// debugfs copies everything out: the same names and content.
fn dumped(img: &Path, expected: &Manifest, out: &Path) -> Result<(), String> {
    std::fs::create_dir(out).map_err(|e| e.to_string())?;
    // It reports devices, which it does not create.
    let _ = debugfs(img, &format!("rdump /files /links /names /dirhole {}", out.display()));
    let found = Manifest::walk(out)?;
    let compared = found.entries.values().filter(|entry| entry.sha256.is_some());
    let mut count = 0;
    for entry in compared {
        count += 1;
        let source = expected.entries.get(&entry.path);
        if source.and_then(|e| e.sha256.as_ref()) != entry.sha256.as_ref() {
            return Err(format!("debugfs: {}: another content", entry.path));
        }
    }
    if count < 20 { Err(format!("debugfs copied out {count} files only")) } else { Ok(()) }
}

#[test]
fn a_build_gives_the_same_bytes_each_time() {
    require!(Root, E2fsprogs);
    let extant = Extant::get().expect("the extant command");
    let rows: Vec<_> =
        BUILDS.iter().filter(|row| ["default", "1k", "inline"].contains(&row.0)).collect();
    run_cases(
        "built/again",
        &rows,
        |row| row.0.to_owned(),
        |row| {
            let scratch = Scratch::new();
            let source = scratch.file("source");
            std::fs::create_dir(&source).map_err(|e| e.to_string())?;
            populate_for(&source, row.2, row.3 as usize)?;
            let (one, two) = (scratch.file("1.img"), scratch.file("2.img"));
            build(&extant, &source, &one, row.1)?;
            build(&extant, &source, &two, row.1)?;
            let (one, two) = (one.display().to_string(), two.display().to_string());
            run_args("cmp", &[&one, &two])?.success()?;
            Ok(String::new())
        },
    );
}

#[test]
fn older_linux_mounts_and_writes_what_was_built() {
    require!(Root, E2fsprogs, Uml);
    let extant = Extant::get().expect("the extant command");
    let kept = Scratch::new();
    let verdicts = std::sync::Mutex::new(Vec::new());
    // With checksums of data Linux mounts a volume read-only.
    let writable = |row: &&(_, &str, _, u32)| row.3 <= 4096 && !row.1.contains("data_csum");
    let rows: Vec<_> = BUILDS.iter().filter(writable).collect();
    let mut failures = try_cases(
        "built/uml",
        &rows,
        |row| row.0.to_owned(),
        |row| {
            let scratch = Scratch::new();
            let (source, img) = (scratch.file("source"), kept.file(row.0));
            std::fs::create_dir(&source).map_err(|e| e.to_string())?;
            populate_for(&source, "small special", row.3 as usize)?;
            build(&extant, &source, &img, row.1)?;
            let expected = extant.manifest(&img)?;
            let name = row.0.to_owned();
            let look = Look::all();
            let verdict =
                Verdict { name, img, journal: None, expected, look, recovered_by_linux: false };
            verdicts.lock().expect("no case panics with it").push(verdict);
            Ok(String::new())
        },
    );
    let guest = Scratch::new();
    let verdicts = verdicts.into_inner().expect("no case panics with it");
    failures.extend(linux_confirms("built/uml", &verdicts, guest.path()));
    expect_none("built/uml", &failures);
}

#[test]
fn linux_fills_what_mkfs_made() {
    require!(Root, Loop, E2fsprogs);
    let extant = Extant::get().expect("the extant command");
    // What mkfs may leave to mke2fs: history, lists of bad blocks, journals on other devices.
    let not_ours = ["rev0", "bad-blocks", "external-journal", "htree-", "large-dir"];
    let takes = |case: &&CleanCase| {
        case.maker == Maker::Host && !not_ours.iter().any(|word| case.name.contains(word))
    };
    let cases: Vec<&CleanCase> = clean_cases().iter().filter(takes).collect();
    run_cases(
        "built/mkfs",
        &cases,
        |case| case.name.to_owned(),
        |case| {
            let scratch = Scratch::new();
            let img = scratch.file("mkfs.img");
            let size = format!("{}M", case.mib);
            let mut args: Vec<&OsStr> =
                vec!["mkfs".as_ref(), img.as_ref(), "--size".as_ref(), size.as_ref()];
            let options = both_know(case.mkfs);
            args.extend(options.split_whitespace().map(OsStr::new));
            extant.run(&args)?.success()?;
            e2fsck(&img, None).expect_clean()?;
            let twin = scratch.file("twin.img");
            mke2fs(&twin, case.mib << 20, &options, None)?;
            same_shape(&dumpe2fs(&twin)?, &dumpe2fs(&img)?)?;
            let mount = LoopMount::rw(&img, case.mount)?;
            populate(mount.path(), case.profiles)?;
            mount.unmount()?;
            e2fsck(&img, None).expect_clean()?;
            extant.expect_clean(&img)?;
            let mount = LoopMount::ro(&img, "")?;
            let linux = Manifest::walk(mount.path())?;
            mount.unmount()?;
            if case.profiles.contains("encrypt") {
                return Ok("filled".into());
            }
            let shown = extant.manifest(&img)?;
            linux.diff(&shown, Look::all()).expect_same("Linux | extant")?;
            Ok(format!("{} entries", linux.entries.len()))
        },
    );
}

/// The options without those that only mke2fs has.
fn both_know(options: &str) -> String {
    let mut words = options.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-E" | "-M" => drop(words.next()),
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// Both headers that dumpe2fs prints are equal, except for what randomness, time and place
/// determine.
fn same_shape(theirs: &str, ours: &str) -> Result<(), String> {
    const OF_CHANCE: &[&str] = &[
        "Filesystem UUID",
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Next check after",
        "Directory Hash Seed",
        "Checksum",
        "Journal checksum",
        "Lifetime writes",
        "Free blocks",
        "Overhead clusters",
        "Checksum seed",
        "Journal start",
        "Journal sequence",
        "mmp_",
    ];
    let header = |text: &str| {
        let lines = text.split("\nGroup 0:").next().unwrap_or_default().lines();
        let fields = lines.filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        let fields = fields.filter(|(name, _)| !OF_CHANCE.iter().any(|c| name.starts_with(c)));
        let mut fields = fields.collect::<std::collections::BTreeMap<String, String>>();
        // extant reserves more space for fast commits; the log before it has the same length.
        if let Some(fast) = fields.remove("Fast commit length").and_then(|n| n.parse::<u64>().ok())
        {
            let total = fields.remove("Total journal blocks").and_then(|n| n.parse::<u64>().ok());
            fields.insert("Log".into(), format!("{:?}", total.map(|total| total - fast)));
            fields.remove("Total journal size");
        }
        fields
    };
    let (theirs, ours) = (header(theirs), header(ours));
    let mut differ = Vec::new();
    for name in theirs.keys().chain(ours.keys()).collect::<std::collections::BTreeSet<_>>() {
        let show = |value: Option<&String>| value.map_or("-", String::as_str).to_owned();
        let (their, our) = (show(theirs.get(name)), show(ours.get(name)));
        if their != our {
            differ.push(format!("{name}: {their} | {our}"));
        }
    }
    match differ.is_empty() {
        true => Ok(()),
        false => Err(format!("mke2fs | extant mkfs:\n      {}", differ.join("\n      "))),
    }
}
