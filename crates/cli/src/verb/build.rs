//! `extant build`: builds an image from directories, tar archives and container images.
//!
//! ```text
//!   SRC… ──► Tree::read ──► ImageBuilder::build ──► OUT.partial ──► OUT
//!    reading, one spinner     a bar with rate and time left          └ only when complete
//! ```

mod stdout;

use crate::bar::Bar;
use crate::failure::{Failure, print_message, without_number};
use crate::image::Image;
use crate::out::Out;
use crate::shown::Shown;
use crate::stop::Stop;
use crate::verb::mkfs::format_options::{FormatOptions, owner};
use crate::verb::mkfs::{compat_list, source_date_epoch};
use crate::{amount, shown, signature};
use extant::Environment;
use extant_image::{
    BuildError, Built, Excludes, ImageBuilder, ImageSize, ModeChange, Ownership, SourceError,
    SourceKind, SourceOptions, SourceSpec, Tree,
};
use serde::Serialize;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;
use stdout::StdoutImage;

/// Percentage of blocks reserved for root: an image is filled once, and made as small as possible.
const RESERVED_PERCENT: f64 = 0.0;

/// Build an image from directories, tar archives and container images.
///
/// SRC is a directory, a tar archive (plain, gzip or zstd), an OCI layout, the output of `docker
/// save` or of `skopeo copy … dir:SRC`, or - for an archive on standard input. The format is
/// detected, or given as dir:SRC, tar:SRC or oci:SRC. Several sources are merged in order: a later
/// one replaces names of an earlier one. Owners, modes, times, extended attributes, ACLs,
/// capabilities, hard links, devices and holes are kept, also when a normal user builds. Blocks of
/// zeros in files of 64 KiB and more become holes. The layers of a container image must have the
/// digests in its config.
///
/// The same sources and options give the same image, byte for byte: UUID, hash seed and the
/// volume's own times are computed from the content. OUT gets its name when the image is complete;
/// with -o - the complete image is written to standard output.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "extant build [OPTIONS] <SRC>... -o <OUT>",
    after_long_help = "Examples:
  extant build ./rootfs -o root.img
  extant build base.tar.zst ./overlay -o root.img --free 256M --owner 0:0
  docker save app | extant build - -o app.img --size 2G
  extant build ./rootfs -o root.img --exclude '*.pyc' --exclude /var/cache --compat kernel-4.19
  extant build ./rootfs -o - | ssh host 'cat > root.img'
  extant build --compat help

Exit status: 0 built, 1 failed (there is no image) or, with --keep-going, a file was skipped,
2 wrong usage, 130 interrupted."
)]
pub(crate) struct Args {
    /// Directory, tar archive, OCI layout or docker archive; - for standard input
    #[arg(value_name = "SRC")]
    sources: Vec<OsString>,
    /// Image to create, or block device to fill; - for standard output
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Size of the image, or auto: the smallest that holds the sources
    #[arg(short, long, value_name = "SIZE", default_value = "auto", value_parser = size)]
    size: Size,
    /// Free space to add with --size auto
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes)]
    free: Option<u64>,
    /// Set the owner and group of every file
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<(u32, u32)>,
    /// Change permissions: octal, or symbolic as for chmod (u+rwX,go-w); D or F before a clause
    /// limits it to directories or files (D0755,F0644)
    #[arg(long, value_name = "MODE", value_parser = super::chmod::mode)]
    mode: Option<ModeChange>,
    /// File with owners and modes of paths, one per line: PATH UID GID [MODE]. PATH may contain the
    /// patterns *, ? and **; the value - changes nothing
    #[arg(long, value_name = "FILE")]
    ownership: Option<PathBuf>,
    /// Omit files that match, with the patterns of .gitignore: *.o in every directory, /var/cache
    /// from the root, !PATTERN includes again; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// File with patterns of files to omit, one per line
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Keep mount points below a source directory as empty directories
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Format of the sources, instead of detecting it
    #[arg(long, value_name = "KIND", value_enum)]
    format: Option<Format>,
    /// Platform to choose from a container image for several: os/architecture
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// Name or tag of the image to choose from an archive with several
    #[arg(long, value_name = "NAME")]
    image_name: Option<String>,
    #[command(flatten)]
    volume: FormatOptions,
    /// Minimum number of inodes
    #[arg(short = 'N', long, value_name = "COUNT")]
    inodes: Option<u32>,
    /// Times of the volume, and the latest time of an entry, in seconds since 1970; default:
    /// $SOURCE_DATE_EPOCH, or the time of the newest entry
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = amount::number::<i64>)]
    source_date_epoch: Option<i64>,
    /// Random UUID and hash seed, and the current time: the image is not reproducible
    #[arg(long)]
    random: bool,
    /// Compute UUID, hash seed and times from the content, which is the default
    #[arg(long, conflicts_with = "random")]
    reproducible: bool,
    /// Skip files that cannot be read or that disappear, and list them at the end
    #[arg(long)]
    keep_going: bool,
    /// Number of threads; default: the number of processors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Directory for temporary files with the content of compressed archives
    #[arg(long, value_name = "DIR")]
    spool_dir: Option<PathBuf>,
    /// Refuse a source whose archives have a larger unpacked size, headers included
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes)]
    max_size: Option<u64>,
    /// Replace a disk image, a volume or an archive; overwrite a filesystem on a block device
    #[arg(short, long)]
    force: bool,
    /// Print what was built as JSON (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing and show no progress
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Clone, Copy, Debug)]
enum Size {
    Auto,
    Bytes(u64),
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// A directory
    Dir,
    /// A tar archive, plain or compressed
    Tar,
    /// An OCI layout or the output of `docker save`
    Oci,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    bytes: u64,
    block_bytes: usize,
    inodes: u64,
    data_bytes: u64,
    free_bytes: u64,
    uuid: String,
    left_out: Vec<String>,
}

