//! `extant put`: copies files of this system into a volume.

use crate::apply::Apply;
use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::{as_path, inner_path, join};
use crate::verb::mkfs::format_options::owner;
use crate::{amount, bar};
use extant::{Error, File, NewFile, SetAttributes, Timestamp};
use extant_image::{
    Excludes, ModeChange, SourceKind, SourceOptions, SourceSpec, Tree, data_ranges,
};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Size of one read and write.
const CHUNK_BYTES: usize = 1 << 20;

/// Copy files, or directories with -r, into a volume.
///
/// Owners, modes and times are kept, also for a normal user; below directories, so is everything
/// else that `extant build` keeps. An existing file is overwritten and keeps its owner, mode and
/// names. If there are several sources, or DEST is a directory, they are copied into DEST. If one
/// cannot be copied or the program is interrupted, the volume is not changed.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "extant put [OPTIONS] <IMG> <SRC>... <DEST>",
    after_long_help = "Examples:
  extant put root.img ./hosts /etc/hosts
  extant put --owner 0:0 --mode 0755 root.img ./app ./helper /usr/local/bin/
  extant put -r root.img ./site /srv
  extant put -r root.img ./overlay/. /
  echo host | extant put root.img - /etc/hostname

Exit status: 0 copied, 1 failed: nothing was changed."
)]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Files and directories of this machine (- for standard input), then the destination
    #[arg(value_name = "SRC", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Copy directories with everything in them; SRC/. means the content of SRC
    #[arg(short, long)]
    recursive: bool,
    /// Set the owner and group of everything that is copied
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<(u32, u32)>,
    /// Change permissions: octal, or symbolic as for chmod; D or F before a clause limits it to
    /// directories or files
    #[arg(long, value_name = "MODE", value_parser = super::chmod::mode)]
    mode: Option<ModeChange>,
    /// Omit files below directories that match, with the patterns of .gitignore
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Treat DEST as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    steps: Steps,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let Some((dest, sources)) = self.paths.split_last() else {
            return Err(Failure::usage("no file was given"));
        };
        if sources.iter().any(|source| source.is_empty()) {
            // An unset variable leaves an empty path.
            return Err(Failure::usage("an empty path does not name a file"));
        }
        let change = Change::begin(&self.image, self.steps)?;
        let into_directory = dest.as_bytes().ends_with(b"/");
        let dest = inner_path(dest)?;
        let is_dir = !self.no_target_directory
            && change.metadata_following_links(&dest)?.is_some_and(|dest| dest.is_dir());
        if !is_dir && sources.len() > 1 {
            return Err(change.refuse(
                &dest,
                "not a directory: several files need one as their \
                                             destination",
            ));
        }
        if !is_dir && into_directory {
            return Err(change.failure(&dest, &Error::NotADirectory));
        }
        for source in sources {
            let name = file_name(source);
            let target = match (is_dir, name) {
                (true, Some(name)) => join(&dest, name),
                _ => dest.clone(),
            };
            if source == "-" {
                if is_dir {
                    return Err(change.refuse(&dest, "a directory: name the file to write"));
                }
                self.stream(&change, &target)?;
                continue;
            }
            let path = Path::new(source);
            let meta =
                std::fs::metadata(path).map_err(|error| Failure::of_file("read", path, error))?;
            match meta.is_dir() {
                true if self.recursive => self.directory(&change, path, &target)?,
                true => {
                    let shown = crate::shown::Shown::path(path);
                    return Err(Failure::new(format_args!("{shown}: a directory: use -r")));
                }
                false => self.file(&change, path, &meta, &target)?,
            }
        }
        change.finish()?;
        Ok(0)
    }

    fn stream(&self, change: &Change, target: &[u8]) -> Result<(), Failure> {
        let new = self.new_file(0o644, (0, 0));
        let (file, _) = overwrite(change, target, &new)?;
        let mut from = std::io::stdin().lock();
        let mut to = To { change, target, file: &file, progress: &mut |_| {} };
        let end = to.copy(Path::new("standard input"), &mut from, 0)?;
        to.end_at(end)
    }

    fn new_file(&self, mode: u16, owner: (u32, u32)) -> NewFile {
        let (uid, gid) = self.owner.unwrap_or(owner);
        let mode = self.mode.as_ref().map_or(mode, |change| change.apply(mode, false));
        NewFile { mode, uid, gid, ..NewFile::default() }
    }

    fn file(
        &self,
        change: &Change,
        path: &Path,
        meta: &std::fs::Metadata,
        target: &[u8],
    ) -> Result<(), Failure> {
        if !meta.is_file() {
            let shown = crate::shown::Shown::path(path);
            return Err(Failure::new(format_args!(
                "{shown}: neither a file nor a directory: use -r to copy it"
            )));
        }
        let mut from =
            std::fs::File::open(path).map_err(|error| Failure::of_file("read", path, error))?;
        let new = self.new_file((meta.mode() & 0o7777) as u16, (meta.uid(), meta.gid()));
        let (file, fresh) = overwrite(change, target, &new)?;
        let bar = bar::copying(meta.len());
        let mut to = To { change, target, file: &file, progress: &mut |bytes| bar.inc(bytes) };
        let mut ranges = Vec::new();
        let is_sparse = meta.blocks().saturating_mul(512) < meta.len()
            && data_ranges(&from, meta.len(), &mut |at, len| ranges.push((at, len)));
        let end = match is_sparse {
            true => {
                for (at, len) in ranges {
                    let sought = from.seek(SeekFrom::Start(at));
                    sought.map_err(|error| Failure::of_file("read", path, error))?;
                    to.copy(path, &mut from.by_ref().take(len), at)?;
                }
                meta.len()
            }
            false => {
                let start = from.rewind();
                start.map_err(|error| Failure::of_file("read", path, error))?;
                to.copy(path, &mut from, 0)?
            }
        };
        to.end_at(end)?;
        bar.finish_and_clear();
        let time = |sec, nsec: i64| Timestamp { sec, nsec: nsec.clamp(0, 999_999_999) as u32 };
        let changes = SetAttributes {
            // A write may have cleared the set-ID bits.
            mode: (fresh || self.mode.is_some()).then_some(new.mode),
            // In a set-group-ID directory, a new file has that directory's group.
            uid: (fresh || self.owner.is_some()).then_some(new.uid),
            gid: (fresh || self.owner.is_some()).then_some(new.gid),
            modified: Some(time(meta.mtime(), meta.mtime_nsec())),
            ..SetAttributes::default()
        };
        change.at(target, |_| file.set_attributes(&changes))
    }

    fn directory(&self, change: &Change, path: &Path, target: &[u8]) -> Result<(), Failure> {
        let mut excludes = Excludes::new();
        for pattern in &self.exclude {
            excludes.add(pattern.as_bytes()).map_err(Failure::new)?;
        }
        let mut options = SourceOptions::new().excludes(excludes);
        if let Some((uid, gid)) = self.owner {
            options = options.owner(uid, gid);
        }
        if let Some(mode) = &self.mode {
            options = options.mode(mode.clone());
        }
        let spec = SourceSpec { path: path.into(), kind: Some(SourceKind::Directory) };
        let tree = Tree::read(&[spec], &options, &()).map_err(Failure::new)?;
        let bar = bar::copying(tree.data_bytes());
        let mut progress = |bytes| bar.inc(bytes);
        let done = Apply::new(change, &tree, (false, false), &mut progress).run(target);
        bar.finish_and_clear();
        done
    }
}

