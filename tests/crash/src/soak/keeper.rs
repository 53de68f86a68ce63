//! One thread's files: their content, what was synced of them, and what a cut may leave.
//!
//! ```text
//!   bytes    as written                               compared while the volume is open
//!   synced   bytes at the last successful sync        there after a cut, except for
//!   touched  what was written since                   … which holds bytes of this thread or zeros
//!   names    its names since a sync of all            it has one of them
//! ```

use extant::direct::DirectOptions;
use extant::{Error, FallocateMode, File, Filesystem, NewFile, RenameFlags};
use extant_testkit::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::power::Power;

/// Files of a thread.
const FILES: usize = 8;
/// The longest file.
const BYTES: u64 = 96 << 10;
/// How many values the bytes of one thread take.
const VALUES: u8 = 30;

/// What was durable, and what happened since.
#[derive(Clone, Debug)]
struct Synced {
    bytes: Vec<u8>,
    /// The name is durable, too.
    named: bool,
    touched: Vec<Range<u64>>,
    /// The shortest and the longest length of the file since then.
    low: u64,
    high: u64,
}

#[derive(Clone, Debug)]
struct Own {
    ino: u32,
    bytes: Vec<u8>,
    synced: Option<Synced>,
    names: BTreeSet<String>,
    /// The last operations on it, for the message of a failure.
    history: VecDeque<String>,
}

/// The number of a file's calls in the message of a failure.
const HISTORY: usize = 24;

/// See the module's picture.
pub struct Keeper {
    thread: usize,
    dir: String,
    files: BTreeMap<String, Own>,
    /// Every name that existed since a sync of all.
    names: BTreeSet<String>,
    /// Files without a name, held open.
    nameless: Vec<File>,
    /// Bytes of the file that fills the volume.
    filler: u64,
    /// Calls that ran, and those that found no space.
    pub calls: u64,
    /// See [`Keeper::calls`].
    pub refused: u64,
}

type Done<T> = Result<T, String>;

/// The directory of a thread.
pub fn dir_of(thread: usize) -> String {
    format!("/t{thread}")
}

