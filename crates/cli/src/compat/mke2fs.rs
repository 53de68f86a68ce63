//! `mke2fs`, `mkfs.ext2`, `mkfs.ext3`, `mkfs.ext4`: make a volume.
//!
//! ```text
//!   options ─┐
//!   profile ─┼─► request ─► planned ─► question ─► target ─┬─► mkfs::format
//!   device  ─┘              (-n ends)                      └─► ImageBuilder::fill (-d)
//! ```

mod extended;
mod features;
mod options;
mod profile;
mod report;
mod request;
mod target;

use super::Call;
use super::console::Console;
use super::getopt::{self, Words};
use super::words;
use crate::failure::Failure;
use crate::shown::Shown;
use crate::stop::Stop;
use crate::verb::mkfs::source_date_epoch;
use extant::environment::FixedClock;
use extant::mkfs::{self, Planned};
use extant::{Environment, Error, Timestamp};
use extant_image::{
    BuildError, ImageBuilder, Meta, SourceError, SourceKind, SourceOptions, SourceSpec, Time, Tree,
};
use options::{Options, Wrong};
use profile::Profile;
use request::{Place, Reader, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use target::{Kind, Target};

const USAGE: &str = "[-c|-l filename] [-b block-size] [-C cluster-size]\n\
\t[-i bytes-per-inode] [-I inode-size] [-J journal-options]\n\
\t[-G flex-group-size] [-N number-of-inodes] [-d root-directory]\n\
\t[-m reserved-blocks-percentage] [-o creator-os]\n\
\t[-g blocks-per-group] [-L volume-label] [-M last-mounted-directory]\n\
\t[-O feature[,...]] [-r fs-revision] [-E extended-option[,...]]\n\
\t[-t fs-type] [-T usage-type ] [-U UUID] [-e errors_behavior][-z undo_file]\n\
\t[-jnqvDFSV] device [blocks-count]\n";

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    let short = Path::new(console.name()).file_name().map(getopt::text).unwrap_or_default();
    console.set_name(&short);
    let words = Words::read(call.arguments, options::KNOWN);
    let options = match Options::of(&words, console) {
        Ok(options) => options,
        Err(wrong) => return complain(wrong, console),
    };
    if options.version {
        return Ok(console.version("mke2fs"));
    }
    if words.operands.is_empty() {
        return complain(Wrong::Usage(None), console);
    }
    if !options.quiet {
        console.error(format_args!("{}", Console::banner("mke2fs")));
    }
    let (name, size) = match &words.operands[..] {
        [name] => (name, None),
        [name, size] => (name, Some(getopt::text(size))),
        _ => return complain(Wrong::Usage(None), console),
    };
    let profile = match Profile::load() {
        Ok(profile) => profile,
        Err(error) => {
            let (path, line) = (Shown::path(&error.path), error.line);
            let text = format!(
                "Syntax error in mke2fs config file ({path}, line #{line})\n\t{}\n",
                error.why
            );
            return complain(Wrong::Text(text), console);
        }
    };
    let environment = environment()?;
    let call = Make {
        path: Path::new(name),
        named_type: short.strip_prefix("mkfs.").filter(|name| !name.is_empty()),
        options: &options,
        environment,
    };
    match call.run(&profile, size.as_deref(), console)? {
        Ok(code) => Ok(code),
        Err(wrong) => complain(wrong, console),
    }
}

/// Prints why a call is refused. Returns the exit status.
fn complain(wrong: Wrong, console: &mut Console) -> Result<u8, Failure> {
    match wrong {
        Wrong::Usage(why) => {
            if let Some(why) = why {
                console.complain(&why);
            }
            let name = console.name().to_owned();
            console.error(format_args!("Usage: {name} {USAGE}"));
        }
        Wrong::Text(text) => console.error(format_args!("{text}")),
        Wrong::Named(text) => console.complain(&text),
        Wrong::Printed(text) => console.print(format_args!("{text}"))?,
    }
    Ok(1)
}

/// The system's clock and randomness. `E2FSPROGS_FAKE_TIME` and `SOURCE_DATE_EPOCH` replace the
/// clock.
fn environment() -> Result<Environment, Failure> {
    let mut environment = Environment::default();
    let fake = std::env::var("E2FSPROGS_FAKE_TIME").ok();
    let fake = fake.and_then(|text| getopt::number(&text)).and_then(|sec| i64::try_from(sec).ok());
    let fixed = match fake {
        Some(sec) => Some(sec),
        None => source_date_epoch()?,
    };
    if let Some(sec) = fixed {
        environment.clock = Arc::new(FixedClock(Timestamp::from_secs(sec)));
    }
    Ok(environment)
}