/// The source's name. `None` for `DIR/.`, which means the contents of DIR.
fn file_name(source: &OsStr) -> Option<&[u8]> {
    let bytes = source.as_bytes();
    let bytes = &bytes[..bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1)];
    match bytes.rsplit(|byte| *byte == b'/').next() {
        None | Some(b"" | b"." | b"..") => None,
        name => name,
    }
}

/// The file at `target`, emptied, or a new one. The flag tells whether it is new.
fn overwrite(change: &Change, target: &[u8], new: &NewFile) -> Result<(File, bool), Failure> {
    let fresh = change.metadata_following_links(target)?.is_none();
    change.at(target, |fs| {
        let file = match fresh {
            true => fs.create_file(as_path(target), new)?.open()?,
            false => fs.node(as_path(target))?.open()?,
        };
        // In the same transaction, so the old blocks are reused only after this is durable.
        file.set_len(0)?;
        Ok((file, fresh))
    })
}

/// A file of the volume that is being written.
struct To<'a> {
    change: &'a Change,
    target: &'a [u8],
    file: &'a File,
    progress: &'a mut dyn FnMut(u64),
}

impl To<'_> {
    /// Copies all of `from` to the file, starting at byte `at`. Returns where the copy ends.
    fn copy(&mut self, path: &Path, from: &mut dyn Read, mut at: u64) -> Result<u64, Failure> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let mut filled = 0;
            while filled < chunk.len() {
                match from.read(&mut chunk[filled..]) {
                    Ok(0) => break,
                    Ok(n) => filled += n,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Failure::of_file("read", path, error)),
                }
            }
            if filled == 0 {
                return Ok(at);
            }
            // A chunk of zeros stays a hole.
            if chunk[..filled].iter().any(|byte| *byte != 0) {
                let wrote =
                    self.change.at(self.target, |_| self.file.write_all_at(&chunk[..filled], at));
                wrote.map_err(|failure| match failure {
                    Failure::Message(text) if at > 0 => {
                        Failure::Message(format!("{text} (after {})", amount::shown(at)))
                    }
                    failure => failure,
                })?;
            }
            at += filled as u64;
            (self.progress)(filled as u64);
        }
    }

    /// Extends the file to the length of its source, which may end with a hole.
    fn end_at(&self, end: u64) -> Result<(), Failure> {
        match self.file.metadata().len() < end {
            true => self.change.at(self.target, |_| self.file.set_len(end)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_goes_by_its_last_part() {
        for (source, name) in [
            ("a/b", Some("b")),
            ("a/b/", Some("b")),
            ("a", Some("a")),
            ("a/.", None),
            (".", None),
            ("/", None),
            ("..", None),
        ] {
            assert_eq!(file_name(source.as_ref()), name.map(str::as_bytes), "{source}");
        }
    }
}