impl Args {
    /// `command_line` is the definition of the whole command line, for an error about it.
    pub(crate) fn run(self, command_line: fn() -> clap::Command) -> Result<u8, Failure> {
        if self.volume.wants_compat_list() {
            return compat_list();
        }
        let Some(output) = self.output.clone().filter(|_| !self.sources.is_empty()) else {
            let what = if self.sources.is_empty() { "<SRC>..." } else { "-o <OUT>" };
            let text = format!("the required argument {what} is missing");
            let mut command = command_line();
            command.build();
            let command = command.find_subcommand_mut("build").expect("this verb is one of them");
            command.error(clap::error::ErrorKind::MissingRequiredArgument, text).exit();
        };
        let builder = self.builder()?;
        // Built in the spool directory, and sent when it is complete.
        let to_stdout = match output.as_os_str() == "-" {
            true => Some(self.stdout_image()?),
            false => None,
        };
        let output = to_stdout.as_ref().map_or(output, |image| image.path());
        if to_stdout.is_none() {
            self.check_output(&output)?;
        }
        let stop = Stop::listen()?;
        let options = self.source_options(&output)?;
        let specs: Vec<SourceSpec> = self.sources.iter().map(|source| self.spec(source)).collect();

        let started = Instant::now();
        let bar = Bar::of_build(self.quiet);
        let tree = Tree::read(&specs, &options, &bar).map_err(|error| {
            bar.clear();
            unreadable(&error)
        })?;
        stop.defer_signals();
        let built = builder.build(&tree, &output, &bar, &stop.flag);
        bar.clear();
        let problems = tree.take_problems();
        for problem in &problems {
            print_message(without_number(&problem.to_string()));
        }
        match built {
            Ok(built) => {
                if let Some(image) = to_stdout {
                    image.send(&stop.flag)?;
                    if stop.flag.load(Ordering::Relaxed) {
                        return Ok(stop.exit_status());
                    }
                }
                self.answer(&output, &built, &problems, started)?;
                Ok(u8::from(!problems.is_empty()))
            }
            Err(BuildError::Stopped) => {
                print_message(format_args!(
                    "{}: interrupted: no image was created",
                    Shown::path(&output)
                ));
                Ok(stop.exit_status())
            }
            Err(BuildError::Engine(error)) => Err(Failure::of_image(&output, &error)),
            Err(error @ BuildError::Entry { .. }) => {
                let error = without_number(&error.to_string());
                Err(Failure::Message(format!("{error} (from {})", self.named_sources())))
            }
            Err(error) => Err(Failure::new(error)),
        }
    }

