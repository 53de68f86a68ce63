//! The options of e2fsck.

use crate::compat::getopt::{self, Words};
use std::ffi::OsString;
use std::path::PathBuf;

/// The options that are known here.
const KNOWN: &str = "panyrfFtvVDb:B:C:E:j:z:";

/// Who decides about repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The user, on a terminal.
    Ask,
    /// Nothing is changed.
    No,
    /// What cannot lose anything is repaired.
    Preen,
    /// Everything is repaired.
    Yes,
}

/// A call.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) mode: Mode,
    pub(super) device: OsString,
    pub(super) force: bool,
    pub(super) verbose: bool,
    /// The descriptor that gets the progress; 0: a bar.
    pub(super) progress: Option<u32>,
    /// The block of a backup superblock.
    pub(super) superblock: Option<u64>,
    pub(super) block_bytes: Option<u32>,
    pub(super) journal: Option<PathBuf>,
    pub(super) journal_only: bool,
    /// Directories are made as small as possible.
    pub(super) optimize: bool,
    /// Where the old bytes go.
    pub(super) undo: Option<PathBuf>,
}

/// What a command line asks for, if it is not a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Other {
    Version,
    /// The usage, after this error.
    Usage(Option<String>),
    /// An extended option that is not known.
    Extended(String),
    /// -p, -n and -y exclude each other.
    Modes,
    /// Two other options exclude each other.
    Contradiction(&'static str),
}

impl Options {
    pub(super) fn of(arguments: &[OsString]) -> Result<Options, Other> {
        let words = Words::read(arguments, KNOWN);
        let mut options = Options {
            mode: Mode::Ask,
            device: OsString::new(),
            force: false,
            verbose: false,
            progress: None,
            superblock: None,
            block_bytes: None,
            journal: None,
            journal_only: false,
            optimize: false,
            undo: None,
        };
        for (option, value) in &words.options {
            options.take(*option, value)?;
        }
        match (words.wrong, &words.operands[..]) {
            (Some(why), _) => Err(Other::Usage(Some(why))),
            (None, [_]) if options.optimize && options.mode == Mode::No => {
                Err(Other::Contradiction("The -n and -D options are incompatible."))
            }
            // The file of `-z` takes back a repair, and nothing that is done after it.
            (None, [_]) if options.optimize && options.undo.is_some() => {
                Err(Other::Usage(Some("-D cannot be taken back: leave out -z".into())))
            }
            (None, [device]) => Ok(Options { device: device.clone(), ..options }),
            (None, _) => Err(Other::Usage(None)),
        }
    }

    fn take(&mut self, option: char, value: &OsString) -> Result<(), Other> {
        let text = getopt::text(value);
        let number = || getopt::number(&text).ok_or(Other::Usage(None));
        match option {
            'p' | 'a' => self.set_mode(Mode::Preen)?,
            'n' => self.set_mode(Mode::No)?,
            'y' => self.set_mode(Mode::Yes)?,
            'f' => self.force = true,
            'v' => self.verbose = true,
            'D' => self.optimize = true,
            'V' => return Err(Other::Version),
            'b' => self.superblock = Some(number()?),
            'B' => {
                self.block_bytes = Some(u32::try_from(number()?).map_err(|_| Other::Usage(None))?)
            }
            // A negative descriptor waits for a signal before it shows anything.
            'C' if text.starts_with('-') => {}
            'C' => self.progress = Some(u32::try_from(number()?).map_err(|_| Other::Usage(None))?),
            'E' => self.extended(&text)?,
            'j' => self.journal = Some(value.into()),
            'z' => self.undo = Some(value.into()),
            // r has no effect, F flushes a cache that this program does not use, t only measures.
            _ => {}
        }
        Ok(())
    }

    fn set_mode(&mut self, mode: Mode) -> Result<(), Other> {
        if self.mode != Mode::Ask && self.mode != mode {
            return Err(Other::Modes);
        }
        self.mode = mode;
        Ok(())
    }

    fn extended(&mut self, text: &str) -> Result<(), Other> {
        for word in text.split(',') {
            match word.split_once('=').map_or(word, |(key, _)| key) {
                "journal_only" => self.journal_only = true,
                // They choose between memory and time in the original, or forbid what is not done
                // here.
                "inode_count_fullmap"
                | "no_inode_count_fullmap"
                | "readahead_kb"
                | "nodiscard"
                | "no_optimize_extents"
                | "fixes_only" => {}
                _ => return Err(Other::Extended(word.to_owned())),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, Other> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Options::of(&words)
    }

    #[test]
    fn calls_of_known_programs_are_understood() {
        for (line, mode, force) in [
            ("-a -C 5 /dev/vda1", Mode::Preen, false),
            ("-f -y -v -C 0 /dev/vda1", Mode::Yes, true),
            ("-p -f /dev/vda1", Mode::Preen, true),
            ("-fn /dev/vda1", Mode::No, true),
            ("/dev/vda1 -y", Mode::Yes, false),
        ] {
            let options = options(line).unwrap();
            assert_eq!((options.mode, options.force), (mode, force), "{line}");
            assert_eq!(options.device, "/dev/vda1");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (line, other) in [
            ("-c a", Other::Usage(Some("invalid option -- 'c'".into()))),
            ("-l b a", Other::Usage(Some("invalid option -- 'l'".into()))),
            ("-fyD -z b a", Other::Usage(Some("-D cannot be taken back: leave out -z".into()))),
            ("-nD a", Other::Contradiction("The -n and -D options are incompatible.")),
            ("a b", Other::Usage(None)),
            ("-n -y a", Other::Modes),
            ("-p -n a", Other::Modes),
            ("-E discard a", Other::Extended("discard".into())),
            ("-b 1x a", Other::Usage(None)),
            ("-V", Other::Version),
        ] {
            assert_eq!(options(line).err(), Some(other), "{line}");
        }
    }
}
