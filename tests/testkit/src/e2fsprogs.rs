//! mke2fs, e2fsck, debugfs, dumpe2fs: e2fsprogs, called as a user calls it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::command::{Finished, run};
use crate::scratch::{Scratch, copy_sparse, make_sparse};

const LIMIT: Duration = Duration::from_secs(180);

/// The result of `e2fsck -fn`.
#[derive(Debug)]
pub struct FsckReport {
    /// Exit status: 0 clean, 4 errors left, 8 could not run, 12 both; -1 ended by a signal or time.
    pub exit: i32,
    /// Its whole output.
    pub text: String,
}

impl FsckReport {
    /// e2fsck found nothing.
    pub fn clean(&self) -> bool {
        self.exit == 0
    }

    /// `Ok` when clean; else the first findings.
    pub fn expect_clean(&self) -> Result<(), String> {
        if self.clean() {
            return Ok(());
        }
        let lines: Vec<&str> =
            self.text.lines().map(str::trim).filter(|l| !l.is_empty() && !is_progress(l)).collect();
        Err(format!("e2fsck -fn: exit {}: {}", self.exit, lines[..lines.len().min(4)].join(" | ")))
    }
}

fn is_progress(line: &str) -> bool {
    line.starts_with("Pass ") || line.starts_with("e2fsck 1.")
}

/// Runs `e2fsck -fn` on `img`. `journal` is the image of the external journal, if there is one.
///
/// e2fsck checks the volume as it is, so recover its journal first. e2fsck refuses a volume with
/// extant's own feature `data_csum`; it gets a copy with that bit cleared.
pub fn e2fsck(img: &Path, journal: Option<&Path>) -> FsckReport {
    if has_data_csum(img) {
        let scratch = Scratch::new();
        let copy = scratch.file("without-sums.img");
        return match copy_sparse(img, &copy).and_then(|()| clear_data_csum(&copy)) {
            Ok(()) => e2fsck(&copy, journal),
            Err(text) => FsckReport { exit: -1, text },
        };
    }
    let mut command = Command::new("e2fsck");
    command.arg("-fn");
    if let Some(journal) = journal {
        command.arg("-j").arg(journal);
    }
    match run(command.arg(img).env("E2FSPROGS_FAKE_TIME", ""), LIMIT) {
        Ok(done) => FsckReport {
            exit: done.code().filter(|_| !done.timed_out).unwrap_or(-1),
            text: done.out() + &done.err(),
        },
        Err(text) => FsckReport { exit: -1, text },
    }
}

/// The offset of the superblock's read-only compatible features.
const RO_COMPAT: usize = 0x64;

/// Clears extant's own feature `data_csum` in the superblock of `img`, so that e2fsck knows all its
/// features. The image may not be used as an extant volume afterwards. An image without that
/// feature is not changed.
pub fn clear_data_csum(img: &Path) -> Result<(), String> {
    let with_path = |error: std::io::Error| format!("{}: {error}", img.display());
    if !has_data_csum(img) {
        return Ok(());
    }
    let file = std::fs::File::options().read(true).write(true).open(img).map_err(with_path)?;
    let mut sb = [0; 1024];
    file.read_exact_at(&mut sb, 1024).map_err(with_path)?;
    sb[RO_COMPAT + 3] &= !0x40;
    let sum = crc32c(&sb[..1020]).to_le_bytes();
    sb[1020..].copy_from_slice(&sum);
    file.write_all_at(&sb, 1024).map_err(with_path)
}

/// Whether a volume has extant's own feature `data_csum`, with which Linux mounts it read-only.
pub fn has_data_csum(img: &Path) -> bool {
    bytes_at(img, 1024 + RO_COMPAT as u64 + 3).is_some_and(|[byte]| byte & 0x40 != 0)
}

/// Whether an image is one of several members of a volume. A program that writes to one member
/// alone makes it differ from the others.
pub fn is_member(img: &Path) -> bool {
    bytes_at(img, 512).is_some_and(|magic| magic == *b"extantMB")
}

fn bytes_at<const N: usize>(img: &Path, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open(img).and_then(|file| file.read_exact_at(&mut bytes, at)).ok()?;
    Some(bytes)
}

