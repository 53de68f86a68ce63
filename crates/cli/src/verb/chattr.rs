//! `extant chattr`: changes flags, project and generation of files.
//!
//! ```text
//!   +i-d     added and removed        =e     these and no others
//!
//!   old flags ── of those that chattr may change ──► new flags ──► the engine: rules of Linux
//! ```

use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::inner_path;
use extant::{InodeFlags, Metadata, SetAttributes};
use extant_ondisk::features::RoCompat;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Change flags, project and generation of files in a volume.
///
/// FLAGS is as for chattr: +LETTERS adds, -LETTERS removes, =LETTERS sets exactly these (but keeps
/// e). The letters are a append only, A no access times, c compressed, C data without checksums
/// (data_csum volumes, empty files), d no dump, D synchronous directory, e extents (-e: block map),
/// F names ignore case (empty directories), i immutable, j journaled data, P new files take the
/// project, s secure deletion, S synchronous, t no tail-merging, T top of a hierarchy, u
/// undeletable, x direct access; Linux stores c, s, t and u without an effect. `extant stat` shows
/// them. Symbolic links given as PATH are followed; -R skips links and special files. Letters of
/// directories have no effect on files. Either all files are changed, or none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant chattr root.img +i /etc/resolv.conf
  extant chattr -R root.img +P -p 7 /srv/project        a tree and its future files
  extant chattr root.img =e /var/lib/db

Exit status: 0 changed, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER; then FLAGS, then files in the volume. A
    /// path that begins with +, - or = is written with a slash before it
    #[arg(value_name = "IMG [FLAGS…] PATH…", required = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
    /// Change directories and everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Set the project
    #[arg(short, long, value_name = "PROJECT")]
    project: Option<u32>,
    /// Set the generation (not with metadata_csum, where checksums depend on it)
    #[arg(short = 'v', long, value_name = "GENERATION")]
    generation: Option<u32>,
    #[command(flatten)]
    steps: Steps,
}

/// The flags that the letters name.
const LETTERS: [(u8, InodeFlags); 18] = [
    (b'a', InodeFlags::APPEND),
    (b'A', InodeFlags::NOATIME),
    (b'c', InodeFlags::COMPR),
    (b'C', InodeFlags::NOCOW),
    (b'd', InodeFlags::NODUMP),
    (b'D', InodeFlags::DIRSYNC),
    (b'e', InodeFlags::EXTENTS),
    (b'F', InodeFlags::CASEFOLD),
    (b'i', InodeFlags::IMMUTABLE),
    (b'j', InodeFlags::JOURNAL_DATA),
    (b'm', InodeFlags::NOCOMPR),
    (b'P', InodeFlags::PROJINHERIT),
    (b's', InodeFlags::SECRM),
    (b'S', InodeFlags::SYNC),
    (b't', InodeFlags::NOTAIL),
    (b'T', InodeFlags::TOPDIR),
    (b'u', InodeFlags::UNRM),
    (b'x', InodeFlags::DAX),
];

/// The flags that a caller passes back when it changes others.
const PASSED: InodeFlags = InodeFlags::from_bits_retain(0x725B_DFFF);

/// What to do with flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagChange {
    /// All flags that can be changed become these.
    Exact(InodeFlags),
    Edit {
        add: InodeFlags,
        remove: InodeFlags,
    },
}

impl FlagChange {
    /// Parses all words with flags; `None` if there are none.
    fn parse(words: &[&[u8]]) -> Result<Option<FlagChange>, Failure> {
        let (mut add, mut remove) = (InodeFlags::empty(), InodeFlags::empty());
        let mut exact = None;
        for word in words {
            let mut sign = 0;
            for &byte in *word {
                if matches!(byte, b'+' | b'-' | b'=') {
                    sign = byte;
                    // `=` alone clears all flags.
                    if byte == b'=' {
                        exact.get_or_insert(InodeFlags::empty());
                    }
                    continue;
                }
                let flag = flag_of(byte)?;
                match sign {
                    b'+' => add |= flag,
                    b'-' => remove |= flag,
                    _ => exact = Some(exact.unwrap_or_default() | flag),
                }
            }
        }
        if add.intersects(remove) {
            return Err(Failure::usage("a flag cannot be both added and removed"));
        }
        match exact {
            Some(_) if !(add | remove).is_empty() => {
                Err(Failure::usage("= cannot be used together with + or -"))
            }
            Some(exact) => Ok(Some(FlagChange::Exact(exact))),
            None if (add | remove).is_empty() && words.is_empty() => Ok(None),
            None => Ok(Some(FlagChange::Edit { add, remove })),
        }
    }

    /// The flags to request for a file that has `old`.
    fn apply(self, old: InodeFlags) -> InodeFlags {
        match self {
            FlagChange::Exact(flags) => {
                let all = LETTERS.iter().fold(InodeFlags::empty(), |all, (_, flag)| all | *flag);
                // As chattr(1) says: = does not remove this one.
                old.difference(all.difference(InodeFlags::EXTENTS)) | flags
            }
            FlagChange::Edit { add, remove } => old.difference(remove) | add,
        }
    }
}

