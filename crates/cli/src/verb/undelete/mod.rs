//! `extant undelete`: finds deleted files, and copies what is left of them.
//!
//! ```text
//!   search, or the tree at a time ─┬─► list   state, time of deletion, size, path
//!                                  └─► copy   into a directory elsewhere
//! ```

mod copy;
mod output;
mod show;

use crate::bar::Bar;
use crate::failure::{Failure, print_message};
use crate::image::{Image, inner_path};
use crate::moment;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::Filesystem;
use extant::undelete::{AsOf, Options, PastFile, PastFiles, PastTree, State};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Find deleted files, and copy them out of a volume.
///
/// The journal has older copies of inodes and directories until it is written over. What is found
/// there is listed with its state: whole (nothing shows that one of its blocks was written over),
/// partial (some were, or are in use now), gone (all). IMG is not changed. The less was written to
/// it since the deletion, the more is found: do not mount it before. With --as-of, the tree is
/// shown as it was at a time: names and attributes that are not certain are marked, and each file
/// is deleted, changed or the same now. Encrypted files are left out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant undelete disk.img                       list
  extant undelete disk.img -o found              copy all whole files into the directory found
  extant undelete disk.img /home/ann -o found    only what was in /home/ann
  extant undelete --partial disk.img -o found    partial files, too: lost parts are zeros
  extant undelete --as-of 10m disk.img /home     what was in /home ten minutes ago
  extant undelete --as-of '2026-11-14 22:13' disk.img -o found

TIME is 2026-11-14, '2026-11-14 22:13' or '2026-11-14 22:13:20' in UTC, @SECONDS since 1970, or
90s, 10m, 2h, 3d for so long ago. The journal has a state for each commit: the last one by then.

A file whose name was not found is called # and its inode number. Of a file with several names all
are found that it had at the end; the copies are hard links.

Exit status: 0 done, 1 something could not be copied.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Only files at or below this path
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// List the files, and copy none (the default without -o)
    #[arg(short, long, conflicts_with = "output")]
    list: bool,
    /// Copy the files into this directory, which must not be on the volume
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Show the tree as it was at this time
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// Copy partial files, too; parts that are lost are zeros. With --as-of also files that were
    /// changed since: parts of them may be newer
    #[arg(long, requires = "output")]
    partial: bool,
    /// Do not keep owners, even as root
    #[arg(long, requires = "output")]
    no_owner: bool,
    /// Print one JSON object for each file (docs/JSON.md)
    #[arg(long)]
    json: bool,
}

/// What is known of the tree at a time, as JSON: the last line.
#[derive(Serialize)]
struct Moment {
    /// When the transaction was committed that it shows.
    as_of: u64,
    /// Directories whose names are not all known.
    incomplete: Vec<String>,
}

/// Files by state.
#[derive(Default)]
struct Counts {
    whole: u64,
    partial: u64,
    gone: u64,
    /// Those of them without a name.
    nameless: u64,
    /// Those of them that were changed since.
    changed: u64,
}

/// What was found.
enum Found {
    Deleted(PastFiles),
    Tree(PastTree),
}

impl Found {
    fn files(&self) -> &PastFiles {
        match self {
            Found::Deleted(files) => files,
            Found::Tree(tree) => tree.files(),
        }
    }

    fn tree(&self) -> Option<&PastTree> {
        match self {
            Found::Deleted(_) => None,
            Found::Tree(tree) => Some(tree),
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let below = self.path.as_deref().map(inner_path).transpose()?;
        let below = below.as_deref();
        let fs = image.open()?;
        let mut copy = match &self.output {
            Some(dir) => {
                let superblock = fs.superblock();
                let block = superblock.block_size.bytes() as u64;
                let len = superblock.blocks_count.saturating_mul(block);
                output::refuse_on_source(&image, len, dir)?;
                Some(copy::Copy::into(dir, !self.no_owner)?)
            }
            None => None,
        };
        let found = self.find(&image, &fs)?;
        let files = found.files();
        let as_of = found.tree().is_some();
        let mut out = Out::new();
        let mut counts = Counts::default();
        let mut failed = false;
        for file in files.files().iter().filter(|file| is_wanted(file, below)) {
            counts.add(file);
            let mut copied = Vec::new();
            if let Some(copy) = copy.as_mut().filter(|_| self.is_copied(file)) {
                match copy.file(files, file, &names_below(file, below)) {
                    Ok(names) => copied = names,
                    Err(error) => {
                        failed = true;
                        let name = name_of(file);
                        print_message(format_args!(
                            "{}: {}: {error}",
                            Shown::path(&image.name),
                            Shown(&name)
                        ));
                    }
                }
            }
            match self.json {
                true => show::json(&mut out, file, &copied, as_of)?,
                false if copy.is_none() => show::line(&mut out, file, as_of)?,
                false => {}
            }
        }
        if let Some(copy) = copy {
            failed |= !copy.finish();
        }
        match (self.json, found.tree()) {
            (false, _) => self.report(&mut out, &image, &found, &counts)?,
            (true, Some(tree)) => {
                let path = |path: &PathBuf| encoded(path.as_os_str().as_bytes());
                let incomplete = tree.incomplete().iter().map(path).collect();
                out.json(&Moment { as_of: tree.committed_at(), incomplete })?;
            }
            (true, None) => {}
        }
        out.finish()?;
        Ok(u8::from(failed))
    }

    fn find(&self, image: &Image, fs: &Filesystem) -> Result<Found, Failure> {
        let time = match &self.as_of {
            Some(text) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.map_or(0, |now| now.as_secs());
                Some(moment::parse(text, now).map_err(Failure::usage)?)
            }
            None => None,
        };
        let bar = Bar::new(self.json);
        let options = Options::default();
        let found = match time {
            None => fs.deleted_files(&options, &bar).map(Found::Deleted),
            Some(time) => match fs.files_as_of(time, &options, &bar) {
                Ok(AsOf::Tree(tree)) => Ok(Found::Tree(tree)),
                Ok(AsOf::TooEarly { since }) => {
                    bar.clear();
                    return Err(too_early(image, time, since));
                }
                Err(error) => Err(error),
            },
        };
        bar.clear();
        found.map_err(|error| Failure::of_image(&image.name, &error))
    }

