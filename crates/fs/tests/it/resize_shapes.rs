//! What a change of size leaves besides the content: flags of groups, reserved descriptor blocks,
//! counters. extant's own check, which examines some things that e2fsck does not, finds nothing
//! either.

use extant::check::{self, Options};
use extant::resize::{Size, minimum, resize};
use extant::{FileOptions, Filesystem};
use extant_testkit::e2fsprogs::{debugfs, debugfs_write, dumpe2fs, e2fsck, mke2fs};
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Both checkers find nothing. Returns the output of dumpe2fs.
fn checked(img: &Path) -> Result<String, String> {
    e2fsck(img, None).expect_clean()?;
    let device = FileOptions::new().open(img).map_err(|e| e.to_string())?;
    let report = check::check_device(Arc::new(device), &Options::default(), &());
    match report.map_err(|e| e.to_string())?.findings.first() {
        Some(finding) => Err(finding.to_string()),
        None => dumpe2fs(img),
    }
}

/// The value of a field of the superblock, as a number.
fn field(said: &str, name: &str) -> Result<u64, String> {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok()).ok_or(format!("no {name} in {said}"))
}

#[test]
fn the_last_group_has_its_bitmap_where_the_volume_ends_between_two() {
    require!(E2fsprogs);
    let rows = [
        "-b 1024",
        "-b 1024 -g 1024",
        "-b 1024 -O ^flex_bg",
        "-b 1024 -O ^metadata_csum,uninit_bg",
        "-b 1024 -O ^64bit,meta_bg,^resize_inode",
        "-b 1024 -O sparse_super2,^resize_inode",
    ];
    run_cases(
        "resize/last-group",
        &rows,
        |row| (*row).to_owned(),
        |options| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            mke2fs(&img, 100 * MIB, options, None)?;
            let said = dumpe2fs(&img)?;
            let (first, per_group) =
                (field(&said, "First block")?, field(&said, "Blocks per group")?);
            let groups = (field(&said, "Block count")? - first).div_ceil(per_group);
            // Fewer groups than mke2fs made, new ones, and fewer of those.
            for count in [groups - 1, groups - 2, groups + 40, groups + 35, groups + 1] {
                let blocks = first + count * per_group;
                let done = resize(&img, Size::Blocks(blocks), &());
                let done = done.map_err(|e| format!("{count} groups: {e}"))?;
                let said = checked(&img).map_err(|e| format!("{count} groups: {e}"))?;
                let last = said.lines().rfind(|line| line.starts_with("Group ")).unwrap_or("");
                if done.to_blocks != blocks || last.contains("BLOCK_UNINIT") {
                    return Err(format!("{count} groups: {done:?}, {last}"));
                }
            }
            Ok(String::new())
        },
    );
}

#[test]
fn the_reserved_descriptor_blocks_are_recorded_as_before() {
    require!(E2fsprogs);
    let rows = [
        "-b 1024",
        "-b 4096 -g 2048",
        "-b 1024 -O bigalloc -C 2048",
        "-b 1024 -O bigalloc -C 4096",
        "-b 1024 -O bigalloc,^flex_bg -C 8192 -g 2048",
        "-b 2048 -O bigalloc -C 4096 -g 16384",
    ];
    run_cases(
        "resize/reserve",
        &rows,
        |row| (*row).to_owned(),
        |options| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            mke2fs(&img, 100 * MIB, options, None)?;
            for bytes in [103 * MIB, 700 * MIB, 2000 * MIB, 90 * MIB] {
                resize(&img, Size::Bytes(bytes), &()).map_err(|e| format!("{bytes}: {e}"))?;
                checked(&img).map_err(|e| format!("{bytes}: {e}"))?;
            }
            Ok(String::new())
        },
    );
}

#[test]
fn a_refused_change_of_size_leaves_the_volume_as_it_was() {
    require!(E2fsprogs);
    // Damage, by debugfs or to a bitmap, and the sizes that are refused because of it.
    let (bitmap, descriptor) = ("", "set_bg 3 checksum 0x1234");
    let reserve = "sif <7> block[DIND] 9000000";
    let rows: &[(&str, &str, &str, u64)] = &[
        ("shrink", "-b 1024", bitmap, 20),
        ("shrink-meta-bg", "-b 1024 -g 1024 -O meta_bg,^resize_inode", bitmap, 20),
        ("shrink-no-journal", "-b 1024 -O ^has_journal", bitmap, 20),
        ("shrink-descriptor", "-b 1024", descriptor, 20),
        ("grow-descriptor", "-b 1024", descriptor, 200),
        ("grow-no-journal", "-b 1024 -O ^has_journal", descriptor, 200),
        ("grow-resize-inode", "-b 1024", reserve, 200),
        ("grow-bitmap", "-b 4096", bitmap, 200),
    ];
    run_cases(
        "resize/refused",
        rows,
        |row| row.0.to_owned(),
        |&(_, options, request, mib)| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            mke2fs(&img, 64 * MIB, options, None)?;
            match request {
                "" => spoil_bitmap(&img)?,
                request => debugfs_write(&img, request)?,
            }
            let before = superblock(&img)?;
            match resize(&img, Size::Bytes(mib * MIB), &()) {
                Ok(done) => return Err(format!("was done: {done:?}")),
                Err(error) => println!("{error}"),
            }
            let after = superblock(&img)?;
            let len = std::fs::metadata(&img).map_err(|e| e.to_string())?.len();
            if before != after || len != 64 * MIB {
                return Err(format!("{len} bytes, {before:?} became {after:?}"));
            }
            Ok(String::new())
        },
    );
}

