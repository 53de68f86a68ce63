//! `debugfs`: looks into a volume and changes it, by requests.
//!
//! ```text
//!   -R "stat /etc"          one request
//!   -f FILE                 the lines of a file, each printed before its answer
//!   standard input          the same, after a prompt
//! ```
//!
//! The requests are those that scripts use. Others are not found, as in an older debugfs.

mod change;
mod inode;
mod line;
mod look;
mod names;
mod session;
mod settings;

use super::Call;
use super::console::Console;
use super::getopt::{self, Words};
use super::volume::Copy;
use super::words;
use crate::failure::{Failure, plain};
use crate::image::Image;
use crate::shown::Shown;
use session::{Done, Session, Wrong, about};
use std::ffi::{OsStr, OsString};
use std::io::BufRead;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const USAGE: &str = "Usage: debugfs [-b blocksize] [-s superblock] [-f cmd_file] [-R request] [-V] \
                     [-w] [-c] [device]\n";

/// Where requests come from.
enum Source {
    Request(OsString),
    File(OsString),
    Input,
}

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    console.set_name("debugfs");
    let words = Words::read(call.arguments, "wcVR:f:b:s:");
    if words.options.iter().any(|(option, _)| *option == 'V') {
        return Ok(console.version("debugfs"));
    }
    console.error(format_args!("{}", Console::banner("debugfs")));
    let wrong = words.report(console);
    let device = match &words.operands[..] {
        [] if !wrong => None,
        [device] if !wrong => Some(device),
        _ => return Ok(usage(console)),
    };
    let (mut may_write, mut source, mut copy) = (false, Source::Input, Copy::default());
    for (option, value) in &words.options {
        let number = || getopt::number(&getopt::text(value));
        match option {
            'w' => may_write = true,
            'R' => source = Source::Request(value.clone()),
            'f' => source = Source::File(value.clone()),
            's' => copy.block = number(),
            'b' => copy.block_bytes = number().and_then(|bytes| u32::try_from(bytes).ok()),
            // c: bitmaps are read only when a request needs them.
            _ => {}
        }
    }
    let session = match device {
        None => None,
        Some(device) => open(device, copy, may_write, console)?,
    };
    let is_input = matches!(source, Source::Input);
    let mut run = Run { session, console, is_input, done: false, unknown: false };
    run.all(source)?;
    let Run { session, unknown, .. } = run;
    let closed = session.is_none_or(|session| session.close(console));
    Ok(u8::from(unknown || !closed))
}

fn usage(console: &mut Console) -> u8 {
    console.complain(USAGE.trim_end());
    1
}

fn open(
    device: &OsStr,
    copy: Copy,
    may_write: bool,
    console: &mut Console,
) -> Result<Option<Session>, Failure> {
    let image = Image::parse(device)?;
    let shown = Shown::path(&image.name).to_string();
    match Session::open(image, copy, may_write) {
        Ok(session) => Ok(Some(session)),
        Err(error) => {
            console.complain(&format!("{} while trying to open {shown}", words::of(&error).text));
            Ok(None)
        }
    }
}

struct Run<'a> {
    session: Option<Session>,
    console: &'a mut Console,
    /// Requests come from standard input, where an unknown one is no failure of the run.
    is_input: bool,
    /// `quit` was requested.
    done: bool,
    /// A request was not found.
    unknown: bool,
}

