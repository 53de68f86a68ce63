//! Work that changes a volume in every way the engine supports, the same each time for one seed.
//!
//! ```text
//!   acts:  tree │ crowd │ content │ ranges │ attributes │ links │ renames │ strangers │ removals
//!               sync here, or cut here: a caller decides between two acts
//! ```
//!
//! It works in `/busy`, and on files that were in the volume before (act `strangers`). An operation
//! that a volume refuses (an encrypted directory, a file that may not change, a link too many) is
//! skipped; any other error is returned.

use extant::{
    DeviceNumber, Error, FallocateMode, File, FileKind, Filesystem, InodeFlags, NewFile, Node,
    RenameFlags, SetAttributes, Timestamp, XattrMode,
};
use extant_testkit::rng::{Rng, bytes};
use std::path::Path;

/// The time of everything that is created; later changes have another time.
const THEN: Timestamp = Timestamp { sec: 1_600_000_000, nsec: 123_456_789 };
/// Files in one directory: enough for an index with blocks of 4 KiB.
const CROWD: usize = 240;
/// Sizes of the files of act `content`: inline, around a block, many blocks, all sizes of map.
const SIZES: [usize; 12] =
    [0, 1, 60, 100, 700, 1024, 4095, 4097, 20_000, 70_000, 300_000, 1_200_000];

/// The work, and the files that it holds open.
pub struct Busy {
    fs: Filesystem,
    rng: Rng,
    held: Vec<Node>,
}

type Act = fn(&mut Busy) -> extant::Result<()>;

/// All acts in their order, with names for messages.
pub const ACTS: &[(&str, Act)] = &[
    ("tree", Busy::tree),
    ("crowd", Busy::crowd),
    ("content", Busy::content),
    ("ranges", Busy::ranges),
    ("attributes", Busy::attributes),
    ("links", Busy::links),
    ("renames", Busy::renames),
    ("strangers", Busy::strangers),
    ("removals", Busy::removals),
];

impl Busy {
    /// Before the first act.
    pub fn new(fs: &Filesystem, seed: u64) -> Busy {
        Busy { fs: fs.clone(), rng: Rng::new(seed), held: Vec::new() }
    }

    /// All acts, one after the other.
    pub fn all(&mut self) -> Result<(), String> {
        ACTS.iter().try_for_each(|act| self.act(act))
    }

    /// One act.
    pub fn act(&mut self, (name, act): &(&str, Act)) -> Result<(), String> {
        act(self).map_err(|error| format!("{name}: {error}"))
    }

    fn new_file(&mut self, mode: u16) -> NewFile {
        let uid = self.rng.below(3) as u32 * 1000;
        NewFile { mode, uid, gid: uid + 7, time: Some(THEN), ..NewFile::default() }
    }

    fn tree(&mut self) -> extant::Result<()> {
        for dir in ["/busy/a/b/c", "/busy/d", "/busy/e"] {
            let new = self.new_file(0o755);
            self.fs.create_dir_all(dir, &new)?;
        }
        for n in 0..24 {
            let dir = ["/busy", "/busy/a", "/busy/a/b/c", "/busy/d"][n % 4];
            let new = self.new_file(0o640);
            self.fs.create_file(format!("{dir}/file{n}"), &new)?;
        }
        Ok(())
    }

    fn crowd(&mut self) -> extant::Result<()> {
        let new = self.new_file(0o755);
        self.fs.create_dir("/busy/crowd", &new)?;
        let crowd = self.fs.node("/busy/crowd")?;
        let name = |n: usize| format!("{n:03}-{}", "long-name-".repeat(1 + n % 12));
        for n in 0..CROWD {
            let new = self.new_file(0o600);
            crowd.create_file(name(n), &new)?;
        }
        for n in (0..CROWD).step_by(3) {
            crowd.remove_file(name(n))?;
        }
        Ok(())
    }

    fn make(&mut self, path: &str, content: &[u8]) -> extant::Result<File> {
        let new = self.new_file(0o644);
        let file = self.fs.create_file(path, &new)?.open()?;
        file.write_all_at(content, 0)?;
        Ok(file)
    }

    /// Files of all sizes; then each grows, shrinks, is overwritten, or gets a hole.
    fn content(&mut self) -> extant::Result<()> {
        for (n, size) in SIZES.into_iter().enumerate() {
            let file = self.make(&format!("/busy/d/size{size}"), &bytes(n as u64, size))?;
            match n % 4 {
                0 => file.append(&bytes(90, 9_000)).map(drop)?,
                1 => file.set_len(size as u64 / 2)?,
                2 => file.write_all_at(&bytes(91, 5_000), size as u64 / 3)?,
                _ => file.write_all_at(b"behind a hole", size as u64 + 3_000_000)?,
            }
        }
        // Content that looks like a block of a journal, for journals that contain data.
        let magic = [0xC0, 0x3B, 0x39, 0x98].repeat(3000);
        self.make("/busy/d/magic", &magic).map(drop)
    }

