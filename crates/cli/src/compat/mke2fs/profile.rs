//! `mke2fs.conf`: the defaults of new volumes, by type and usage.
//!
//! ```text
//!   [defaults]                        sections in brackets
//!       blocksize = 4096              relation
//!   [fs_types]
//!       ext4 = {                      subsection
//!           features = has_journal
//!       }
//! ```
//!
//! A value is looked up in `[defaults]`, then in the subsection of each type of the volume; the
//! last one counts. Source: mke2fs.conf(5).

use std::path::{Path, PathBuf};

/// What the original uses without a file.
const BUILT_IN: &str = "
[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
default_mntopts = acl,user_xattr
enable_periodic_fsck = 0
blocksize = 4096
inode_size = 256
inode_ratio = 16384
[fs_types]
ext3 = {
features = has_journal
}
ext4 = {
features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
small = {
blocksize = 1024
inode_ratio = 4096
}
floppy = {
blocksize = 1024
inode_ratio = 8192
}
big = {
inode_ratio = 32768
}
huge = {
inode_ratio = 65536
}
news = {
inode_ratio = 4096
}
largefile = {
inode_ratio = 1048576
blocksize = -1
}
largefile4 = {
inode_ratio = 4194304
blocksize = -1
}
hurd = {
blocksize = 4096
inode_size = 128
warn_y2038_dates = 0
}
";
/// A longer file is no configuration.
const LONGEST: u64 = 1 << 20;

/// A line that is not understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) path: PathBuf,
    pub(super) line: usize,
    pub(super) why: &'static str,
}

/// The relations of a file: section, subsection (or nothing), key, value; in their order.
#[derive(Debug, Default)]
pub(super) struct Profile {
    relations: Vec<[String; 4]>,
    /// Subsections of `[fs_types]`, also empty ones.
    types: Vec<String>,
}

impl Profile {
    /// Reads the file that `MKE2FS_CONFIG` names, or /etc/mke2fs.conf. Without a file, the built-in
    /// profile.
    pub(super) fn load() -> Result<Profile, SyntaxError> {
        let path = std::env::var_os("MKE2FS_CONFIG").unwrap_or("/etc/mke2fs.conf".into());
        let path = Path::new(&path);
        let short = std::fs::metadata(path).is_ok_and(|file| file.len() <= LONGEST);
        match std::fs::read(path) {
            Ok(bytes) if short => Profile::parse(&String::from_utf8_lossy(&bytes))
                .map_err(|(line, why)| SyntaxError { path: path.into(), line, why }),
            _ => Ok(Profile::built_in()),
        }
    }

    fn built_in() -> Profile {
        Profile::parse(BUILT_IN).expect("the built-in profile is valid")
    }

    fn parse(text: &str) -> Result<Profile, (usize, &'static str)> {
        let mut profile = Profile::default();
        let (mut section, mut types) = (String::new(), Vec::<String>::new());
        for (nr, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.split_once(']').ok_or((nr, "Section header syntax error"))?.0;
                name.trim().clone_into(&mut section);
                types.clear();
                continue;
            }
            if let Some(rest) = line.strip_prefix('}') {
                if !rest.trim_end_matches('*').trim().is_empty() || types.pop().is_none() {
                    return Err((nr, "Extra closing brace in profile"));
                }
                continue;
            }
            if section.is_empty() {
                return Err((nr, "Expected a section header"));
            }
            let (key, value) = line.split_once('=').ok_or((nr, "Syntax error"))?;
            let (key, value) = (key.trim(), value.trim());
            if value == "{" {
                if types.is_empty() && section == "fs_types" {
                    profile.types.push(key.to_owned());
                }
                types.push(key.to_owned());
            } else {
                let value = unquoted(value).ok_or((nr, "Missing closing quote"))?;
                // What is in a subsection of a subsection has no meaning.
                if types.len() <= 1 {
                    let of_type = types.last().cloned().unwrap_or_default();
                    profile.relations.push([section.clone(), of_type, key.into(), value]);
                }
            }
        }
        Ok(profile)
    }

    /// Whether `[fs_types]` has a subsection of this name.
    pub(super) fn has_type(&self, name: &str) -> bool {
        self.types.iter().any(|known| known == name)
    }

    /// The first value of a key in a subsection of a section.
    fn value(&self, section: &str, of_type: &str, key: &str) -> Option<&str> {
        let wanted = |[s, t, k, _]: &&[String; 4]| s == section && t == of_type && k == key;
        self.relations.iter().find(wanted).map(|relation| relation[3].as_str())
    }

    /// A value of `[defaults]` only.
    pub(super) fn default_value(&self, key: &str) -> Option<&str> {
        self.value("defaults", "", key)
    }

    /// The values of a key that the types have of their own.
    pub(super) fn of_types(&self, types: &[String], key: &str) -> Vec<&str> {
        types.iter().filter_map(|of_type| self.value("fs_types", of_type, key)).collect()
    }

    /// The value of a key for a volume of these types.
    pub(super) fn get(&self, types: &[String], key: &str) -> Option<&str> {
        self.of_types(types, key).pop().or_else(|| self.default_value(key))
    }

    /// A whole number. `None` also for a value that is none.
    pub(super) fn number(&self, types: &[String], key: &str) -> Option<i64> {
        self.get(types, key)?.parse().ok()
    }

    /// A choice of yes and no.
    pub(super) fn flag(&self, types: &[String], key: &str) -> Option<bool> {
        match self.get(types, key)?.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" | "t" | "1" | "on" => Some(true),
            "n" | "no" | "false" | "nil" | "0" | "off" => Some(false),
            _ => None,
        }
    }
}

/// A value without its quotes and escapes. `None` if the closing quote is missing.
fn unquoted(value: &str) -> Option<String> {
    let Some(quoted) = value.strip_prefix('"') else { return Some(value.to_owned()) };
    let (mut text, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_last_type_counts() {
        let profile = Profile::built_in();
        assert_eq!(profile.number(&types(&["ext4"]), "blocksize"), Some(4096));
        assert_eq!(profile.number(&types(&["ext4", "small"]), "blocksize"), Some(1024));
        assert_eq!(profile.number(&types(&["ext4", "small", "news"]), "inode_ratio"), Some(4096));
        assert_eq!(profile.flag(&types(&["hurd"]), "warn_y2038_dates"), Some(false));
        assert_eq!(profile.flag(&[], "warn_y2038_dates"), None);
        assert!(profile.has_type("largefile4") && !profile.has_type("ext2"));
    }

    #[test]
    fn comments_quotes_and_errors() {
        let text = "# c\n; c\n[a]\nx = \"1 \\\"2\" \nt = {\n y = 3\n u = {\n y = 4\n }\n}\n";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.value("a", "", "x"), Some("1 \"2"));
        assert_eq!(profile.value("a", "t", "y"), Some("3"));
        for (text, line) in [("x\n", 1), ("[a\n", 1), ("[a]\nx\n", 2), ("[a]\n}\n", 2)] {
            assert_eq!(Profile::parse(text).unwrap_err().0, line, "{text}");
        }
        assert!(Profile::parse("[a]\nx = \"1").is_err());
    }
}