    /// The temporary file in which an image for standard output is built.
    fn stdout_image(&self) -> Result<StdoutImage, Failure> {
        if self.json {
            return Err(Failure::usage(
                "the image and JSON cannot both go to standard output: name a file with -o, or \
                 omit --json",
            ));
        }
        if std::io::stdout().is_terminal() {
            return Err(Failure::new(
                "the image would be written to a terminal: name a file with -o, or use a pipe",
            ));
        }
        StdoutImage::new(&self.spool_dir.clone().unwrap_or_else(std::env::temp_dir))
    }

    /// The names of the sources, for a message.
    fn named_sources(&self) -> String {
        let names: Vec<String> =
            self.sources.iter().map(|source| Shown(source.as_bytes()).to_string()).collect();
        names.join(" or ")
    }

    /// Checks before the work whether an image can be written to the output.
    fn check_output(&self, output: &Path) -> Result<(), Failure> {
        let name = Shown::path(output);
        if Image::parse(output.as_os_str())?.path != output {
            return Err(Failure::usage(format_args!(
                "{name}: build writes one file or device from its start: for an offset or several \
                 devices use mkfs, then put or apply-tar"
            )));
        }
        if let Some(format) = other_format(output)
            && !self.force
        {
            return Err(Failure::usage(format_args!(
                "{name}: extant writes raw images, not {format}: name the file .img and convert \
                 it afterwards, or use --force"
            )));
        }
        let Ok(meta) = std::fs::metadata(output) else { return Ok(()) };
        let kind = meta.file_type();
        if kind.is_block_device() {
            if !self.force
                && let Some(found) = signature::find(output, 0)
                    .map_err(|error| Failure::of_file("read", output, error))?
            {
                let text = format!("{name}: contains {found}: use --force to overwrite it");
                return Err(Failure::new(text));
            }
        } else if kind.is_file() {
            if !self.force
                && let Some(found) = signature::known(output, 0)
                    .map_err(|error| Failure::of_file("read", output, error))?
            {
                let found = found.name;
                let text = format!("{name}: the file is {found}: use --force to replace it");
                return Err(Failure::new(text));
            }
        } else {
            return Err(Failure::new(format!(
                "{name}: neither a file nor a block device: name the image to create"
            )));
        }
        Ok(())
    }

