//! Workloads from text: our own, and the generated ones that are outside the repository.
//!
//! ```text
//!   37 TAB mkdir A 0777 ; open Afoo O_RDWR|O_CREAT 0777 ; fsync Afoo ; checkpoint 1 ; close Afoo
//!    │           │             │                               │            │            │
//!  number       /A          /A/foo                          fsync      nothing to do: left out
//! ```
//! A name without a slash is short for a path: each leading capital is a directory, `test` the
//! root.

use crate::direct::DirectHow;
use crate::op::{FLAGS, Falloc, Op, RenameHow, Special};
use crate::workload::Workload;

/// The attribute that `fsetxattr NAME` sets, and the length of its value.
const DEFAULT_XATTR: (&str, u64) = ("user.xattr1", 4);

/// The workloads of a file, one a line, each named `PREFIX/NUMBER`.
///
/// `Err` names the line and the unknown word.
pub fn workloads(prefix: &str, text: &str) -> Result<Vec<Workload>, String> {
    let one = |line: &str| {
        let (number, rest) = line.split_once('\t').ok_or_else(|| format!("no tab: {line}"))?;
        let ops = ops(rest).map_err(|e| format!("{prefix}/{number}: {e}"))?;
        Ok(Workload { name: format!("{prefix}/{number}"), ops })
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(one).collect()
}

/// Operations separated by ` ; `.
pub fn ops(text: &str) -> Result<Vec<Op>, String> {
    let mut all = Vec::new();
    for part in text.split(';') {
        let words: Vec<&str> = part.split_whitespace().collect();
        if let Some((verb, args)) = words.split_first() {
            let parsed = op(verb, args).map_err(|e| format!("{e} in `{}`", part.trim()))?;
            all.extend(parsed);
        }
    }
    Ok(all)
}

/// One operation; `None` if it has no effect here.
fn op(verb: &str, args: &[&str]) -> Result<Option<Op>, String> {
    let word = |n: usize| args.get(n).copied().ok_or_else(|| format!("word {n} is missing"));
    let path = |n: usize| word(n).map(full_path);
    let number = |n: usize| word(n)?.parse::<u64>().map_err(|e| format!("word {n}: {e}"));
    let id = |n: usize| word(n)?.parse::<u32>().map_err(|e| format!("word {n}: {e}"));
    let mode = |n: usize| u16::from_str_radix(word(n)?, 8).map_err(|e| format!("word {n}: {e}"));
    let rename = |how| Ok::<_, String>(Op::Rename { from: path(0)?, to: path(1)?, how });
    Ok(Some(match verb {
        "open" if !word(1)?.contains("O_CREAT") => return Ok(None),
        "open" => Op::Create { path: path(0)?, mode: mode(2)? },
        "opendir" | "close" | "checkpoint" => return Ok(None),
        "creat" => Op::Create { path: path(0)?, mode: mode(1)? },
        "mkdir" => Op::Mkdir { path: path(0)?, mode: mode(1)? },
        "symlink" => Op::Symlink { target: word(0)?.to_owned(), path: path(1)? },
        "mknod" => Op::Mknod { path: path(0)?, kind: find(&Special::ALL, word(1)?)? },
        "tmpfile" if word(1)? == "-" => Op::TmpfileDropped { dir: path(0)?, len: number(2)? },
        "tmpfile" => Op::Tmpfile { dir: path(0)?, path: path(1)?, len: number(2)? },
        "link" => Op::Link { from: path(0)?, to: path(1)? },
        "unlink" => Op::Unlink { path: path(0)? },
        "rmdir" => Op::Rmdir { path: path(0)? },
        "remove" => Op::Remove { path: path(0)? },
        "rename" => rename(RenameHow::Replace)?,
        "rename-noreplace" => rename(RenameHow::NoReplace)?,
        "exchange" => rename(RenameHow::Exchange)?,
        "whiteout" => rename(RenameHow::Whiteout)?,
        "write" | "dwrite" | "mmapwrite" => {
            Op::Write { path: path(0)?, at: number(1)?, len: number(2)? }
        }
        "direct-write" | "direct-sync" | "direct-queue" => {
            let how = find(&DirectHow::ALL, verb)?;
            Op::DirectWrite { path: path(0)?, at: number(1)?, len: number(2)?, how }
        }
        "append" => Op::Append { path: path(0)?, len: number(1)? },
        "truncate" => Op::Truncate { path: path(0)?, len: number(1)? },
        "falloc" => Op::Fallocate {
            path: path(0)?,
            mode: find(&Falloc::ALL, word(1)?)?,
            at: number(2)?,
            len: number(3)?,
        },
        "fsetxattr" if args.len() == 1 => {
            let (name, len) = DEFAULT_XATTR;
            Op::SetXattr { path: path(0)?, name: name.to_owned(), len }
        }
        "fsetxattr" => Op::SetXattr { path: path(0)?, name: word(1)?.to_owned(), len: number(2)? },
        "removexattr" => {
            let name = args.get(1).copied().unwrap_or(DEFAULT_XATTR.0);
            Op::RemoveXattr { path: path(0)?, name: name.to_owned() }
        }
        "chmod" => Op::Chmod { path: path(0)?, mode: mode(1)? },
        "chown" => Op::Chown { path: path(0)?, uid: id(1)?, gid: id(2)? },
        "utimes" => Op::SetTimes { path: path(0)? },
        "chattr" => {
            let (on, flag) = match (word(1)?.strip_prefix('+'), word(1)?.strip_prefix('-')) {
                (Some(flag), _) => (true, flag),
                (None, Some(flag)) => (false, flag),
                (None, None) => return Err("neither set nor cleared".to_owned()),
            };
            find(&FLAGS, flag)?;
            Op::Chattr { path: path(0)?, flag: flag.chars().next().unwrap_or_default(), on }
        }
        "chproj" => Op::Chproj { path: path(0)?, project: id(1)? },
        "setfacl" => Op::SetAcl { path: path(0)?, default: word(1)? == "default" },
        "fill" => Op::Fill { path: path(0)?, dir: path(1)?, count: number(2)? },
        "hold" => Op::Hold { path: path(0)? },
        "release" => Op::Release { path: path(0)? },
        "shut" => Op::Close { path: path(0)? },
        "dontcache" => Op::DontCache { path: path(0)?, on: number(1)? != 0 },
        "read" => Op::Read { path: path(0)?, at: number(1)?, len: number(2)? },
        "writeback" => Op::WriteBack { path: path(0)?, at: number(1)?, len: number(2)? },
        "fsync" => Op::Fsync { path: path(0)? },
        "fdatasync" => Op::Fdatasync { path: path(0)? },
        "sync" => Op::Sync,
        _ => return Err(format!("no such operation: {verb}")),
    }))
}

fn find<T: Copy>(table: &[(T, &str)], word: &str) -> Result<T, String> {
    let found = table.iter().find(|(_, name)| *name == word);
    found.map(|(value, _)| *value).ok_or_else(|| format!("not known: {word}"))
}

/// `/A/C/foo` for itself and for its short form `ACfoo`.
fn full_path(word: &str) -> String {
    if word.starts_with('/') {
        return word.to_owned();
    }
    if word == "test" {
        return "/".to_owned();
    }
    let mut path = String::new();
    let name = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    for dir in word[..word.len() - name.len()].chars() {
        path.push('/');
        path.push(dir);
    }
    if !name.is_empty() {
        path.push('/');
        path.push_str(name);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_line_becomes_operations() {
        let text = "7\tmkdir A 0777 ; open ACfoo O_RDWR|O_CREAT 0777 ; opendir test 0777 ; \
                    falloc foo FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE 30768 5000 ; \
                    fsync test ; checkpoint 1 ; close ACfoo\n";
        let all = workloads("seq1", text).unwrap();
        assert_eq!(all[0].name, "seq1/7");
        let shown: Vec<String> = all[0].ops.iter().map(Op::to_string).collect();
        let falloc = "falloc /foo FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE 30768 5000";
        assert_eq!(shown, ["mkdir /A 0777", "creat /A/C/foo 0777", falloc, "fsync /"]);
    }

    #[test]
    fn what_is_printed_is_read_back_the_same() {
        let text = "mknod /f fifo ; tmpfile / /t 9 ; tmpfile /A - 0 ; exchange /a /b ; \
                    whiteout /a /c ; rename-noreplace /c /d ; append /d 5 ; fsetxattr /d user.x 9 ; \
                    removexattr /d user.x ; chown /d 1 2 ; utimes /d ; chattr /d +A ; hold /d ; \
                    release /d ; fdatasync /d ; sync ; symlink target /s ; chmod /d 0600 ; \
                    chattr /d -j ; chproj /d 7 ; setfacl /d default ; setfacl /d access ; \
                    fill /f /d 300 ; shut /d ; dontcache /d 1 ; read /d 3 4 ; writeback /d 0 9 ; \
                    direct-write /d 0 9 ; direct-sync /d 1 2 ; direct-queue /d 0 90000";
        let first = ops(text).unwrap();
        let shown = first.iter().map(Op::to_string).collect::<Vec<_>>().join(" ; ");
        assert_eq!(ops(&shown).unwrap(), first);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let error = ops("mkdir A 0777 ; fly /a").unwrap_err();
        assert!(error.contains("fly"), "{error}");
    }
}