fn flag_of(byte: u8) -> Result<InodeFlags, Failure> {
    let shown = char::from(byte).escape_default();
    match byte {
        b'm' => Err(Failure::usage("m: ext4 does not store changes of this flag")),
        b'E' | b'I' | b'N' | b'V' => {
            Err(Failure::usage(format_args!("{shown}: this flag can be shown, but not changed")))
        }
        _ => LETTERS.iter().find(|(letter, _)| *letter == byte).map(|(_, flag)| *flag).ok_or_else(
            || Failure::usage(format_args!("{shown}: not a flag: see `extant chattr --help`")),
        ),
    }
}

/// The image, the words with flags, and the paths.
struct Words {
    image: OsString,
    flags: Vec<OsString>,
    paths: Vec<OsString>,
}

/// Sorts the words. Options after the first word are among them, because a removed flag looks
/// like an option.
fn sort(args: &mut Args) -> Result<Words, Failure> {
    let (mut flags, mut others) = (Vec::new(), Vec::new());
    let mut words = std::mem::take(&mut args.words).into_iter();
    while let Some(word) = words.next() {
        let mut number = |name: &str| {
            let text = words.next().map(|value| value.to_string_lossy().into_owned());
            let text = text.unwrap_or_default();
            let wrong = |_| Failure::usage(format_args!("{name} {text}: not a number"));
            text.parse::<u32>().map(Some).map_err(wrong)
        };
        match word.to_str() {
            Some("-R" | "--recursive") => args.recursive = true,
            Some("--in-steps") => args.steps.in_steps = true,
            Some(name @ ("-p" | "--project")) => args.project = number(name)?,
            Some(name @ ("-v" | "--generation")) => args.generation = number(name)?,
            Some(name) if name.starts_with("--") => {
                return Err(Failure::usage(format_args!("{name}: not an option")));
            }
            _ if matches!(word.as_bytes().first(), Some(b'+' | b'-' | b'=')) => {
                flags.push(word);
            }
            _ => others.push(word),
        }
    }
    if others.len() < 2 {
        return Err(Failure::usage("name an image and at least one file in it"));
    }
    let image = others.remove(0);
    Ok(Words { image, flags, paths: others })
}

impl Args {
    pub(crate) fn run(mut self) -> Result<u8, Failure> {
        let words = sort(&mut self)?;
        let flags: Vec<&[u8]> = words.flags.iter().map(|word| word.as_bytes()).collect();
        let flags = FlagChange::parse(&flags)?;
        if flags.is_none() && self.project.is_none() && self.generation.is_none() {
            return Err(Failure::usage("no change was requested: use +, -, =, -p or -v"));
        }
        let change = Change::begin(&words.image, self.steps)?;
        for path in &words.paths {
            let path = inner_path(path)?;
            let mut is_first = true;
            super::chmod::each(&change, &path, self.recursive, &mut |path, node| {
                let metadata = node.metadata();
                let is_given = std::mem::take(&mut is_first);
                if !metadata.is_dir() && !metadata.is_file() {
                    return match is_given {
                        true => Err(change.refuse(
                            path,
                            "not a regular file or directory: it has no flags to change",
                        )),
                        false => Ok(()),
                    };
                }
                if let Some(generation) = self.generation {
                    change.at(path, |_| node.set_generation(generation))?;
                }
                let changes = SetAttributes {
                    flags: flags_of(&change, path, flags, &metadata)?,
                    project: self.project,
                    ..SetAttributes::default()
                };
                if changes == SetAttributes::default() {
                    return Ok(());
                }
                change.at(path, |_| node.set_attributes(&changes))
            })?;
        }
        change.finish()?;
        Ok(0)
    }
}

/// The flags to request for one file.
fn flags_of(
    change: &Change,
    path: &[u8],
    flags: Option<FlagChange>,
    metadata: &Metadata,
) -> Result<Option<InodeFlags>, Failure> {
    let Some(flags) = flags else { return Ok(None) };
    let has_data_csum = change
        .at(path, |fs| Ok(fs.superblock().features.ro_compat.contains(RoCompat::DATA_CSUM)))?;
    let passed = match has_data_csum {
        true => PASSED | InodeFlags::NOCOW,
        false => PASSED,
    };
    Ok(Some(flags.apply(metadata.flags() & passed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<FlagChange>, Failure> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        FlagChange::parse(&words)
    }

    #[test]
    fn flags_are_added_removed_or_set() {
        let old = InodeFlags::EXTENTS | InodeFlags::NODUMP | InodeFlags::INDEX;
        let table = [
            (&["+i"][..], old | InodeFlags::IMMUTABLE),
            (&["+iA", "-d"], InodeFlags::from_bits_retain(0x8_1090)),
            (&["+i-d"], InodeFlags::from_bits_retain(0x8_1010)),
            (&["=e"], InodeFlags::EXTENTS | InodeFlags::INDEX),
            (&["="], InodeFlags::EXTENTS | InodeFlags::INDEX),
            (&["-e"], InodeFlags::NODUMP | InodeFlags::INDEX),
        ];
        for (words, new) in table {
            assert_eq!(parse(words).unwrap().unwrap().apply(old), new, "{words:?}");
        }
        assert_eq!(parse(&[]).unwrap(), None);
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for words in [&["+i", "-i"][..], &["=e", "+i"], &["+m"], &["+I"], &["+q"], &["+\u{e9}"]] {
            assert!(matches!(parse(words), Err(Failure::Usage(_))), "{words:?}");
        }
    }
}