impl Run<'_> {
    fn all(&mut self, source: Source) -> Result<(), Failure> {
        match source {
            Source::Request(request) => self.request(&request),
            Source::File(name) => {
                let opened = std::fs::File::open(&name);
                let file = match opened {
                    Ok(file) => file,
                    Err(error) => {
                        let (why, name) = (plain(&error), name.to_string_lossy());
                        self.console.error(format_args!("{name}: {why}\n"));
                        self.unknown = true;
                        return Ok(());
                    }
                };
                self.lines(std::io::BufReader::new(file), "debugfs: ")
            }
            Source::Input => {
                self.lines(std::io::stdin().lock(), "debugfs:  ")?;
                match self.done {
                    true => Ok(()),
                    false => self.console.print(format_args!("debugfs:  ")),
                }
            }
        }
    }

    fn lines(&mut self, mut from: impl BufRead, prompt: &str) -> Result<(), Failure> {
        let mut line = Vec::new();
        while !self.done {
            line.clear();
            let read = from.read_until(b'\n', &mut line);
            let len = read.map_err(|error| Failure::new(plain(&error)))?;
            if len == 0 {
                break;
            }
            while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                line.pop();
            }
            let is_comment = line.starts_with(b"#");
            if !is_comment {
                self.console.print(format_args!("{prompt}"))?;
            }
            self.console.bytes(&line)?;
            self.console.print(format_args!("\n"))?;
            if !is_comment {
                self.request(&OsString::from_vec(line.clone()))?;
            }
        }
        Ok(())
    }

    /// Does one request. An error is printed, and the next request goes on.
    fn request(&mut self, line: &OsStr) -> Result<(), Failure> {
        let Some(words) = line::words(line) else {
            self.console.error(format_args!("debugfs: Unbalanced quotes in command line\n"));
            return Ok(());
        };
        let Some((name, args)) = words.split_first() else { return Ok(()) };
        let name = name.to_string_lossy().into_owned();
        if matches!(name.as_str(), "quit" | "q") {
            self.done = true;
            return Ok(());
        }
        if !REQUESTS.contains(&name.as_str()) {
            let text = match self.is_input {
                true => format!("Unknown request \"{name}\".  Type \"?\" for a request list."),
                false => format!("Command not found {name}"),
            };
            self.unknown |= !self.is_input;
            self.console.complain(&text);
            return Ok(());
        }
        if name == "open" || name == "open_filesys" {
            return self.open(args);
        }
        let Some(session) = &mut self.session else {
            self.console.error(format_args!("{name}: Filesystem not open\n"));
            return Ok(());
        };
        if name == "close" || name == "close_filesys" {
            if let Some(session) = self.session.take() {
                session.close(self.console);
            }
            return Ok(());
        }
        match perform(session, &name, args, self.console) {
            Ok(()) => Ok(()),
            Err(Wrong::Output(failure)) => Err(failure),
            Err(Wrong::Line(line)) => {
                self.console.error(format_args!("{line}\n"));
                Ok(())
            }
        }
    }

    fn open(&mut self, args: &[OsString]) -> Result<(), Failure> {
        let words = Words::read(args, "w");
        match (&words.operands[..], &self.session) {
            (_, Some(_)) => {
                let text = "open: Filesystem is still open.  Close it first.";
                self.console.error(format_args!("{text}\n"));
            }
            ([device], None) if words.wrong.is_none() => {
                let may_write = !words.options.is_empty();
                self.session = open(device, Copy::default(), may_write, self.console)?;
            }
            _ => self.console.error(format_args!("open: Usage: open [-w] <device>\n")),
        }
        Ok(())
    }
}

/// Every request and its short names.
const REQUESTS: [&str; 46] = [
    "blocks",
    "bmap",
    "cat",
    "cd",
    "change_working_directory",
    "close",
    "close_filesys",
    "dump",
    "dump_inode",
    "ea_get",
    "ea_list",
    "ea_rm",
    "ea_set",
    "feature",
    "features",
    "icheck",
    "imap",
    "link",
    "list_directory",
    "ln",
    "ls",
    "mkdir",
    "mknod",
    "ncheck",
    "open",
    "open_filesys",
    "print_working_directory",
    "pwd",
    "rdump",
    "rm",
    "rmdir",
    "set_current_time",
    "set_inode_field",
    "set_super_value",
    "show_inode_info",
    "show_super_stats",
    "sif",
    "ssv",
    "stat",
    "stats",
    "symlink",
    "testb",
    "testi",
    "unlink",
    "write",
    "lcd",
];