/// Damages the first group's block bitmap.
fn spoil_bitmap(img: &Path) -> Result<(), String> {
    let said = dumpe2fs(img)?;
    let block =
        said.split("Block bitmap at ").nth(1).and_then(|text| text.split([' ', ',']).next());
    let block: u64 = block.and_then(|block| block.parse().ok()).ok_or("no bitmap")?;
    let at = block * field(&said, "Block size")?;
    let file = std::fs::File::options().write(true).open(img).map_err(|e| e.to_string())?;
    let done = std::os::unix::fs::FileExt::write_all_at(&file, &[0x5A; 64], at);
    done.map_err(|e| e.to_string())
}

/// The fields of a superblock that would reveal a change.
fn superblock(img: &Path) -> Result<(u64, extant_ondisk::features::Features, u16), String> {
    let device = FileOptions::new().open(img).map_err(|e| e.to_string())?;
    let mut bytes = [0; 1024];
    extant::BlockDevice::read_at(&device, extant_base::ByteOffset(1024), &mut bytes)
        .map_err(|e| e.to_string())?;
    let raw = zerocopy::FromBytes::read_from_bytes(&bytes[..]).map_err(|_| "short".to_owned())?;
    let raw: extant_ondisk::superblock::RawSuperblock = raw;
    let sb = raw.parse(extant::Site::NOWHERE).map_err(|e| e.to_string())?;
    Ok((sb.blocks_count, sb.features, sb.state.bits()))
}

#[test]
fn an_empty_volume_shrinks_with_any_cluster_size() {
    require!(E2fsprogs);
    let rows = [
        "-b 1024",
        "-b 1024 -g 2048",
        "-b 1024 -O bigalloc -C 4096",
        "-b 1024 -O ^64bit,bigalloc -C 8192",
        "-b 1024 -O bigalloc,^resize_inode -C 65536",
        "-b 4096 -O bigalloc -C 65536",
    ];
    run_cases(
        "resize/empty",
        &rows,
        |row| (*row).to_owned(),
        |options| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            mke2fs(&img, 100 * MIB, options, None)?;
            let mut text = String::new();
            for mib in [0, 300, 900, 1400] {
                let size = Size::Bytes(mib * MIB);
                if mib > 0 {
                    resize(&img, size, &()).map_err(|e| format!("{mib}: {e}"))?;
                }
                let reported = Filesystem::open(&img).and_then(|fs| minimum(&fs));
                let reported = reported.map_err(|e| e.to_string())?;
                let back = resize(&img, Size::Bytes(100 * MIB), &());
                back.map_err(|e| format!("back from {mib}: {e}"))?;
                checked(&img)?;
                text += &format!(" {reported}");
            }
            let done = resize(&img, Size::Minimum, &()).map_err(|e| e.to_string())?;
            checked(&img)?;
            let bytes = done.to_blocks * done.block_bytes as u64;
            // A journal, one group's tables, reserved descriptor blocks.
            match bytes < 30 * MIB {
                true => Ok(format!("{text}, and {bytes} bytes")),
                false => Err(format!("{bytes} bytes, reported were {text}")),
            }
        },
    );
}

#[test]
fn a_moved_orphan_file_gets_new_checksums() {
    require!(E2fsprogs);
    let rows = [
        "-b 1024 -O orphan_file,^64bit,^extent",
        "-b 1024 -O orphan_file,^64bit,^extent,^metadata_csum",
        "-b 1024 -O orphan_file",
    ];
    run_cases(
        "resize/orphan-file",
        &rows,
        |row| (*row).to_owned(),
        |options| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            mke2fs(&img, 100 * MIB, options, None)?;
            // The volume is to end inside it.
            let blocks = || debugfs(&img, "blocks <12>");
            let first: u64 =
                blocks()?.split(' ').next().and_then(|n| n.parse().ok()).ok_or("no orphan file")?;
            let before = blocks()?;
            resize(&img, Size::Blocks(first + 9), &()).map_err(|e| e.to_string())?;
            checked(&img)?;
            match blocks()? == before {
                true => Err("it stayed".into()),
                false => Ok(String::new()),
            }
        },
    );
}