/// One call of the program.
struct Make<'a> {
    path: &'a Path,
    named_type: Option<&'a str>,
    options: &'a Options,
    environment: Environment,
}

type Done<T> = Result<Result<T, Wrong>, Failure>;

impl Make<'_> {
    fn run(&self, profile: &Profile, size: Option<&str>, console: &mut Console) -> Done<u8> {
        let options = self.options;
        let name = Shown::path(self.path);
        let kind = match Kind::of(self.path) {
            Ok(kind) => kind,
            Err(error) => {
                let why = crate::failure::plain(&error);
                let text = format!("{name}: {why} while setting up superblock\n");
                return Ok(Err(Wrong::Text(text)));
            }
        };
        if kind == Kind::Missing && size.is_some() {
            if options.dry_run {
                let text = "No such file or directory while trying to determine hardware sector \
                            size";
                return Ok(Err(Wrong::Named(text.into())));
            }
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
            if dir.is_some_and(|dir| !dir.is_dir()) {
                let text = "No such file or directory while trying to determine filesystem size";
                return Ok(Err(Wrong::Named(text.into())));
            }
            let unit = request::unit(options);
            if size.and_then(|size| options::scaled(size, unit.ilog2())).is_some() {
                console.print(format_args!("Creating regular file {name}\n"))?;
            }
        }
        let offset = self.offset();
        let reader = Reader {
            options,
            profile,
            place: Place {
                path: self.path,
                bytes: kind.bytes().map(|bytes| bytes.saturating_sub(offset)),
                sector: target::sector(self.path),
                size,
            },
            named_type: self.named_type,
            environment: &self.environment,
        };
        let mut request = match reader.read(console)? {
            Ok(request) => request,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let offset = request.extended.offset.unwrap_or(0);
        if offset > 0 && size.is_none() {
            let blocks = request.blocks;
            console.error(format_args!(
                "\nWarning: offset specified without an explicit file system size.\n\
                 Creating a file system with {blocks} blocks but this might\n\
                 not be what you want.\n\n"
            ));
        }
        let bytes = request.blocks.saturating_mul(request.block_bytes);
        if let Kind::Device(have) = kind
            && offset.checked_add(bytes).is_none_or(|end| end > have)
        {
            let text = "Filesystem larger than apparent device size.";
            return Ok(Err(Wrong::Named(text.into())));
        }
        let planned = match request.plan(bytes) {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(self.unfit(&error))),
        };
        if let Err(error) = mkfs::fits(&request.mkfs, bytes) {
            return Ok(Err(self.unfit(&error)));
        }
        let asks = !options.force && !options.dry_run && offset == 0 && kind != Kind::Missing;
        if asks && !target::confirm(self.path, console)? {
            return Ok(Ok(1));
        }
        if options.verbose && !options.quiet {
            let types: Vec<String> = request.types.iter().map(|name| format!("'{name}'")).collect();
            let types = types.join(", ");
            console.print(format_args!("fs_types for mke2fs.conf resolution: {types}\n"))?;
        }
        if !options.quiet {
            report::volume(&request, &planned, options.verbose, console)?;
            console.flush()?;
        }
        if options.dry_run {
            return Ok(Ok(0));
        }
        self.make(kind, &request, &planned, console)
    }

    /// The offset that the words of `-E` give. What is wrong with them is said later.
    fn offset(&self) -> u64 {
        let mut extended = extended::Extended::default();
        let _ = extended.take(self.options.extended.as_deref().unwrap_or(""));
        extended.offset.unwrap_or(0)
    }

    /// Why a volume cannot have this size or these options.
    fn unfit(&self, error: &Error) -> Wrong {
        let name = Shown::path(self.path);
        let why = match error {
            Error::Invalid(why) if why.contains("too small") => {
                "Not enough space to build proposed filesystem".to_owned()
            }
            error => words::of(error).text,
        };
        Wrong::Text(format!("{name}: {why} while setting up superblock\n"))
    }

    fn make(
        &self,
        kind: Kind,
        request: &Request,
        planned: &Planned,
        console: &mut Console,
    ) -> Done<u8> {
        let quiet = self.options.quiet;
        let name = Shown::path(self.path);
        // The source is read first: if that fails, nothing was changed.
        let tree = match self.options.source.as_deref().map(|source| self.tree(source)) {
            None => None,
            Some(Ok(tree)) => Some(tree),
            Some(Err(text)) => return Ok(Err(Wrong::Named(text))),
        };
        let stop = Stop::listen()?;
        stop.defer_signals();
        let offset = request.extended.offset.unwrap_or(0);
        let bytes = request.blocks * request.block_bytes;
        let target = match Target::open(self.path, kind, (offset, bytes), request.discard) {
            Ok(target) => target,
            Err(Error::Busy) => {
                let how = match target::is_mounted(self.path) {
                    true => "mounted",
                    false => "apparently in use by the system",
                };
                let text = format!("{name} is {how}; will not make a filesystem here!\n");
                return Ok(Err(Wrong::Text(text)));
            }
            Err(error) => return Ok(Err(self.unfit(&error))),
        };
        if kind == Kind::Missing {
            stop.remove_when_ended(self.path);
        } else {
            stop.end_on_signals();
        }
        if request.journal && planned.journal_blocks == 0 {
            console.error(format_args!("\nFilesystem too small for a journal\n"));
        }
        if !quiet {
            report::tables(planned, console)?;
            if tree.is_some() {
                console.print(format_args!("Copying files into the device: "))?;
                console.flush()?;
            }
        }
        let options = request.mkfs.clone().zeroed(target.zeroed);
        let made = match &tree {
            None => mkfs::format(target.device, &options, &self.environment)
                .map(drop)
                .map_err(BuildError::Engine),
            Some(tree) => ImageBuilder::new().mkfs(options).fill(
                tree,
                &target.device,
                &self.environment,
                &(),
                &stop.flag,
            ),
        };
        if let Err(error) = made {
            if kind == Kind::Missing {
                // An incomplete volume is of no use.
                let _ = std::fs::remove_file(self.path);
            }
            let doing =
                if tree.is_some() { "populating file system" } else { "writing superblocks" };
            let why = reason(&error);
            return Ok(Err(Wrong::Named(format!("{why} while {doing}"))));
        }
        stop.end_on_signals();
        if !quiet {
            if tree.is_some() {
                console.print(format_args!("done\n"))?;
            }
            report::complete(planned, console)?;
        }
        Ok(Ok(0))
    }

    /// The content for the volume, from a directory, a tar, or standard input.
    fn tree(&self, source: &OsStr) -> Result<Tree, String> {
        let kind = match Path::new(source).is_dir() {
            true => SourceKind::Directory,
            false => SourceKind::Tar,
        };
        // They replace functions of libc, which this program does not use to read attributes: it
        // would see the real owners, and no devices.
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let faked = ["FAKEROOTKEY", "PSEUDO_PREFIX"].iter().find(|name| is_set(name));
        if let (SourceKind::Directory, Some(name)) = (kind, faked) {
            return Err(format!(
                "the owners that {name} stands for cannot be read: pack the directory with tar, \
                 and give the archive to -d"
            ));
        }
        let spec = SourceSpec { path: source.into(), kind: Some(kind) };
        let mut read = SourceOptions::new();
        // The image may lie in the directory.
        if let Ok(meta) = std::fs::metadata(self.path)
            && meta.is_file()
        {
            let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
            read = read.skip_inode(device, meta.ino());
        }
        let populating = |error: SourceError| {
            let missing = !Path::new(source).exists() && source.as_bytes() != b"-";
            let why = if missing { "No such file or directory".into() } else { error.to_string() };
            format!("{why} while populating file system")
        };
        let mut tree = Tree::read(&[spec], &read, &()).map_err(populating)?;
        let words = self.options.extended.as_deref().unwrap_or("");
        let mut extended = extended::Extended::default();
        let _ = extended.take(words);
        let (uid, gid) = extended.root_owner.unwrap_or((0, 0));
        let now = self.environment.now();
        let mtime = Time { sec: now.sec, nsec: now.nsec };
        // As the original: attributes of the source's root are copied, its owner and mode are not.
        tree.set_root(Meta { mode: extended.root_mode.unwrap_or(0o755), uid, gid, mtime });
        Ok(tree)
    }
}

/// Why a volume could not be made, in the original's words.
fn reason(error: &BuildError) -> String {
    match error {
        BuildError::Engine(Error::NoSpace) => {
            "Could not allocate block in ext2 filesystem".to_owned()
        }
        BuildError::Engine(error) => words::of(error).text,
        error => error.to_string(),
    }
}
