//! Programs that write and log what they did, and the check of what a crash left of it.
//!
//! ```text
//!   work: "t FILE N" ─► change ─► fsync, sometimes ─► "s FILE N"     the log is outside the volume
//!                           │
//!                         crash ─► judge: each file is at some N from the last "s" to the last "t"
//! ```
//!
//! Kinds of file, each written by one writer: `grow` is appended to; `swap` is replaced by a rename
//! over it, sometimes without a sync; `name` is created and removed; `page` is overwritten in place
//! as databases do it, with the old pages in a file beside it until the new ones are durable. In
//! between come truncations, links, and names in a directory that all writers share.

use extant_testkit::rng::{Rng, bytes};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writers that share a volume.
pub const WRITERS: usize = 4;
/// Files of each kind that one writer has.
const FILES: usize = 5;
const KINDS: [&str; 4] = ["grow", "swap", "name", "page"];

/// The directory of writer `n` below the volume's root `root`.
pub fn dir_of(root: &Path, n: usize) -> PathBuf {
    root.join(format!("w{n}"))
}

/// The log of writer `n` in the directory `logs`.
pub fn log_of(logs: &Path, n: usize) -> PathBuf {
    logs.join(format!("w{n}.log"))
}

/// Makes the writers' directories on a volume mounted at `root`, durably, and their empty logs in
/// `logs`.
pub fn prepare(root: &Path, logs: &Path) -> io::Result<()> {
    fs::create_dir(root.join("shared"))?;
    for n in 0..WRITERS {
        fs::create_dir(dir_of(root, n))?;
        fs::write(log_of(logs, n), "")?;
    }
    File::open(root)?.sync_all()
}

/// Works in `dir` and logs to `log`, by the random numbers of `seed`, until the mount is gone.
pub fn work(dir: PathBuf, log: &Path, seed: u64) {
    let numbers =
        KINDS.map(|kind| std::array::from_fn(|n| Log::known(log, &format!("{kind}{n}")).synced));
    let log = Log(OpenOptions::new().append(true).open(log).expect("the log is there"));
    let mut writer = Writer { dir, log, rng: Rng::new(seed), numbers };
    loop {
        if let Err(error) = writer.step() {
            let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO];
            let gone = gone.map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error());
            // The dead mount is unmounted while this writer is at work.
            assert!(gone || !writer.dir.exists(), "{error}");
            return;
        }
    }
}

/// Steps tried and steps synced since the last [`judge`], according to the log at `log`.
pub fn progress(log: &Path) -> (usize, usize) {
    let log = fs::read_to_string(log).unwrap_or_default();
    let since: Vec<&str> = log.lines().skip_while(|line| line.starts_with('s')).collect();
    let count = |what| since.iter().filter(|line| line.starts_with(what)).count();
    (count('t'), count('s'))
}

/// The allowed states of a file: the numbers from `synced` to `tried`, which only grow. A file's
/// number is its length (`grow`), the version of its content (`swap`, `page`), or odd if it exists
/// (`name`).
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    synced: u64,
    tried: u64,
}

/// The log of one writer: a line is `t FILE NUMBER` before, and `s FILE NUMBER` after.
struct Log(File);

impl Log {
    fn line(&mut self, what: char, file: &str, number: u64) {
        // One call: if the machine stops meanwhile, the whole line is there or nothing.
        let line = format!("{what} {file} {number}\n");
        self.0.write_all(line.as_bytes()).expect("the log takes lines");
    }

    /// What the log of `writer` contains about `file`.
    fn known(path: &Path, file: &str) -> Known {
        let mut known = Known::default();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["t", of, number] if of == file => known.tried = number.parse().unwrap(),
                ["s", of, number] if of == file => known.synced = number.parse().unwrap(),
                _ => {}
            }
        }
        known.tried = known.tried.max(known.synced);
        known
    }
}

/// One writer: a process of its own, so that its calls end with it.
struct Writer {
    dir: PathBuf,
    log: Log,
    rng: Rng,
    numbers: [[u64; FILES]; KINDS.len()],
}

impl Writer {
    fn step(&mut self) -> io::Result<()> {
        let n = self.rng.below(FILES);
        match self.rng.below(15) {
            0..=3 => self.grow(n),
            4..=6 => self.swap(n),
            7..=9 => self.come_or_go(n),
            10..=12 => self.change_pages(n),
            13 => self.scribble(),
            _ => self.shared(n),
        }
    }

    fn next(&mut self, kind: usize, n: usize, more: u64) -> (String, u64, u64) {
        let name = format!("{}{n}", KINDS[kind]);
        let old = self.numbers[kind][n];
        self.numbers[kind][n] = old + more;
        self.log.line('t', &name, old + more);
        (name, old, old + more)
    }

    fn grow(&mut self, n: usize) -> io::Result<()> {
        let more = [1, 100, 5000, 70_000][self.rng.below(4)] + self.rng.below(50);
        let (name, old, new) = self.next(0, n, more as u64);
        let file = OpenOptions::new().append(true).create(true).open(self.dir.join(&name))?;
        (&file).write_all(&growing(&name, old, new))?;
        match self.rng.below(4) {
            0 => file.sync_all()?,
            1 => file.sync_data()?,
            _ => return Ok(()),
        }
        // A new name needs a sync of the directory.
        File::open(&self.dir)?.sync_all()?;
        self.log.line('s', &name, new);
        Ok(())
    }