/// CRC32C as ext4 uses it, bit by bit: a judge uses no code of what it judges.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ 0x82F6_3B78,
        })
    })
}

/// Runs one debugfs command on `img`, read-only. `Err` if it failed or wrote to standard error:
/// debugfs always exits with 0 and reports errors there.
pub fn debugfs(img: &Path, request: &str) -> Result<String, String> {
    let done = run(Command::new("debugfs").args(["-R", request]).arg(img), LIMIT)?.success()?;
    let complaints: Vec<String> = done
        .err()
        .lines()
        .filter(|l| !l.starts_with("debugfs 1.") && !l.trim().is_empty())
        .map(str::to_owned)
        .collect();
    if complaints.is_empty() {
        Ok(done.out())
    } else {
        Err(format!("debugfs -R '{request}': {}", complaints.join(" | ")))
    }
}

/// Runs one debugfs command on `img` that changes it.
pub fn debugfs_write(img: &Path, request: &str) -> Result<(), String> {
    run(Command::new("debugfs").args(["-w", "-R", request]).arg(img), LIMIT)?.success().map(drop)
}

/// Runs `dumpe2fs` on `img`: superblock and groups as text.
pub fn dumpe2fs(img: &Path) -> Result<String, String> {
    let done = run(Command::new("dumpe2fs").arg(img), LIMIT)?.success()?;
    Ok(done.out())
}

/// Runs `dumpe2fs -h` on `img`: the superblock as text. Unlike [`dumpe2fs`] it reads no bitmaps.
/// After a crash these do not match their checksums while the journal holds newer copies.
pub fn dumpe2fs_superblock(img: &Path) -> Result<String, String> {
    let done = run(Command::new("dumpe2fs").arg("-h").arg(img), LIMIT)?.success()?;
    Ok(done.out())
}

/// Makes a volume of `bytes` at `img` with `options` (split at spaces, `-t ext4` unless they name a
/// type), and fills it from `from` if given. `-E hash_alg=X` goes to tune2fs, because mke2fs does
/// not know it.
pub fn mke2fs(img: &Path, bytes: u64, options: &str, from: Option<&Path>) -> Result<(), String> {
    make_sparse(img, bytes)?;
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F"]);
    if !options.contains("-t ") {
        command.args(["-t", "ext4"]);
    }
    let mut hash_alg = None;
    let words: Vec<&str> = options.split_whitespace().collect();
    let mut at = 0;
    while at < words.len() {
        if words[at] == "-E" && words.get(at + 1).is_some_and(|w| w.starts_with("hash_alg=")) {
            hash_alg = Some(words[at + 1]);
            at += 2;
            continue;
        }
        command.arg(words[at]);
        at += 1;
    }
    if let Some(from) = from {
        command.arg("-d").arg(from);
    }
    run(command.arg(img), LIMIT)?.success()?;
    if let Some(option) = hash_alg {
        tune2fs(img, &["-E", option])?;
    }
    Ok(())
}

/// Runs `tune2fs` on `img`.
pub fn tune2fs(img: &Path, args: &[&str]) -> Result<Finished, String> {
    run(Command::new("tune2fs").args(args).arg(img), LIMIT)?.success()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_new_volume_is_clean_and_a_scratched_one_is_not() {
        crate::require!(E2fsprogs);
        let scratch = Scratch::new();
        let img = scratch.file("a.img");
        mke2fs(&img, 8 << 20, "-b 1024 -E hash_alg=tea", None).unwrap();
        assert!(e2fsck(&img, None).clean());
        assert!(dumpe2fs(&img).unwrap().contains("Default directory hash:   tea"));
        assert!(debugfs(&img, "stat <2>").unwrap().contains("Type: directory"));
        assert!(debugfs(&img, "stat /nothing").is_err());

        // Now group 0's block bitmap is wrong and does not match its checksum.
        let text = dumpe2fs(&img).unwrap();
        let bitmap = text.split("Block bitmap at ").nth(1).unwrap();
        let block: u64 = bitmap.split([' ', ',', '\n']).next().unwrap().parse().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&img).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 64], block * 1024).unwrap();
        let report = e2fsck(&img, None);
        assert_ne!(report.exit & 4, 0);
        assert!(report.expect_clean().unwrap_err().starts_with("e2fsck -fn: exit"));
    }
}