    fn is_copied(&self, file: &PastFile) -> bool {
        match file.state() {
            State::Whole => self.partial || !file.is_changed(),
            State::Partial { .. } => self.partial,
            _ => false,
        }
    }

    /// Prints what was found, and what to do next.
    fn report(
        &self,
        out: &mut Out,
        image: &Image,
        found: &Found,
        counts: &Counts,
    ) -> Result<(), Failure> {
        let name = Shown::path(&image.name);
        let Counts { whole, partial, gone, nameless, changed } = counts;
        if let Some(tree) = found.tree() {
            let time = moment::seconds(tree.committed_at());
            out.text(format_args!("{name}: as of the commit at {time}\n"))?;
            for path in tree.incomplete() {
                let path = Shown::path(path);
                out.text(format_args!("{name}: {path}: names are missing or newer\n"))?;
            }
        }
        if whole + partial + gone == 0 {
            let what = if found.tree().is_some() { "files" } else { "deleted files" };
            let there =
                if self.path.is_some() { " there: without PATH, all are listed" } else { "" };
            return out.text(format_args!("{name}: no {what} were found{there}\n"));
        }
        let next = match (&self.output, self.partial) {
            (None, _) => ": -o DIR copies them",
            (Some(_), false) if *partial > 0 => ": --partial copies the partial ones, too",
            (Some(_), false) if *changed > 0 => ": --partial copies the changed ones, too",
            _ => "",
        };
        let more = |count: &u64, what| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let (nameless, changed) =
            (more(nameless, "of them without a name"), more(changed, "of them changed since"));
        out.text(format_args!(
            "{name}: {whole} whole, {partial} partial, {gone} gone{nameless}{changed}{next}\n"
        ))?;
        let files = found.files();
        match files.count() - files.files().len() as u64 {
            0 => Ok(()),
            more => out.text(format_args!("{name}: {more} more were not examined\n")),
        }
    }
}

impl Counts {
    fn add(&mut self, file: &PastFile) {
        match file.state() {
            State::Whole => self.whole += 1,
            State::Partial { .. } => self.partial += 1,
            _ => self.gone += 1,
        }
        self.nameless += u64::from(file.path().is_none());
        self.changed += u64::from(file.is_changed() && file.metadata().is_file());
    }
}

/// The journal does not go back to `time`.
fn too_early(image: &Image, time: u64, since: Option<u64>) -> Failure {
    let name = Shown::path(&image.name);
    let time = moment::seconds(time);
    match since {
        Some(since) => Failure::new(format_args!(
            "{name}: the journal does not go back to {time}: name a time from {} on",
            moment::seconds(since)
        )),
        None => Failure::new(format_args!(
            "{name}: the journal has no earlier state: without --as-of, deleted files are listed"
        )),
    }
}

/// The path, or `#` and the inode number.
fn name_of(file: &PastFile) -> Vec<u8> {
    match file.path() {
        Some(path) => path.as_os_str().as_bytes().to_vec(),
        None => format!("#{}", file.metadata().ino().get()).into_bytes(),
    }
}

/// The names of a file at or below a path; `#` and the number for one without a name.
fn names_below(file: &PastFile, below: Option<&[u8]>) -> Vec<Vec<u8>> {
    if file.paths().is_empty() {
        return vec![name_of(file)];
    }
    let paths = file.paths().iter().map(|path| path.as_os_str().as_bytes());
    paths.filter(|path| is_below(path, below)).map(<[u8]>::to_vec).collect()
}

fn is_wanted(file: &PastFile, below: Option<&[u8]>) -> bool {
    match file.paths() {
        [] => below.is_none_or(|below| below == b"/"),
        paths => paths.iter().any(|path| is_below(path.as_os_str().as_bytes(), below)),
    }
}

fn is_below(path: &[u8], below: Option<&[u8]>) -> bool {
    let Some(below) = below else { return true };
    let below = below.strip_suffix(b"/").unwrap_or(below);
    path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
