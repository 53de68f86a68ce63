//! Runs a workload on an open volume, keeps its files open, and notes what each contained.

use super::contents::Contents;
use crate::apply::{Applier, stamp};
use crate::direct;
use crate::op::{Op, RenameHow};
use extant::{Error, File, Filesystem, NewFile, Result, SetAttributes};
use std::collections::HashMap;

/// The file whose owner is the number of the last call.
pub const MARKER: &str = "/marker";

/// A workload that is running.
pub struct Run {
    fs: Filesystem,
    files: HashMap<String, File>,
    rest: Applier,
    contents: Contents,
}

impl Run {
    /// On this volume, which contains the marker and nothing else.
    pub fn new(fs: Filesystem) -> Run {
        let rest = Applier::new(fs.clone());
        Run { fs, files: HashMap::new(), rest, contents: Contents::new() }
    }

    /// Creates the marker on a volume.
    pub fn prepare(fs: &Filesystem) -> Result<()> {
        fs.create_file(MARKER, &NewFile::default()).map(drop)
    }

    /// Runs the `n`th operation. `Ok` with an errno if it was refused. `Err` if the bytes read are
    /// not those written.
    pub fn step(
        &mut self,
        n: usize,
        op: &Op,
        refused: impl Fn(&Error) -> bool,
    ) -> std::result::Result<Option<i32>, String> {
        let mut written = Vec::new();
        match self.apply(n, op, &mut written) {
            Ok(made) => {
                self.contents.done(op, made, &written);
                Ok(None)
            }
            Err(error) if refused(&error) => {
                self.contents.pass();
                Ok(Some(error.errno()))
            }
            Err(error) => Err(format!("step {n}, `{op}`: {error}")),
        }
    }

    /// The step before was the `n`th.
    pub fn mark(&self, n: usize) -> Result<()> {
        let wish = SetAttributes { uid: Some(n as u32 + 1), ..SetAttributes::default() };
        self.fs.node(MARKER)?.set_attributes(&wish)
    }

    /// Compares all files with what was written.
    pub fn compare(&self) -> std::result::Result<(), String> {
        for (path, life) in self.contents.now() {
            let bytes = self.fs.read(path).map_err(|e| format!("{path}: {e}"))?;
            same(path, 0, &bytes, life.bytes())?;
        }
        Ok(())
    }

    /// Closes all files.
    pub fn end(mut self) -> Contents {
        self.files.clear();
        self.contents.pass();
        self.contents
    }

    fn apply(&mut self, n: usize, op: &Op, written: &mut Vec<u8>) -> Result<Option<u32>> {
        match op {
            Op::Create { path, .. } => {
                let is_new = self.contents.of(path).is_none();
                self.rest.apply(n, op)?;
                return Ok(is_new.then_some(self.fs.node(path)?.ino().get()));
            }
            Op::Write { path, at, len } => {
                *written = stamp(n, *at, *len);
                self.file(path)?.write_all_at(written, *at)?;
            }
            Op::Append { path, len } => {
                let file = self.file(path)?;
                *written = stamp(n, file.metadata().len(), *len);
                if file.append(written)? < written.len() {
                    return Err(Error::NoSpace);
                }
            }
            Op::DirectWrite { path, at, len, how } => {
                *written = stamp(n, *at, *len);
                let fs = self.fs.clone();
                direct::write(&fs, self.file(path)?, n, *how, *at, written)?;
            }
            Op::Truncate { path, len } => self.file(path)?.set_len(*len)?,
            Op::Fallocate { path, mode, at, len } => {
                self.file(path)?.allocate(mode.library_mode(), *at, *len)?;
            }
            Op::Close { path } => drop(self.files.remove(path)),
            Op::DontCache { path, on } => self.file(path)?.set_dont_cache(*on),
            Op::Read { path, at, len } => {
                let mut bytes = vec![0xEE; *len as usize];
                let n = self.file(path)?.read_at(&mut bytes, *at)?;
                let want = self.contents.of(path).map_or(&[][..], |life| life.bytes());
                let want = want.get(*at as usize..).unwrap_or_default();
                let want = &want[..want.len().min(bytes.len())];
                if same(path, *at, &bytes[..n], want).is_err() {
                    return Err(Error::Invalid("bytes that were not written"));
                }
            }
            Op::WriteBack { path, at, len } => self.file(path)?.write_back(*at, *len)?,
            Op::Fsync { path } => self.file(path)?.sync_all()?,
            Op::Fdatasync { path } => self.file(path)?.sync_data()?,
            Op::Rename { from, to, how: RenameHow::Replace } => {
                self.rest.apply(n, op)?;
                if from != to {
                    let file = self.files.remove(from);
                    self.files.remove(to);
                    self.files.extend(file.map(|file| (to.clone(), file)));
                }
            }
            Op::Unlink { path } => {
                self.rest.apply(n, op)?;
                self.files.remove(path);
            }
            Op::Sync => self.fs.sync()?,
            _ => return Err(Error::NotSupported("an operation of runs through the page cache")),
        }
        Ok(None)
    }

    /// The file of a name; it stays open until it is closed.
    fn file(&mut self, path: &str) -> Result<&File> {
        if !self.files.contains_key(path) {
            self.files.insert(path.to_owned(), self.fs.open_file(path)?);
        }
        Ok(&self.files[path])
    }
}

fn same(path: &str, at: u64, found: &[u8], want: &[u8]) -> std::result::Result<(), String> {
    if found == want {
        return Ok(());
    }
    let differs = found.iter().zip(want).position(|(a, b)| a != b);
    let text = format!(
        "{path}: {} bytes from {at} on, wanted {}; differ at {:?}",
        found.len(),
        want.len(),
        differs.map(|n| n as u64 + at)
    );
    Err(text)
}
