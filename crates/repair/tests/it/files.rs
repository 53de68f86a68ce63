//! The files of a volume, to compare.

use extant::{FileKind, Filesystem, Metadata, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest file that is compared whole.
const LONGEST: u64 = 64 << 20;

/// What is compared of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    len: u64,
    content: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// All files of a volume that can be read, by path.
pub fn all(img: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut files = BTreeMap::new();
    let Ok(fs) = Filesystem::open(img) else { return files };
    for entry in fs.walk("/") {
        let Ok(entry) = entry else { continue };
        let path = entry.path().to_path_buf();
        if let Ok(metadata) = entry.metadata()
            && let Ok(read) = read(&fs, &path, &metadata)
        {
            files.insert(path, read);
        }
    }
    files
}

fn read(fs: &Filesystem, path: &Path, metadata: &Metadata) -> Result<Entry> {
    let is_dir = metadata.is_dir();
    let content = match metadata.file_type() {
        FileKind::Regular if metadata.len() <= LONGEST => fs.read(path)?,
        FileKind::Regular => Vec::new(),
        FileKind::Symlink => fs.read_link(path)?.into_os_string().into_encoded_bytes(),
        _ => format!("{:?}", metadata.device()).into_bytes(),
    };
    let values = fs.node_nofollow(path)?.xattr_values()?;
    let mut attributes: Vec<(Vec<u8>, Vec<u8>)> =
        values.into_iter().map(|(name, value)| (name.into_encoded_bytes(), value)).collect();
    attributes.sort();
    Ok(Entry {
        kind: metadata.file_type(),
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        // A directory has as many blocks as its repair needs.
        len: if is_dir { 0 } else { metadata.len() },
        content,
        attributes,
    })
}

/// The files of `wanted` that `there` does not have, or has with less content or fewer attributes.
/// Files in lost+found are not compared.
pub fn missing(wanted: &BTreeMap<PathBuf, Entry>, there: &BTreeMap<PathBuf, Entry>) -> Vec<String> {
    let lost = Path::new("/lost+found");
    wanted
        .iter()
        .filter(|(path, _)| !path.starts_with(lost))
        .filter(|(path, entry)| !there.get(*path).is_some_and(|other| other.holds(entry)))
        .map(|(path, entry)| format!("{}: {}", path.display(), entry.difference(there.get(path))))
        .collect()
}

impl Entry {
    /// Whether this file has everything that another one has.
    pub fn holds(&self, other: &Entry) -> bool {
        (self.kind, self.mode, self.owner) == (other.kind, other.mode, other.owner)
            && self.content.starts_with(&other.content)
            && other.attributes.iter().all(|one| self.attributes.contains(one))
    }

    /// How another file differs from this one.
    fn difference(&self, other: Option<&Entry>) -> String {
        let Some(other) = other else { return "missing".into() };
        if self.content != other.content {
            let at = self.content.iter().zip(&other.content).position(|(a, b)| a != b);
            return format!("{} and {} bytes, differ at {at:?}", self.len, other.len);
        }
        let short = |entry: &Entry| {
            let names: Vec<String> = entry
                .attributes
                .iter()
                .map(|(name, value)| format!("{}[{}]", name.escape_ascii(), value.len()))
                .collect();
            format!("{:o} {:?} {} {names:?}", entry.mode, entry.owner, entry.len)
        };
        format!("{} and {}", short(self), short(other))
    }
}