    /// Ranges allocated, freed, zeroed and moved.
    fn ranges(&mut self) -> extant::Result<()> {
        let modes = [
            FallocateMode::Allocate,
            FallocateMode::KeepSize,
            FallocateMode::ZeroRange,
            FallocateMode::ZeroRangeKeepSize,
            FallocateMode::PunchHole,
            FallocateMode::Collapse,
            FallocateMode::Insert,
        ];
        // A multiple of every block and cluster.
        let unit = 64 << 10;
        for (n, mode) in modes.into_iter().enumerate() {
            let file = self.make(&format!("/busy/a/range{n}"), &bytes(n as u64, 5 * unit + 17))?;
            let (offset, len) = (unit as u64, 2 * unit as u64);
            match file.allocate(mode, offset, len) {
                Ok(()) | Err(Error::NotSupported(_)) => {}
                Err(error) => return Err(error),
            }
            file.write_all_at(b"in the midst of it", offset + 100)?;
        }
        Ok(())
    }

    fn attributes(&mut self) -> extant::Result<()> {
        let path = |n: usize| format!("/busy/d/size{}", SIZES[n]);
        for n in 0..SIZES.len() {
            let wish = SetAttributes {
                mode: Some([0o600, 0o4755, 0o2711, 0o000][n % 4]),
                uid: Some(n as u32 * 30_000),
                gid: (n % 2 == 0).then_some(70_000),
                modified: Some(Timestamp { sec: -5, nsec: 999_999_999 }),
                accessed: Some(Timestamp { sec: (1 << 31) + n as i64, nsec: 1 }),
                ..SetAttributes::default()
            };
            // Inodes of 128 bytes cannot express times before 1901 or after 2038.
            self.fs.set_attributes(path(n), &wish)?;
            for (name, len) in [("user.small", 20), ("user.large", 400), ("trusted.more", 90)] {
                let value = bytes(n as u64, len + n);
                self.fs.set_xattr(path(n), name, &value, XattrMode::Any)?;
            }
        }
        self.fs.remove_xattr(path(0), "user.small")?;
        self.fs.set_xattr(path(1), "user.large", b"less", XattrMode::Replace)?;
        let flags = self.fs.metadata("/busy/d")?.flags() | InodeFlags::NODUMP | InodeFlags::NOATIME;
        let noted = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
        self.fs.set_attributes("/busy/d", &noted)
    }

    fn links(&mut self) -> extant::Result<()> {
        let new = self.new_file(0o644);
        for (n, len) in [1, 59, 60, 300, 900].into_iter().enumerate() {
            self.fs.symlink("t".repeat(len), format!("/busy/e/symlink{n}"), &new)?;
        }
        for n in 0..8 {
            self.fs.hard_link("/busy/file0", format!("/busy/e/hard{n}"))?;
        }
        self.fs.mknod("/busy/e/pipe", FileKind::Fifo, &new)?;
        self.fs.mknod("/busy/e/socket", FileKind::Socket, &new)?;
        let device = NewFile { device: Some(DeviceNumber { major: 300, minor: 70_000 }), ..new };
        self.fs.mknod("/busy/e/device", FileKind::CharDevice, &device).map(drop)
    }

    fn renames(&mut self) -> extant::Result<()> {
        self.fs.rename("/busy/file4", "/busy/renamed")?;
        self.fs.rename("/busy/file8", "/busy/file12")?;
        self.fs.rename("/busy/a/b", "/busy/d/b")?;
        self.fs.rename_with("/busy/file16", "/busy/crowd/exchanged", RenameFlags::NOREPLACE)?;
        self.fs.rename_with("/busy/e", "/busy/crowd", RenameFlags::EXCHANGE)
    }

    /// Work on files that were there before: every seventh gets a second or a new name, other
    /// content or another size, or loses its name.
    fn strangers(&mut self) -> extant::Result<()> {
        let mut files = Vec::new();
        for entry in self.fs.walk("/").sorted(true) {
            let entry = entry?;
            let path = entry.path().to_path_buf();
            if entry.metadata()?.file_type() == FileKind::Regular && !path.starts_with("/busy") {
                files.push(path);
            }
        }
        for (n, path) in files.iter().step_by(7).take(60).enumerate() {
            let new = format!("/busy/d/stranger{n}");
            passed_over(match n % 5 {
                0 => self.fs.hard_link(path, new),
                1 => self.fs.rename(path, new),
                2 => self.fs.remove_file(path),
                3 => self.append_to(path),
                _ => self.halve(path),
            })?;
        }
        Ok(())
    }

    fn append_to(&self, path: &Path) -> extant::Result<()> {
        let file = self.fs.open_file(path)?;
        file.append(&bytes(17, 12_345))?;
        file.sync_all()
    }

    fn halve(&self, path: &Path) -> extant::Result<()> {
        let file = self.fs.open_file(path)?;
        file.set_len(file.metadata().len() / 2)
    }

    /// Names are removed. Some of the files are still open, so they have content and no name.
    fn removals(&mut self) -> extant::Result<()> {
        for path in ["/busy/a/file1", "/busy/file12", "/busy/d/size1200000"] {
            self.held.push(self.fs.node(path)?);
            self.fs.remove_file(path)?;
        }
        self.held.push(self.fs.root()?.tmpfile(&NewFile::default())?);
        self.fs.remove_dir_all("/busy/crowd")?;
        self.fs.create_dir("/busy/crowd", &NewFile::directory())?;
        self.fs.remove_dir("/busy/crowd")
    }
}

fn passed_over(result: extant::Result<()>) -> extant::Result<()> {
    match result {
        Err(Error::Encrypted | Error::NotPermitted | Error::LinkLimit | Error::FileTooLarge) => {
            Ok(())
        }
        result => result,
    }
}