    fn swap(&mut self, n: usize) -> io::Result<()> {
        let (name, _, new) = self.next(1, n, 1);
        let partial = self.dir.join(format!("{name}.partial"));
        let file = File::create(&partial)?;
        (&file).write_all(&version(&name, new))?;
        let synced = self.rng.below(3) > 0;
        if synced {
            file.sync_all()?;
        }
        drop(file);
        fs::rename(partial, self.dir.join(&name))?;
        if synced {
            File::open(&self.dir)?.sync_all()?;
            self.log.line('s', &name, new);
        }
        Ok(())
    }

    fn come_or_go(&mut self, n: usize) -> io::Result<()> {
        let (name, _, new) = self.next(2, n, 1);
        let path = self.dir.join(&name);
        match (new % 2 == 1, n % 3) {
            (true, 0) => drop(File::create_new(path)?),
            (true, 1) => fs::create_dir(path)?,
            (true, _) => std::os::unix::fs::symlink(&name, path)?,
            (false, 1) => fs::remove_dir(path)?,
            (false, _) => fs::remove_file(path)?,
        }
        if self.rng.below(3) == 0 {
            File::open(&self.dir)?.sync_all()?;
            self.log.line('s', &name, new);
        }
        Ok(())
    }

    /// One transaction: save the old pages in a file of their own, overwrite them, remove that
    /// file. Each is durable before the next.
    fn change_pages(&mut self, n: usize) -> io::Result<()> {
        let (name, old, new) = self.next(3, n, 1);
        let path = self.dir.join(&name);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let dir = File::open(&self.dir)?;
        let mut before = Vec::new();
        for page in changed_pages(new).into_iter().filter(|page| *page < pages(old)) {
            let mut content = vec![0; PAGE];
            file.read_exact_at(&mut content, page * PAGE as u64)?;
            before.push((page, content));
        }
        let undo = undo_of(&path);
        let kept = File::create_new(&undo)?;
        (&kept).write_all(&Undo { len: pages(old), before }.bytes())?;
        kept.sync_data()?;
        dir.sync_all()?;
        for page in changed_pages(new) {
            file.write_all_at(&page_of(&name, page, new), page * PAGE as u64)?;
        }
        file.sync_data()?;
        fs::remove_file(undo)?;
        dir.sync_all()?;
        self.log.line('s', &name, new);
        Ok(())
    }

    /// Work whose result is not checked, except that the volume stays consistent.
    fn scribble(&mut self) -> io::Result<()> {
        let path = self.dir.join("scribble");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        let at = self.rng.below(4 << 20) as u64;
        let len = self.rng.below(40_000);
        file.write_all_at(&bytes(at, len), at)?;
        if self.rng.below(3) == 0 {
            file.set_len(self.rng.below(4 << 20) as u64)?;
        }
        if self.rng.below(8) == 0 {
            fs::remove_file(&path)?;
            // Open, and without a name.
            file.write_all_at(b"orphan", 0)?;
        }
        Ok(())
    }

    /// Names that several writers use: each call may fail because of another writer.
    fn shared(&mut self, n: usize) -> io::Result<()> {
        let dir = self.dir.join("../shared");
        let (a, b) = (dir.join(format!("a{n}")), dir.join(format!("b{}", self.rng.below(FILES))));
        let done = match self.rng.below(4) {
            0 => File::create(&a).and_then(|mut file| file.write_all(b"shared")),
            1 => fs::hard_link(&a, &b),
            2 => fs::rename(&a, &b),
            _ => fs::remove_file(&b),
        };
        match done {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }
}

/// Bytes `from..to` of the growing file `name`.
fn growing(name: &str, from: u64, to: u64) -> Vec<u8> {
    let seed = u64::from(name.as_bytes()[4]);
    (from..to).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ seed as u8).collect()
}

/// All of version `number` of the replaced file `name`.
fn version(name: &str, number: u64) -> Vec<u8> {
    let len = [10, 3000, 20_000][number as usize % 3];
    let mut content = format!("{name} {number}\n").into_bytes();
    content.extend(bytes(number, len));
    content
}

const PAGE: usize = 4096;

/// Pages of version `number` of a paged file.
fn pages(number: u64) -> u64 {
    if number == 0 { 0 } else { 9 + number / 5 }
}

/// Pages that version `number` changes: the first, one in the middle, and the last, which may be
/// new.
fn changed_pages(number: u64) -> [u64; 3] {
    [0, 1 + number % 7, pages(number) - 1]
}

/// What version `number` of `name`, which changed `page`, wrote there.
fn page_of(name: &str, page: u64, number: u64) -> Vec<u8> {
    let mut content = format!("{name} {page} {number}\n").into_bytes();
    content.extend(bytes(page << 32 | number, PAGE - content.len()));
    content
}