fn perform(session: &mut Session, name: &str, args: &[OsString], to: &mut Console) -> Done {
    match name {
        "ls" | "list_directory" => names::ls(session, args, to),
        "stat" | "show_inode_info" => {
            inode::stat(session, one(args, "stat: Usage: stat <file>")?, to)
        }
        "blocks" => inode::blocks(session, one(args, "blocks: Usage: blocks <file>")?, to),
        "stats" | "show_super_stats" => look::stats(session, args, to),
        "features" | "feature" if args.is_empty() => look::features(session, to),
        "features" | "feature" => {
            Err(Wrong::Line("features: features are changed with tune2fs -O".into()))
        }
        "cat" => look::cat(session, one(args, "cat: Usage: cat <file>")?, to),
        "dump" | "dump_inode" => look::dump(session, args),
        "rdump" => look::rdump(session, args, to),
        "bmap" => look::bmap(session, args, to),
        "imap" => look::imap(session, one(args, "imap: Usage: imap <file>")?, to),
        "testi" => look::testi(session, one(args, "testi: Usage: testi <file>")?, to),
        "testb" => look::testb(session, args, to),
        "icheck" => names::icheck(session, args, to),
        "ncheck" => names::ncheck(session, args, to),
        "ea_list" => look::ea_list(session, one(args, "ea_list: Usage: ea_list <file>")?, to),
        "ea_get" => look::ea_get(session, args, to),
        "pwd" | "print_working_directory" => working_directory(session, to),
        "cd" | "change_working_directory" => {
            change_directory(session, one(args, "cd: Usage: cd <file>")?)
        }
        "lcd" => {
            let dir = one(args, "lcd: Usage: lcd <native dir>")?;
            let moved = std::env::set_current_dir(dir);
            let shown = dir.to_string_lossy();
            moved.map_err(|error| {
                Wrong::Line(format!("lcd: {} while trying to chdir to {shown}", plain(&error)))
            })
        }
        "set_current_time" => settings::set_current_time(session, args, to),
        "set_super_value" | "ssv" => settings::set_super_value(session, name, args, to),
        _ => perform_change(session, name, args, to),
    }
}

fn perform_change(session: &mut Session, name: &str, args: &[OsString], to: &mut Console) -> Done {
    // The reason comes before a complaint about the arguments.
    session.writer(name)?;
    match name {
        "write" => change::write(session, args, to),
        "mkdir" => change::mkdir(session, one(args, "mkdir: Usage: mkdir <filename>")?),
        "rmdir" => change::rmdir(session, one(args, "rmdir: Usage: rmdir <filename>")?, to),
        "rm" => {
            change::remove(session, one(args, "rm: Usage: rm <filename>")?)?;
            Ok(to.print(format_args!("\n"))?)
        }
        "unlink" => change::remove(session, one(args, "unlink: Usage: unlink <pathname>")?),
        "ln" | "link" => change::link(session, args),
        "symlink" => change::symlink(session, args),
        "mknod" => change::mknod(session, args, to),
        "ea_set" => change::ea_set(session, args),
        "ea_rm" => change::ea_rm(session, args),
        _ => change::set_inode_field(session, name, args),
    }
}

fn one<'a>(args: &'a [OsString], usage: &str) -> Done<&'a OsStr> {
    match args {
        [arg] => Ok(arg),
        _ => Err(Wrong::Line(usage.into())),
    }
}

fn working_directory(session: &mut Session, to: &mut Console) -> Done {
    let path = session.at.clone();
    let ino = session.ino(OsStr::from_bytes(&path), "pwd")?;
    to.print(format_args!("[pwd]   INODE: {:6}  PATH: ", ino.get()))?;
    to.bytes(&path)?;
    to.bytes(b"\n[root]  INODE:      2  PATH: /\n")?;
    Ok(())
}

fn change_directory(session: &mut Session, name: &OsStr) -> Done {
    let node = session.node(name, "cd")?;
    if !node.metadata().is_dir() {
        return Err(about(name, &extant::Error::NotADirectory));
    }
    let mut path: Vec<Vec<u8>> = Vec::new();
    for part in session.path(name).split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(path.pop()),
            part => path.push(part.to_vec()),
        }
    }
    session.at = [b"/".to_vec(), path.join(&b'/')].concat();
    Ok(())
}