    fn builder(&self) -> Result<ImageBuilder, Failure> {
        let mkfs = self.volume.options(Some(RESERVED_PERCENT))?;
        let size = match (self.size, self.free) {
            (Size::Auto, free) => ImageSize::Auto { free: free.unwrap_or(0) },
            (Size::Bytes(bytes), None) => ImageSize::Bytes(bytes),
            (Size::Bytes(_), Some(_)) => {
                return Err(Failure::usage(
                    "--free can be used with --size auto only: omit --free or --size",
                ));
            }
        };
        let mut builder = ImageBuilder::new().mkfs(mkfs).size(size).random(self.random);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads.into());
        }
        if let Some(block_size) = self.volume.block_size {
            builder = builder.block_size(block_size);
        }
        if let Some(count) = self.inodes {
            builder = builder.inodes(count);
        }
        if let Some(uuid) = self.volume.uuid_bytes(&Environment::default()) {
            builder = builder.uuid(uuid);
        }
        let epoch = match self.source_date_epoch {
            Some(sec) => Some(sec),
            None => source_date_epoch()?,
        };
        if let Some(sec) = epoch {
            builder = builder.source_date_epoch(sec);
        }
        Ok(builder)
    }

    fn source_options(&self, output: &Path) -> Result<SourceOptions, Failure> {
        let mut excludes = Excludes::new();
        for pattern in &self.exclude {
            excludes.add(pattern.as_bytes()).map_err(Failure::usage)?;
        }
        for file in &self.exclude_from {
            excludes.add_file(file).map_err(Failure::new)?;
        }
        let mut options = SourceOptions::new()
            .one_file_system(self.one_file_system)
            .keep_going(self.keep_going)
            .excludes(excludes);
        if let Some(threads) = self.threads {
            options = options.threads(threads.into());
        }
        if let Some((uid, gid)) = self.owner {
            options = options.owner(uid, gid);
        }
        if let Some(change) = &self.mode {
            options = options.mode(change.clone());
        }
        if let Some(file) = &self.ownership {
            options = options.ownership(Ownership::read(file).map_err(Failure::new)?);
        }
        if let Some(dir) = &self.spool_dir {
            options = options.spool_dir(dir);
        }
        if let Some(bytes) = self.max_size {
            options = options.max_unpacked(bytes);
        }
        options = options.zeros_are_holes(self.volume.block_size.map_or(4096, |size| size.bytes()));
        if let Some(platform) = &self.platform {
            options = options.platform(platform);
        }
        if let Some(name) = &self.image_name {
            options = options.image_name(name);
        }
        // An image from an earlier build in the same place must not become part of the new one.
        let mut partial = output.file_name().unwrap_or_default().to_owned();
        partial.push(".partial");
        for path in [output.to_path_buf(), output.with_file_name(partial)] {
            if let Ok(meta) = std::fs::metadata(&path)
                && meta.is_file()
            {
                let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
                options = options.skip_inode(device, meta.ino());
            }
        }
        Ok(options)
    }

    fn spec(&self, source: &OsString) -> SourceSpec {
        match self.format {
            None => SourceSpec::parse(source),
            Some(format) => SourceSpec {
                path: source.into(),
                kind: Some(match format {
                    Format::Dir => SourceKind::Directory,
                    Format::Tar => SourceKind::Tar,
                    Format::Oci => SourceKind::Image,
                }),
            },
        }
    }

    fn answer(
        &self,
        output: &Path,
        built: &Built,
        problems: &[extant_image::SourceError],
        started: Instant,
    ) -> Result<(), Failure> {
        // Standard output carries the image.
        let is_stdout = self.output.as_deref() == Some(Path::new("-"));
        if self.quiet || is_stdout {
            return Ok(());
        }
        let mut out = Out::of_report();
        let uuid = shown::uuid(&built.uuid);
        if self.json {
            out.json(&Answer {
                image: shown::encoded(output.as_os_str().as_bytes()),
                bytes: built.bytes,
                block_bytes: built.block_bytes,
                inodes: built.inodes,
                data_bytes: built.data_bytes,
                free_bytes: built.free_bytes,
                uuid,
                left_out: problems.iter().map(ToString::to_string).collect(),
            })?;
        } else {
            let (name, size) = (Shown::path(output), amount::shown(built.bytes));
            let (data, free) = (amount::shown(built.data_bytes), amount::shown(built.free_bytes));
            let (inodes, seconds) = (built.inodes, started.elapsed().as_secs_f64());
            out.text(format_args!(
                "{name}: {size}, {inodes} files and directories with {data} of content, {free} \
                 free, built in {seconds:.1} s\nUUID {uuid}\n"
            ))?;
            if !problems.is_empty() {
                print_message(format_args!("{name}: {} entries were skipped", problems.len()));
            }
        }
        out.finish()
    }
}

/// The format that the extension of an output suggests, if that is not a raw image.
fn other_format(output: &Path) -> Option<&'static str> {
    match output.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "qcow2" | "qcow" => Some("qcow2"),
        "vmdk" => Some("VMDK"),
        "vdi" => Some("VDI"),
        "vhd" | "vhdx" => Some("VHD"),
        "xz" => Some("xz"),
        "gz" | "tgz" => Some("gzip"),
        "zst" => Some("zstd"),
        "bz2" => Some("bzip2"),
        "tar" => Some("tar"),
        _ => None,
    }
}

/// An error of a source. If a file is not an archive, the error names its format.
fn unreadable(error: &SourceError) -> Failure {
    if let SourceError::Archive { archive, offset: 0, entry, .. } = error
        && entry.is_empty()
        && archive.is_file()
        && let Ok(Some(found)) = signature::known(archive, 0)
    {
        let (name, found) = (Shown::path(archive), found.name);
        return Failure::new(format_args!(
            "{name}: {found}, not a tar archive: name a directory, an archive or a container image"
        ));
    }
    Failure::new(error)
}

fn size(text: &str) -> Result<Size, String> {
    match text {
        "auto" => Ok(Size::Auto),
        _ => amount::bytes(text).map(Size::Bytes),
    }
}