/// All of version `number` of `name`.
fn paged_version(name: &str, number: u64) -> Vec<u8> {
    let last_change = |page| (1..=number).rev().find(|n| changed_pages(*n).contains(&page));
    let page = |page| last_change(page).map_or(vec![0; PAGE], |n| page_of(name, page, n));
    (0..pages(number)).flat_map(page).collect()
}

fn undo_of(path: &Path) -> PathBuf {
    path.with_extension("undo")
}

/// What undoes a transaction: the number of pages before, and the old content of those that it
/// changes.
struct Undo {
    len: u64,
    before: Vec<(u64, Vec<u8>)>,
}

impl Undo {
    /// A checksum, then numbers and pages.
    fn bytes(&self) -> Vec<u8> {
        let mut all = self.len.to_le_bytes().to_vec();
        for (page, content) in &self.before {
            all.extend(page.to_le_bytes());
            all.extend(content);
        }
        [sum(&all).to_le_bytes().to_vec(), all].concat()
    }

    /// `None` if it is incomplete.
    fn read(bytes: &[u8]) -> Option<Undo> {
        let (known, all) = bytes.split_first_chunk()?;
        let (len, pages) = all.split_first_chunk()?;
        let before = pages.chunks_exact(8 + PAGE).map(|chunk| {
            let (page, content) = chunk.split_first_chunk().expect("8 bytes and more");
            (u64::from_le_bytes(*page), content.to_vec())
        });
        let undo = Undo { len: u64::from_le_bytes(*len), before: before.collect() };
        (u64::from_le_bytes(*known) == sum(all)).then_some(undo)
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// Panics unless each file of writer `n` on the volume at `root` is as its log in `logs` allows.
/// The state found counts as synced from now on, because the recovery has made it durable: the log
/// is rewritten accordingly.
pub fn judge(root: &Path, logs: &Path, n: usize) {
    let (dir, path) = (dir_of(root, n), log_of(logs, n));
    let mut lines = String::new();
    for kind in KINDS {
        for file in (0..FILES).map(|n| format!("{kind}{n}")) {
            let known = Log::known(&path, &file);
            let at = dir.join(&file);
            let number = match kind {
                "grow" => grown(&at, &file),
                "swap" => swapped(&at, &file),
                "page" => paged(&at, &file, known),
                _ => come(fs::symlink_metadata(&at).is_ok(), known),
            };
            let number =
                number.unwrap_or_else(|said| panic!("{}: {said}: {known:?}", at.display()));
            assert!(
                (known.synced..=known.tried).contains(&number),
                "{}: {number}, not one of {known:?}",
                at.display()
            );
            lines += &format!("s {file} {number}\n");
        }
    }
    fs::write(path, lines).expect("the log takes lines");
}

/// The length of a growing file, of which every byte is right.
fn grown(path: &Path, name: &str) -> Result<u64, String> {
    let mut content = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file.and_then(|mut f| f.read_to_end(&mut content)).map_err(|e| e.to_string())?,
    };
    let right = growing(name, 0, content.len() as u64);
    match content.iter().zip(&right).position(|(a, b)| a != b) {
        None => Ok(content.len() as u64),
        Some(at) => Err(format!("byte {at} of {} is {:#x}", content.len(), content[at])),
    }
}

/// The version of a replaced file, which is complete.
fn swapped(path: &Path, name: &str) -> Result<u64, String> {
    let content = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        content => content.map_err(|e| e.to_string())?,
    };
    let first = content.split(|&b| b == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first).into_owned();
    let number = first.rsplit(' ').next().and_then(|n| n.parse().ok());
    let number = number.ok_or(format!("{} bytes that begin {first:?}", content.len()))?;
    match content == version(name, number) {
        true => Ok(number),
        false => Err(format!("{} bytes are not version {number}", content.len())),
    }
}

/// The version of a paged file; a transaction that did not end is undone first.
fn paged(path: &Path, name: &str, known: Known) -> Result<u64, String> {
    let mut content = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        content => content.map_err(|e| e.to_string())?,
    };
    if let Ok(undo) = fs::read(undo_of(path)) {
        if let Some(undo) = Undo::read(&undo) {
            for (page, before) in undo.before {
                let start = page as usize * PAGE;
                content[start..start + PAGE].copy_from_slice(&before);
            }
            content.truncate(undo.len as usize * PAGE);
            let file = OpenOptions::new().write(true).truncate(true).open(path);
            file.and_then(|mut f| f.write_all(&content).and(f.sync_all()))
                .map_err(|e| e.to_string())?;
        }
        fs::remove_file(undo_of(path)).map_err(|e| e.to_string())?;
    }
    let found = (known.synced..=known.tried).find(|n| paged_version(name, *n) == content);
    found.ok_or_else(|| {
        let first = content.split(|&b| b == b'\n').next().unwrap_or_default();
        format!("{} bytes that begin {}", content.len(), first.escape_ascii())
    })
}

/// A number that says whether the name exists, if the log has one.
fn come(is_there: bool, known: Known) -> Result<u64, String> {
    let fits = |number: &u64| (number % 2 == 1) == is_there;
    (known.synced..=known.tried).find(fits).ok_or(format!("is there: {is_there}"))
}
