//! A tree's digest: SHA-256 over everything that an image shows of it except the files' bytes.
//!
//! ```text
//!   node   type │ mode uid gid │ mtime │ atime? ctime? │ attributes │ size, target or device
//!   names  count, then per name: length, name, and the node, or the number of one seen before
//! ```
//!
//! All integers are little-endian, and all strings carry their length, so two different trees never
//! give the same stream. Paths on this machine, inode numbers and positions in archives are not
//! part of it. Nodes are visited in the tree's own order, so equal content has an equal digest.

use crate::entry::{Kind, Node, NodeId, Time};
use crate::tree::Tree;
use sha2::{Digest, Sha256};

impl Tree {
    /// The digest of names, types, modes, owners, sizes, times, attributes, targets, holes and
    /// hard links, from which an image's UUID and hash seed are derived.
    pub fn digest(&self) -> [u8; 32] {
        self.digest_until(None)
    }

    /// The digest in which times after `latest` count as `latest`, as the image stores them.
    pub(crate) fn digest_until(&self, latest: Option<Time>) -> [u8; 32] {
        let buffer = Vec::with_capacity(64 << 10);
        let mut out = Stream { hash: Sha256::new(), buffer, latest };
        out.bytes(b"extant tree 1");
        let sets: Vec<[u8; 32]> = self
            .xattr_sets
            .iter()
            .map(|set| {
                let mut hash = Sha256::new();
                for x in set.iter() {
                    hash.update((x.name.len() as u64).to_le_bytes());
                    hash.update(&x.name);
                    hash.update((x.value.len() as u64).to_le_bytes());
                    hash.update(&x.value);
                }
                hash.finalize().into()
            })
            .collect();
        for (id, node) in self.iter() {
            self.put_node(&mut out, id, node, &sets);
        }
        out.flush();
        out.hash.finalize().into()
    }

    fn put_node(&self, out: &mut Stream, id: NodeId, node: &Node, sets: &[[u8; 32]]) {
        out.buffer.extend_from_slice(&(node.kind.mode_type() | node.meta.mode).to_le_bytes());
        out.number(node.meta.uid.into());
        out.number(node.meta.gid.into());
        out.time(Some(node.meta.mtime));
        let extra = self.extra_times(id);
        out.time(extra.atime);
        out.time(extra.ctime);
        if node.xattrs == 0 {
            out.buffer.push(0);
        } else {
            out.buffer.push(1);
            out.buffer.extend_from_slice(&sets[node.xattrs as usize]);
        }
        match node.kind {
            Kind::Directory(_) => {
                let children = self.children(id);
                out.number(children.len() as u64);
                for (name, child) in children {
                    out.bytes(name);
                    out.number(child.index() as u64);
                }
            }
            Kind::File { size, .. } => {
                out.number(size);
                let map = self.data_map(id);
                out.number(map.ranges().count() as u64);
                for (offset, len) in map.ranges() {
                    out.number(offset);
                    out.number(len);
                }
            }
            Kind::Symlink(_) => out.bytes(self.target(id)),
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                out.number(major.into());
                out.number(minor.into());
            }
            Kind::Fifo | Kind::Socket => {}
        }
        if out.buffer.len() > 60 << 10 {
            out.flush();
        }
    }
}

struct Stream {
    hash: Sha256,
    buffer: Vec<u8>,
    latest: Option<Time>,
}

impl Stream {
    fn number(&mut self, value: u64) {
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.buffer.extend_from_slice(bytes);
    }

    fn time(&mut self, time: Option<Time>) {
        match time {
            None => self.buffer.push(0),
            Some(time) => {
                let time = self.latest.map_or(time, |latest| time.min(latest));
                self.buffer.push(1);
                self.buffer.extend_from_slice(&time.sec.to_le_bytes());
                self.buffer.extend_from_slice(&time.nsec.to_le_bytes());
            }
        }
    }

    fn flush(&mut self) {
        self.hash.update(&self.buffer);
        self.buffer.clear();
    }
}
