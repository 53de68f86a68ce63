//! The names of e2fsprogs' tools: this program under such a name speaks that tool's language.
//!
//! ```text
//!   argv[0] = …/fsck.ext4 ──► TOOLS ──► e2fsck::run(Call) ──► the engine, a repair, functions
//!                               │            │ options as getopt(3) reads them
//!                               │            ▼
//!                               │       Console: the original's lines on standard output and error
//!                               └──► statuses of a failure
//! ```
//!
//! Each tool does what the original does, prints the lines that scripts parse, and returns the
//! original's exit status, or refuses in the original's words. Nothing is guessed: an option that
//! is not known here is an error, even if the original has it.
//!
//! The modules, from the top: a module uses those below it.
//!
//! ```text
//!   mke2fs, e2fsck, tune2fs, e2label, resize2fs,
//!   dumpe2fs, debugfs, e2image, e2undo          one tool each
//!   opened                       opens the volume, or says why not in the original's words
//!   superblock                   the superblock as text: dumpe2fs, tune2fs -l, debugfs
//!   volume                       structures as they are on disk, without recovery
//!   console, getopt, words, clock               text and arguments
//! ```

mod clock;
mod console;
mod debugfs;
mod dumpe2fs;
mod e2fsck;
mod e2image;
mod e2label;
mod e2undo;
mod getopt;
mod mke2fs;
mod opened;
mod resize2fs;
mod superblock;
mod tune2fs;
mod volume;
mod words;

use crate::failure::Failure;
use console::Console;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The version of e2fsprogs whose options, lines and statuses these tools have.
const VERSION: &str = "1.47.0";
/// In its place the original prints a date.
const EDITION: &str = concat!("extant ", env!("CARGO_PKG_VERSION"));

/// A tool: what it does, and its exit status if the work fails and if the command line is wrong.
struct Tool {
    run: fn(&Call<'_>, &mut Console) -> Result<u8, Failure>,
    failed: u8,
    wrong: u8,
}

const E2FSCK: Tool = Tool { run: e2fsck::run, failed: 8, wrong: 16 };
const RESIZE2FS: Tool = Tool { run: resize2fs::run, failed: 1, wrong: 1 };
const DEBUGFS: Tool = Tool { run: debugfs::run, failed: 1, wrong: 1 };
const E2UNDO: Tool = Tool { run: e2undo::run, failed: 1, wrong: 1 };
const DUMPE2FS: Tool = Tool { run: dumpe2fs::run, failed: 1, wrong: 1 };
const TUNE2FS: Tool = Tool { run: tune2fs::run, failed: 1, wrong: 1 };
const MKE2FS: Tool = Tool { run: mke2fs::run, failed: 1, wrong: 1 };
const E2IMAGE: Tool = Tool { run: e2image::run, failed: 1, wrong: 1 };
const E2LABEL: Tool = Tool { run: e2label::run, failed: 1, wrong: 1 };

/// Every name under which this program is another tool.
const TOOLS: [(&str, Tool); 15] = [
    ("debugfs", DEBUGFS),
    ("dumpe2fs", DUMPE2FS),
    ("e2fsck", E2FSCK),
    ("e2image", E2IMAGE),
    ("e2label", E2LABEL),
    ("e2undo", E2UNDO),
    ("fsck.ext2", E2FSCK),
    ("fsck.ext3", E2FSCK),
    ("fsck.ext4", E2FSCK),
    ("mke2fs", MKE2FS),
    ("mkfs.ext2", MKE2FS),
    ("mkfs.ext3", MKE2FS),
    ("mkfs.ext4", MKE2FS),
    ("resize2fs", RESIZE2FS),
    ("tune2fs", TUNE2FS),
];

/// A call of a tool.
struct Call<'a> {
    arguments: &'a [OsString],
}

/// Runs the tool whose name this program was called by. `None` if it is no name of a tool.
pub(crate) fn run(words: &[OsString]) -> Option<ExitCode> {
    let (name, arguments) = words.split_first()?;
    let short = Path::new(name).file_name()?;
    let (_, tool) = TOOLS.iter().find(|(known, _)| short == *known)?;
    let mut console = Console::new(&name.to_string_lossy());
    let done = (tool.run)(&Call { arguments }, &mut console);
    let done = done.and_then(|code| console.finish().map(|()| code));
    Some(ExitCode::from(match done {
        Ok(code) => code,
        Err(Failure::Message(text)) => {
            console.complain(&text);
            tool.failed
        }
        Err(Failure::Usage(text)) => {
            console.complain(&text);
            tool.wrong
        }
        Err(Failure::Reported) => tool.failed,
        Err(Failure::Pipe) => 0,
    }))
}
