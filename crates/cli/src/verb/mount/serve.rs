//! Serves a mount, from opening the volume until it is closed.

use super::Args;
use super::background;
use super::log::Log;
use super::notify;
use super::options::Options;
use super::source::Source;
use super::statistics;
use crate::failure::{
    Failure, absence_message, explained, ignored_lock_message, plain, print_message,
};
use crate::image::{Image, is_same_file};
use crate::mounts::{Mounted, place_of};
use crate::repaired;
use crate::shown::Shown;
use crate::verb::unmount::dead_mount_message;
use extant::dax::ByteLogMode;
use extant::{Error, Filesystem, OpenOptions};
use extant_base::IoOp;
use extant_fuse::{
    AccessTimes, IdMap, MountError, MountOptions, Session, Transport, Unmounter, Volume,
    VolumeOptions,
};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Opens the volume, mounts it, and returns when it is unmounted and clean.
pub(super) fn serve(args: &Args) -> Result<u8, Failure> {
    let options = args.options()?;
    let image = Image::parse(&args.image)?;
    unmount_dead(&image, &args.dir)?;
    let dir = std::fs::canonicalize(&args.dir)
        .map_err(|error| Failure::of_file("mount on it", &args.dir, error))?;
    let log = Arc::new(match &args.log {
        Some(path) => Log::file(path)?,
        None if args.in_background => Log::system(),
        None => Log::stderr(),
    });
    if args.in_background {
        // The terminal's signals are for the process that started this one. `setsid` fails for the
        // leader of a session, which does not need it.
        let _ = rustix::process::setsid();
    }
    let signals = listen(&[SIGTERM, SIGINT, SIGHUP])?;
    let requested = listen(&[SIGUSR1])?;
    let name = Shown::path(&image.name).to_string();
    let fs = open(&image, &options, args.read.repaired, &log, &name)?;
    statistics::note_on_signal(requested, fs.clone(), Arc::clone(&log), name.clone());
    let served = serve_volume(args, &options, &image, &dir, &fs, &log, signals);
    let closed = fs.close().map_err(|error| format!("{name}: {}", explained(&error)));
    served?;
    if let Err(text) = closed {
        log.note(&text);
        return Err(Failure::Reported);
    }
    Ok(0)
}

/// Unmounts dead mounts: one on `dir`, and those of the same image.
fn unmount_dead(image: &Image, dir: &Path) -> Result<(), Failure> {
    let place = place_of(dir).ok();
    for mounted in Mounted::all()? {
        let is_same = || {
            Image::parse(mounted.image.as_os_str())
                .is_ok_and(|other| is_same_file(&other.path, &image.path))
        };
        if (Some(&mounted.dir) == place.as_ref() || is_same()) && mounted.is_dead() {
            extant_fuse::unmount(&mounted.dir, None, true)
                .map_err(|error| Failure::new(format!("{}: {error}", Shown::path(&mounted.dir))))?;
            print_message(dead_mount_message(&mounted.dir));
        }
    }
    Ok(())
}

fn open(
    image: &Image,
    options: &Options,
    repaired: bool,
    log: &Arc<Log>,
    name: &str,
) -> Result<Filesystem, Failure> {
    let read_only = options.read_only == Some(true);
    let repaired = if repaired { Some(repaired::repaired(image)?) } else { None };
    let mut opening: OpenOptions =
        repaired.as_ref().map_or(image, |(whole, _)| whole).options_to_stay();
    if let Some(bytes) = options.cache_bytes {
        opening.page_cache_bytes(bytes);
    }
    let (log, hooked) = (Arc::clone(log), image.name.clone());
    opening
        .write(!read_only)
        .read_only_if_needed(true)
        .use_reserve(false)
        .dont_cache(options.dont_cache == Some(true))
        .discard(options.discard == Some(true))
        .enforce_quota(options.quota == Some(true))
        .on_error(Arc::new(move |error| match error {
            // Reported while the volume is opened, when standard error is still the caller's.
            Error::Locked { pid } => print_message(ignored_lock_message(&hooked, *pid)),
            Error::Member(member) => log.note(&absence_message(&hooked, member)),
            error => log.note(&format!("{}: {}", Shown::path(&hooked), explained(error))),
        }));
    if let Some(blocks) = options.stripe {
        opening.stripe(blocks);
    }
    if let Some(commit) = options.commit {
        opening.commit_interval(commit);
    }
    if let Some(fast_commits) = options.fast_commits {
        opening.fast_commits(fast_commits);
    }
    if let Some(policy) = options.errors {
        opening.damage_policy(policy);
    }
    if options.no_recovery == Some(true) {
        opening.recover(false);
    }
    if let Some(journal) = &options.journal {
        opening.journal_device(journal);
    }
    if let Some(data) = options.data {
        opening.data_mode(data);
    }
    if let Some(mode) = options.byte_log {
        opening.byte_log(mode);
    }
    if let Some(mode) = options.dax {
        opening.dax(mode);
    }
    let opened = match repaired {
        Some((_, device)) => opening.open_device(device),
        None => opening.open(&image.path),
    };
    let fs = opened.map_err(|error| match &error {
        Error::Device { op: IoOp::Open, source, .. }
            if !read_only && source.raw_os_error() == Some(Errno::ROFS.raw_os_error()) =>
        {
            let image = Shown::path(&image.name);
            Failure::new(format!(
                "{image}: cannot open: {}: use -o ro to mount it for reading",
                plain(source)
            ))
        }
        error => Failure::of_image(&image.name, error),
    })?;
    if options.byte_log.is_some_and(|mode| mode != ByteLogMode::Off) && !fs.is_read_only() {
        print_message(format_args!("{name}: fsync {}", fs.sync_way()));
    }
    if let Some(feature) = fs.read_only_reason() {
        print_message(format_args!(
            "{name}: mounted read-only: {feature}: such a volume can be read, not changed"
        ));
    }
    Ok(fs)
}

