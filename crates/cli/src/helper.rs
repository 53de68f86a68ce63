//! Calls of extant by mount(8): as `mount.extant` or `mount.fuse.extant`, or through libfuse's
//! `mount.fuse`.
//!
//! ```text
//!   mount -t extant IMG DIR, fstab
//!     ──► /sbin/mount.extant IMG DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS] ──┐
//!   mount -t fuse.extant IMG DIR                                                     │
//!     ──► /sbin/mount.fuse ──► extant IMG DIR -o OPTIONS ────────────────────────────┤
//!                                   extant mount IMG DIR -o OPTIONS ◄────────────────┘
//! ```

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names of the program that mount(8) calls.
const NAMES: [&str; 3] = ["mount.extant", "mount.fuse.extant", "mount.fuseblk.extant"];

/// Translates the `arguments` of mount(8), which begin with the program's name, to those of extant.
/// `None` if they are already extant's. An empty list means that there is nothing to do (`-f`).
pub(crate) fn translated(
    arguments: &[OsString],
    is_verb: impl Fn(&OsStr) -> bool,
) -> Option<Vec<OsString>> {
    let (name, rest) = arguments.split_first()?;
    let name = Path::new(name).file_name()?;
    let is_helper = NAMES.iter().any(|helper| name == *helper);
    let from_fuse = || match rest {
        [image, dir, option, _] => {
            option == "-o" && !image.is_empty() && !is_verb(image) && Path::new(dir).is_dir()
        }
        _ => false,
    };
    if !is_helper && !from_fuse() {
        return None;
    }
    let mut out = vec![OsString::from("mount")];
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => {
                out.push("-o".into());
                out.extend(rest.next().cloned());
            }
            Some("-N" | "-t") => drop(rest.next()),
            Some(flags) if is_flags(flags) => {
                if flags.contains('f') {
                    return Some(Vec::new());
                }
            }
            _ => out.push(argument.clone()),
        }
    }
    Some(out)
}

/// Sloppy, fake, no table of mounts, verbose: in any order, in one word or several.
fn is_flags(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|flags| {
        !flags.is_empty() && flags.chars().all(|flag| matches!(flag, 's' | 'f' | 'n' | 'v'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let meant = translated(&words, |word| word == "ls")?;
        Some(meant.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn calls_of_mount_become_the_verb() {
        let whole = "mount a.img /mnt -o rw,nosuid";
        for line in [
            "/sbin/mount.extant a.img /mnt -o rw,nosuid",
            "mount.fuse.extant a.img /mnt -o rw,nosuid",
            "/sbin/mount.extant a.img /mnt -sv -n -t extant -N /proc/5/ns/mnt -o rw,nosuid",
        ] {
            assert_eq!(meant(line).as_deref(), Some(whole), "{line}");
        }
        assert_eq!(meant("/usr/bin/extant a.img / -o rw").as_deref(), Some("mount a.img / -o rw"));
        assert_eq!(meant("/sbin/mount.extant a.img /mnt").as_deref(), Some("mount a.img /mnt"));
        assert_eq!(meant("/sbin/mount.extant a.img /mnt -f -o rw").as_deref(), Some(""));
    }

    #[test]
    fn extant_s_own_words_stay() {
        for line in ["extant mount a.img /mnt -o ro", "extant ls / -o x", "extant", "extant a b"] {
            assert_eq!(meant(line), None, "{line}");
        }
    }
}
