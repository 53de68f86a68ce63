//! Everything that is visible of a volume, for comparing two volumes.

use extant::{FileKind, Filesystem, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// One file of any kind. A directory's size and times are omitted: fast commits do not record them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub ino: u32,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u32,
    pub flags: u32,
    pub generation: u32,
    pub size: u64,
    /// Access, modification, change, birth.
    pub times: Vec<Timestamp>,
    pub target: Option<PathBuf>,
    pub xattrs: Vec<(OsString, Vec<u8>)>,
    pub content: Vec<u8>,
}

pub type Tree = BTreeMap<PathBuf, Seen>;

/// The whole volume.
pub fn tree(fs: &Filesystem) -> extant::Result<Tree> {
    let mut tree = Tree::new();
    for entry in fs.walk("/").sorted(true) {
        let entry = entry?;
        let (path, meta) = (entry.path().to_path_buf(), entry.metadata()?);
        let is_dir = meta.file_type() == FileKind::Directory;
        let times = [meta.accessed(), meta.modified(), meta.changed()];
        let seen = Seen {
            ino: meta.ino().get(),
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink(),
            flags: meta.flags().bits() & !extant::InodeFlags::INDEX.bits(),
            generation: meta.generation(),
            size: if is_dir { 0 } else { meta.len() },
            times: if is_dir { vec![] } else { times.into_iter().chain(meta.created()).collect() },
            target: meta.is_symlink().then(|| entry.read_link()).transpose()?,
            xattrs: fs.node_of_ino(meta.ino()).and_then(|node| node.xattr_values())?,
            content: if meta.is_file() { fs.read(&path)? } else { vec![] },
        };
        tree.insert(path, seen);
    }
    Ok(tree)
}

/// The first few differences as text; empty if there are none.
pub fn differences(left: &Tree, right: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let paths: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
    for path in paths {
        let path_shown = path.display();
        match (left.get(path), right.get(path)) {
            (Some(_), None) => found.push(format!("{path_shown} is missing")),
            (None, Some(_)) => found.push(format!("{path_shown} is too much")),
            (Some(a), Some(b)) if a != b => {
                let at = a.content.iter().zip(&b.content).position(|(a, b)| a != b);
                let brief = |seen: &Seen| Seen { content: vec![], ..seen.clone() };
                found.push(format!(
                    "{path_shown}: {:?} became {:?}; content differs from {at:?} on",
                    brief(a),
                    brief(b)
                ));
            }
            _ => {}
        }
    }
    found.truncate(6);
    found
}