impl Keeper {
    /// The existing files, which are durable: after recovery, or on a new volume, which already has
    /// the directory.
    pub fn adopt(fs: &Filesystem, thread: usize) -> Done<Keeper> {
        let dir = dir_of(thread);
        let text = |error: Error| format!("{dir}: {error}");
        let mut keeper = Keeper {
            thread,
            dir: dir.clone(),
            files: BTreeMap::new(),
            names: BTreeSet::new(),
            nameless: Vec::new(),
            filler: 0,
            calls: 0,
            refused: 0,
        };
        for name in keeper.listed(fs)? {
            let path = keeper.path(&name);
            if name == "filler" {
                fs.remove_file(&path).map_err(text)?;
                continue;
            }
            let (node, bytes) = (fs.node(&path).map_err(text)?, fs.read(&path).map_err(text)?);
            let len = bytes.len() as u64;
            let synced =
                Synced { bytes: bytes.clone(), named: true, touched: vec![], low: len, high: len };
            let names = BTreeSet::from([name.clone()]);
            let own = Own {
                ino: node.ino().get(),
                bytes,
                synced: Some(synced),
                names,
                history: VecDeque::new(),
            };
            keeper.names.insert(name.clone());
            keeper.files.insert(name, own);
        }
        Ok(keeper)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    fn listed(&self, fs: &Filesystem) -> Done<BTreeSet<String>> {
        let text = |error: Error| format!("{}: {error}", self.dir);
        let entries = fs.read_dir(&self.dir).map_err(text)?;
        let name = |entry: extant::Result<extant::DirEntry>| {
            Ok(entry.map_err(text)?.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }

    /// Whether a byte may belong to this thread.
    fn is_own(&self, byte: u8) -> bool {
        let first = 1 + self.thread as u8 * VALUES;
        byte == 0 || (first..first + VALUES).contains(&byte)
    }

    /// One call, or a few that belong together. With `full`, the volume is to be filled.
    pub fn step(&mut self, fs: &Filesystem, rng: &mut Rng, power: &Power, full: bool) -> Done<()> {
        self.calls += 1;
        let name = format!("f{}", rng.below(FILES));
        let path = self.path(&name);
        let there = self.files.contains_key(&name);
        let kind = rng.below(100);
        let done = match kind {
            0..50 if !there => self.create(fs, &name),
            0..38 => self.change(fs, rng, &name, kind),
            38..50 => self.compare(fs, &name),
            50..64 => self.sync_file(fs, power, &name, kind < 58),
            64..66 => self.sync_all(fs, power),
            66..71 => self.rename(fs, &name, &format!("f{}", rng.below(FILES))),
            71..76 if there => {
                let held = fs.open_file(&path);
                let gone = fs.remove_file(&path);
                if let (Ok(file), true) = (held, rng.below(3) == 0 && self.nameless.len() < 4) {
                    // Its bytes are gone, but its blocks are in use until it is closed.
                    let _ = file.write_all_at(&[1 + self.thread as u8 * VALUES; 5000], 0);
                    self.nameless.push(file);
                }
                gone.map(|()| drop(self.files.remove(&name)))
            }
            76..90 => self.shared(fs, rng),
            90..94 => self.fill(fs, rng, full),
            94..95 => {
                self.nameless.clear();
                Ok(())
            }
            _ => self.list(fs),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Error::NoSpace) if kind < 50 => {
                self.refused += 1;
                self.reread(fs, &name)
            }
            // Without extents there are no unwritten blocks to allocate.
            Err(Error::NotSupported(_)) if kind < 38 => Ok(()),
            Err(Error::NoSpace) if kind >= 66 => {
                self.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("{path}, kind {kind}: {error}")),
        }
    }

    fn create(&mut self, fs: &Filesystem, name: &str) -> extant::Result<()> {
        let node = fs.create_file(self.path(name), &NewFile::default())?;
        let names = BTreeSet::from([name.to_owned()]);
        let own = Own {
            ino: node.ino().get(),
            bytes: Vec::new(),
            synced: None,
            names,
            history: VecDeque::new(),
        };
        self.names.insert(name.to_owned());
        self.files.insert(name.to_owned(), own);
        Ok(())
    }

    fn change(
        &mut self,
        fs: &Filesystem,
        rng: &mut Rng,
        name: &str,
        kind: usize,
    ) -> extant::Result<()> {
        let file = fs.open_file(self.path(name))?;
        let value = 1 + self.thread as u8 * VALUES + rng.below(usize::from(VALUES)) as u8;
        let own = self.files.get_mut(name).expect("it is there");
        let len = own.bytes.len() as u64;
        let at = rng.below(BYTES as usize - 1) as u64;
        let most = (BYTES - at).min([1, 100, 4096, 40_000][rng.below(4)]);
        let range = at..at + 1 + rng.below(most as usize) as u64;
        let (at, n) = (range.start, range.end - range.start);
        own.note(format!("{kind}: {at}+{n} of {len}, {value:#x}"));
        match kind {
            0..18 => {
                own.touch(range.clone(), range.end.max(len));
                file.set_dont_cache(kind < 4);
                file.write_all_at(&vec![value; n as usize], at)?;
                own.put(range, value);
            }
            18..24 => {
                let at = at / 512 * 512;
                let range = at..at + n.div_ceil(512) * 512;
                own.touch(range.clone(), range.end.max(len));
                let bytes = vec![value; (range.end - at) as usize];
                let mut done = 0;
                while done < bytes.len() {
                    let options = DirectOptions { sync: kind == 18, ..DirectOptions::default() };
                    done += file.write_direct_at(&bytes[done..], at + done as u64, &options)?;
                }
                own.put(range, value);
            }
            24..28 => {
                let n = n.min(BYTES.saturating_sub(len)).max(1);
                own.touch(len..len + n, len + n);
                let done = file.append(&vec![value; n as usize])? as u64;
                own.put(len..len + done, value);
                if done < n {
                    return Err(Error::NoSpace);
                }
            }
            28..31 => {
                own.touch(len.min(at)..len.max(at), at);
                file.set_len(at)?;
                own.bytes.resize(at as usize, 0);
            }
            31..34 => {
                own.touch(range.clone(), len);
                file.allocate(FallocateMode::PunchHole, at, n)?;
                own.put(at.min(len)..range.end.min(len), 0);
            }
            34..36 => {
                own.touch(range.clone(), range.end.max(len));
                file.allocate(FallocateMode::ZeroRange, at, n)?;
                own.put(range, 0);
            }
            36 => file.allocate(FallocateMode::KeepSize, at, n)?,
            _ => {
                own.touch(range.clone(), range.end.max(len));
                file.allocate(FallocateMode::Allocate, at, n)?;
                own.bytes.resize(range.end.max(len) as usize, 0);
            }
        }
        Ok(())
    }

    /// A call found no space: some of its bytes may be there.
    fn reread(&mut self, fs: &Filesystem, name: &str) -> Done<()> {
        let path = self.path(name);
        let own_byte = |byte: &u8| self.is_own(*byte);
        if !self.files.contains_key(name) {
            return match fs.exists(&path) {
                Ok(false) => Ok(()),
                found => Err(format!("{path}: not made for want of room, but {found:?}")),
            };
        }
        let bytes = fs.read(&path).map_err(|e| format!("{path}: {e}"))?;
        if let Some(at) = bytes.iter().position(|byte| !own_byte(byte)) {
            return Err(format!("{path}: a foreign byte at {at} after a refusal"));
        }
        let own = self.files.get_mut(name).expect("it is there");
        let len = bytes.len() as u64;
        own.touch(len..len, len);
        own.note(format!("no room, {len} bytes then"));
        own.bytes = bytes;
        Ok(())
    }

    fn compare(&mut self, fs: &Filesystem, name: &str) -> extant::Result<()> {
        let Some(own) = self.files.get(name) else { return Ok(()) };
        let bytes = fs.read(self.path(name))?;
        if let Some(at) = difference(&bytes, &own.bytes) {
            panic!(
                "{}: byte {at} is {:x?}, not {:x?} as written; {} bytes of {}; kinds of calls: {:?}",
                self.path(name),
                bytes.get(at),
                own.bytes.get(at),
                bytes.len(),
                own.bytes.len(),
                own.history
            );
        }
        Ok(())
    }

    fn list(&mut self, fs: &Filesystem) -> extant::Result<()> {
        let there = self.listed(fs).unwrap_or_else(|error| panic!("{error}"));
        let known: BTreeSet<String> = self.files.keys().cloned().collect();
        let there: BTreeSet<String> = there.into_iter().filter(|name| name != "filler").collect();
        assert_eq!(there, known, "{}", self.dir);
        Ok(())
    }

    fn sync_file(
        &mut self,
        fs: &Filesystem,
        power: &Power,
        name: &str,
        whole: bool,
    ) -> extant::Result<()> {
        let Some(own) = self.files.get_mut(name) else { return Ok(()) };
        own.note(format!("sync, {whole}"));
        let file = fs.open_file(format!("{}/{name}", self.dir))?;
        if whole {
            file.sync_all()?
        } else {
            file.sync_data()?
        }
        if !power.is_off() {
            own.sync(whole);
        }
        Ok(())
    }

    fn sync_all(&mut self, fs: &Filesystem, power: &Power) -> extant::Result<()> {
        fs.sync()?;
        if !power.is_off() {
            for (name, own) in &mut self.files {
                own.sync(true);
                own.names = BTreeSet::from([name.clone()]);
            }
            self.names = self.files.keys().cloned().collect();
        }
        Ok(())
    }

    fn rename(&mut self, fs: &Filesystem, from: &str, to: &str) -> extant::Result<()> {
        if from == to || !self.files.contains_key(from) {
            return Ok(());
        }
        fs.rename(self.path(from), self.path(to))?;
        let mut own = self.files.remove(from).expect("it was there");
        own.names.insert(to.to_owned());
        self.names.insert(to.to_owned());
        self.files.insert(to.to_owned(), own);
        Ok(())
    }

    /// An operation in the directory that all threads share. Its answer depends on them.
    fn shared(&mut self, fs: &Filesystem, rng: &mut Rng) -> extant::Result<()> {
        let mut name =
            || format!("/shared/{:->width$}", rng.below(40), width = 2 + rng.below(3) * 60);
        let (a, b) = (name(), name());
        let done = match rng.below(9) {
            0..3 => fs.create_file(&a, &NewFile::default()).map(drop),
            3 => fs.create_dir(&a, &NewFile::directory()).map(drop),
            4 => fs.symlink("t".repeat(1 + rng.below(200)), &a, &NewFile::default()).map(drop),
            5 => fs.hard_link(&a, &b),
            6 => fs.rename_with(
                &a,
                &b,
                RenameFlags { exchange: rng.below(3) == 0, ..RenameFlags::REPLACE },
            ),
            7 => fs.remove_dir(&a),
            _ => fs.remove_file(&a),
        };
        match done {
            Err(
                error @ (Error::NoSpace
                | Error::Corrupt { .. }
                | Error::Device { .. }
                | Error::Aborted { .. }),
            ) => Err(error),
            // A valid answer.
            _ => Ok(()),
        }
    }

    /// Takes all the free space, or frees it again.
    fn fill(&mut self, fs: &Filesystem, rng: &mut Rng, full: bool) -> extant::Result<()> {
        let path = self.path("filler");
        if !full || (self.filler > 0 && rng.below(6) == 0) {
            self.filler = 0;
            return match fs.remove_file(&path) {
                Ok(()) | Err(Error::NotFound) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let file = match fs.create_file(&path, &NewFile::default()) {
            Ok(node) => node.open()?,
            Err(Error::Exists) => fs.open_file(&path)?,
            Err(error) => return Err(error),
        };
        let bytes = vec![1 + self.thread as u8 * VALUES; 128 << 10];
        for _ in 0..64 {
            let done = file.append(&bytes)? as u64;
            self.filler += done;
        }
        Ok(())
    }

    /// Ends its calls and closes its files.
    pub fn end(&mut self) {
        self.nameless.clear();
    }

    /// After the volume was closed everything is as it was left.
    pub fn closed(&self, fs: &Filesystem) -> Done<()> {
        let there: BTreeSet<String> =
            self.listed(fs)?.into_iter().filter(|name| name != "filler").collect();
        if there != self.files.keys().cloned().collect() {
            return Err(format!("{}: {there:?} are there, not {:?}", self.dir, self.files.keys()));
        }
        for (name, own) in &self.files {
            let bytes =
                fs.read(self.path(name)).map_err(|e| format!("{}: {e}", self.path(name)))?;
            if let Some(at) = difference(&bytes, &own.bytes) {
                return Err(format!(
                    "{}: byte {at} is not as written, after closing",
                    self.path(name)
                ));
            }
        }
        Ok(())
    }

    /// After a cut and recovery: nothing synced is missing, and no byte belongs to another thread.
    pub fn cut(&self, fs: &Filesystem) -> Done<()> {
        let there = self.listed(fs)?;
        let mut found: BTreeMap<u32, (String, Vec<u8>)> = BTreeMap::new();
        for name in &there {
            let path = self.path(name);
            if name != "filler" && !self.names.contains(name) {
                return Err(format!("{path}: was gone before the last sync of all"));
            }
            let text = |error: Error| format!("{path}: {error}");
            let ino = fs.node(&path).map_err(text)?.ino().get();
            if name == "filler" {
                let len = fs.metadata(&path).map_err(text)?.len();
                let file = fs.open_file(&path).map_err(text)?;
                let mut piece = vec![0; 1 << 20];
                for at in (0..len).step_by(1 << 20) {
                    let n = file.read_at(&mut piece, at).map_err(text)?;
                    self.own_bytes(&path, at, &piece[..n])?;
                }
                continue;
            }
            let bytes = fs.read(&path).map_err(text)?;
            self.own_bytes(&path, 0, &bytes)?;
            found.insert(ino, (name.clone(), bytes));
        }
        for (name, own) in &self.files {
            let Some(synced) = &own.synced else { continue };
            let file = found.get(&own.ino).filter(|(name, _)| own.names.contains(name));
            match file {
                None if synced.named => {
                    return Err(format!(
                        "{}: synced, and gone; it was inode {}, called {:?}; there are {:?}",
                        self.path(name),
                        own.ino,
                        own.names,
                        there
                    ));
                }
                None => {}
                Some((_, bytes)) => {
                    synced.check(bytes).map_err(|e| format!("{}: {e}", self.path(name)))?
                }
            }
        }
        Ok(())
    }

    fn own_bytes(&self, path: &str, from: u64, bytes: &[u8]) -> Done<()> {
        match bytes.iter().position(|byte| !self.is_own(*byte)) {
            Some(at) => Err(format!(
                "{path}: byte {} is {:#x}, which its thread never wrote",
                from + at as u64,
                bytes[at]
            )),
            None => Ok(()),
        }
    }
}

impl Own {
    fn note(&mut self, call: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(call);
    }

    /// The range is about to change, and the file will have this length.
    fn touch(&mut self, range: Range<u64>, len: u64) {
        let old = self.bytes.len() as u64;
        if let Some(synced) = &mut self.synced {
            synced.touched.push(range);
            synced.low = synced.low.min(len).min(old);
            synced.high = synced.high.max(len).max(old);
        }
    }

    fn put(&mut self, range: Range<u64>, value: u8) {
        if self.bytes.len() < range.end as usize && !range.is_empty() {
            self.bytes.resize(range.end as usize, 0);
        }
        self.bytes[range.start as usize..range.end as usize].fill(value);
    }

    fn sync(&mut self, whole: bool) {
        let len = self.bytes.len() as u64;
        let named = whole || self.synced.as_ref().is_some_and(|synced| synced.named);
        self.synced = Some(Synced {
            bytes: self.bytes.clone(),
            named,
            touched: Vec::new(),
            low: len,
            high: len,
        });
    }
}

impl Synced {
    fn check(&self, bytes: &[u8]) -> Done<()> {
        let len = bytes.len() as u64;
        if len < self.low || len > self.high {
            return Err(format!("{len} bytes, where {} to {} can be", self.low, self.high));
        }
        let until = self.low.min(self.bytes.len() as u64) as usize;
        let differs = |at: &usize| {
            bytes[*at] != self.bytes[*at]
                && !self.touched.iter().any(|range| range.contains(&(*at as u64)))
        };
        match (0..until).find(differs) {
            Some(at) => Err(format!(
                "byte {at} was synced as {:#x} and is {:#x}; {len} bytes, {} were synced; written since: {:?}",
                self.bytes[at],
                bytes[at],
                self.bytes.len(),
                self.touched
            )),
            None => Ok(()),
        }
    }
}

/// The offset of the first byte that differs; the shorter length if one is a prefix of the other.
fn difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    Some(a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len())))
}