/// Mounts the volume and serves it until it is unmounted.
fn serve_volume(
    args: &Args,
    options: &Options,
    image: &Image,
    dir: &Path,
    fs: &Filesystem,
    log: &Arc<Log>,
    signals: UnixStream,
) -> Result<(), Failure> {
    let root = rustix::process::geteuid().is_root();
    let map = |ranges| IdMap::new(ranges).map_err(Failure::new);
    let check_permissions = options.default_permissions.unwrap_or(root);
    let access_times = options.access_times.unwrap_or_default();
    let shown = VolumeOptions {
        users: map(options.users.clone())?,
        groups: map(options.groups.clone())?,
        sync: options.sync == Some(true),
        dir_sync: options.dir_sync == Some(true),
        collect_writes: options.collect_writes == Some(true),
        check_permissions,
        access_times,
        count_overhead: options.count_overhead == Some(true),
    };
    let volume =
        Volume::new(fs.clone(), shown).map_err(|error| Failure::of_image(&image.name, &error))?;
    let volume = Arc::new(volume);
    let mounting = MountOptions {
        read_only: fs.is_read_only(),
        no_suid: !options.suid.unwrap_or(root),
        no_dev: !options.dev.unwrap_or(root),
        no_exec: options.exec == Some(false),
        no_atime: access_times == AccessTimes::Never,
        strict_atime: access_times == AccessTimes::Strict,
        no_dir_atime: access_times == AccessTimes::NotOfDirectories,
        allow_other: options.allow_other.unwrap_or(root),
        default_permissions: check_permissions,
        transport: match options.uring {
            Some(false) => Transport::Dev,
            _ => Transport::Best,
        },
        idle: options.idle.unwrap_or_default(),
        ..MountOptions::default()
    };
    let note = Arc::clone(log);
    let noting: Note = Arc::new(move |text| note.note(text));
    let session = mounted(&volume, image, options, dir, &mounting, noting)
        .map_err(|error| Failure::new(format!("{}: {error}", Shown::path(&args.dir))))?;
    end_on_signal(signals, session.unmounter(), dir.to_owned(), fs.clone(), Arc::clone(log));
    if args.in_background {
        // The mount must not keep a directory of the starter in use.
        let _ = std::env::set_current_dir("/");
        background::detach()
            .map_err(|error| Failure::new(format!("cannot continue in the background: {error}")))?;
    }
    notify::ready();
    session.wait();
    notify::stopping();
    volume.let_go();
    Ok(())
}

/// Mounts as a block device if possible, otherwise by the image's name.
fn mounted(
    volume: &Arc<Volume>,
    image: &Image,
    options: &Options,
    dir: &Path,
    mounting: &MountOptions,
    note: Note,
) -> Result<Session, MountError> {
    let mount = |source: &Source| {
        let mounting = MountOptions {
            block_device: source.block_device,
            shown_as: source.shown_as.clone(),
            ..mounting.clone()
        };
        Session::mount_logged(Arc::clone(volume), &source.name, dir, &mounting, note.clone())
    };
    let privileged = rustix::process::geteuid().is_root() && options.plain != Some(true);
    let block_bytes = volume.filesystem().space().block_bytes;
    if privileged && let Some(source) = Source::device(image, block_bytes, mounting.read_only) {
        match mount(&source) {
            // A container may have loop devices without permission to mount them.
            Err(MountError::Refused { .. }) => {}
            done => return done,
        }
    }
    mount(&Source::plain(image))
}

/// Receives messages about failures of the server.
type Note = Arc<dyn Fn(&str) + Send + Sync>;

/// Each of these signals puts one byte into the stream.
fn listen(signals: &[i32]) -> Result<UnixStream, Failure> {
    let failed = |error| Failure::new(format!("cannot listen for signals: {error}"));
    let (out, into) = UnixStream::pair().map_err(failed)?;
    for signal in signals {
        let into = into.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(*signal, into).map_err(failed)?;
    }
    Ok(out)
}

/// How long programs with open files may delay the end.
const GRACE: Duration = Duration::from_secs(10);

/// A signal unmounts. If files are open, their data is written to the volume and the mount is
/// removed from the directory tree. If they are not closed in time, or at a second signal, the
/// volume is closed while they are open.
fn end_on_signal(
    mut signals: UnixStream,
    unmounter: Unmounter,
    dir: PathBuf,
    fs: Filesystem,
    log: Arc<Log>,
) {
    let mut next = move |wait: Option<Duration>| {
        let mut byte = [0];
        let _ = signals.set_read_timeout(wait);
        signals.read(&mut byte)
    };
    std::thread::spawn(move || {
        while next(None).is_err() {}
        notify::stopping();
        let Err(error) = unmounter.unmount() else { return };
        log.note(&error.to_string());
        if let Ok(root) = std::fs::File::open(&dir) {
            let _ = rustix::fs::syncfs(&root);
        }
        if let Err(error) = unmounter.detach() {
            log.note(&error.to_string());
        }
        let _ = next(Some(GRACE));
        let closed = fs.close();
        if let Err(error) = &closed {
            log.note(&explained(error));
        }
        std::process::exit(i32::from(closed.is_err()));
    });
}
