//! The tree as it should be: nodes and names in maps, errors in Linux' order.

use crate::acl::Acl;
use crate::op::{FLAGS, Op, Place, Pools, SLOTS, Way, content, name, target};
use crate::{Answer, Outcome, Stat};
use std::collections::BTreeMap;
use std::sync::Arc;

const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EPERM: i32 = 1;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;

/// The owner of everything that is created.
pub const OWNER: u32 = 7;

/// The number of a node.
pub type Id = usize;

/// A file of any kind.
#[derive(Clone, Debug)]
pub struct Node {
    /// As `find -type` names it.
    pub kind: char,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub links: u32,
    /// Where a symlink leads.
    pub target: Option<String>,
    /// Names in a directory: from the form for comparison to the given form.
    pub names: BTreeMap<String, (String, Id)>,
    /// The parent of a directory.
    pub parent: Id,
    /// It never had a name, and may get one.
    pub nameable: bool,
    /// The bytes of a file.
    pub content: Arc<Vec<u8>>,
    /// The only extended attribute.
    pub xattr: Option<Vec<u8>>,
    /// Its own access control list, if its mode does not express it all.
    pub acl: Option<Acl>,
    /// The default list of a directory.
    pub default_acl: Option<Acl>,
    /// Those of [`FLAGS`] that it has.
    pub flags: u32,
    /// Its project.
    pub project: u32,
}

/// All nodes; the root is 0. Removed ones stay, because slots may hold them.
#[derive(Clone, Debug)]
pub struct Tree {
    /// By id.
    pub nodes: Vec<Node>,
    /// What the slots hold.
    pub slots: [Option<Id>; SLOTS],
    /// The volume folds case, below the root's directories.
    pub folds: bool,
    /// The names to use.
    pub pools: Pools,
    /// Files belong to projects.
    pub projects: bool,
}

impl Tree {
    /// A tree with nothing but its root.
    pub fn new(folds: bool, pools: Pools) -> Tree {
        let root = Node { uid: 0, ..node('d', 0o755, 0) };
        Tree { nodes: vec![root], slots: [None; SLOTS], folds, pools, projects: false }
    }

    /// The directories that have a name, in the order of their creation; the `n`-th modulo their
    /// number.
    pub fn dir(&self, n: usize) -> Id {
        let live = |id: &Id| self.nodes[*id].kind == 'd' && self.nodes[*id].links > 0;
        let all: Vec<Id> = (0..self.nodes.len()).filter(live).collect();
        all[n % all.len()]
    }

    /// The path of a directory, without a leading slash.
    pub fn path(&self, dir: Id) -> String {
        if dir == 0 {
            return String::new();
        }
        let parent = self.nodes[dir].parent;
        let named = self.nodes[parent].names.values().find(|(_, id)| *id == dir);
        let (name, _) = named.expect("a directory that lives has a name");
        format!("{}/{name}", self.path(parent))
    }

    fn key(&self, name: &str) -> String {
        match self.folds {
            true => name.to_lowercase().replace('ß', "ss"),
            false => name.to_string(),
        }
    }

    fn find(&self, dir: Id, name: &str) -> Option<Id> {
        self.nodes[dir].names.get(&self.key(name)).map(|(_, id)| *id)
    }

    /// The node that the name refers to.
    fn lookup(&self, dir: Id, name: &str) -> Result<Id, i32> {
        match name {
            "." => Ok(dir),
            ".." => Ok(self.nodes[dir].parent),
            _ if name.len() > 255 => Err(ENAMETOOLONG),
            _ => self.find(dir, name).ok_or(ENOENT),
        }
    }

    /// Whether a new name can be added there.
    fn check_new(&self, dir: Id, name: &str) -> Result<(), i32> {
        if self.nodes[dir].kind != 'd' {
            return Err(ENOTDIR);
        }
        if self.nodes[dir].links == 0 {
            return Err(ENOENT);
        }
        if name.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        match matches!(name, "." | "..") || self.find(dir, name).is_some() {
            true => Err(EEXIST),
            false => Ok(()),
        }
    }

    fn enter(&mut self, dir: Id, name: &str, id: Id) {
        let key = self.key(name);
        self.nodes[dir].names.insert(key, (name.to_string(), id));
    }

    fn leave(&mut self, dir: Id, name: &str) {
        let key = self.key(name);
        self.nodes[dir].names.remove(&key);
    }

    fn make(&mut self, dir: Id, name: &str, node: Node) -> Outcome {
        self.check_new(dir, name)?;
        let id = self.add(dir, node);
        self.enter(dir, name, id);
        if self.nodes[id].kind == 'd' {
            self.nodes[dir].links += 1;
        }
        Ok(Answer::Done)
    }

    /// A new node; group, set-group-ID bit, default list and flags follow the directory.
    fn add(&mut self, dir: Id, mut node: Node) -> Id {
        if self.nodes[dir].mode & 0o2000 != 0 {
            node.gid = self.nodes[dir].gid;
            if node.kind == 'd' {
                node.mode |= 0o2000;
            }
        }
        if let Some(default) = self.nodes[dir].default_acl
            && node.kind != 'l'
        {
            (node.mode, node.acl) = default.inherited(node.mode);
            node.default_acl = (node.kind == 'd').then_some(default);
        }
        node.parent = dir;
        node.flags = self.nodes[dir].flags;
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn stat(&self, id: Id) -> Answer {
        let node = &self.nodes[id];
        Answer::Stat(Stat {
            kind: node.kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            links: node.links,
            target: node.target.clone(),
        })
    }

    /// Applies the operation, or returns its errno.
    pub fn apply(&mut self, op: Op) -> Outcome {
        let at = |tree: &Tree, place: Place| (tree.dir(place.dir), name(place.name, tree.pools));
        match op {
            Op::Create { at: place, mode, gid } => {
                let (dir, name) = at(self, place);
                self.make(dir, &name, node('f', mode, gid))
            }
            Op::Mkdir { at: place, mode, gid } => {
                let (dir, name) = at(self, place);
                self.make(dir, &name, node('d', mode, gid))
            }
            Op::Symlink { at: place, target: n } => {
                let (dir, name) = at(self, place);
                self.make(dir, &name, Node { target: Some(target(n)), ..node('l', 0o777, 0) })
            }
            Op::Mknod { at: place, kind } => {
                let (dir, name) = at(self, place);
                self.make(dir, &name, node(['p', 's', 'c', 'b'][kind], 0o640, 0))
            }
            Op::Link { from, to } => {
                let (from, old) = at(self, from);
                let source = self.lookup(from, &old)?;
                let (dir, name) = at(self, to);
                self.link(source, dir, &name)
            }
            Op::Unlink { at: place } => {
                let (dir, name) = at(self, place);
                self.unlink(dir, &name)
            }
            Op::Rmdir { at: place } => {
                let (dir, name) = at(self, place);
                self.rmdir(dir, &name)
            }
            Op::Rename { from, to, way } => {
                let (from, old) = at(self, from);
                let (to, new) = at(self, to);
                self.rename((from, &old), (to, &new), way)
            }
            Op::Stat { at: place } => {
                let (dir, name) = at(self, place);
                Ok(self.stat(self.lookup(dir, &name)?))
            }
            Op::List { dir } => Ok(self.list(self.dir(dir))),
            Op::Hold { slot, at: place } => {
                let (dir, name) = at(self, place);
                self.slots[slot] = Some(self.lookup(dir, &name)?);
                Ok(Answer::Done)
            }
            Op::Tmpfile { slot } => {
                let id = self.add(0, Node { links: 0, nameable: true, ..node('f', 0o600, 0) });
                self.slots[slot] = Some(id);
                Ok(Answer::Done)
            }
            Op::LinkHeld { slot, to } => {
                let Some(source) = self.slots[slot] else { return Ok(Answer::Done) };
                let (dir, name) = at(self, to);
                self.link(source, dir, &name)
            }
            Op::CreateInHeld { slot, name: n } => {
                let Some(dir) = self.slots[slot] else { return Ok(Answer::Done) };
                let name = name(n, self.pools);
                self.make(dir, &name, node('f', 0o644, 0))
            }
            Op::StatHeld { slot } => match self.slots[slot] {
                Some(id) => Ok(self.stat(id)),
                None => Ok(Answer::Done),
            },
            Op::WriteHeld { slot, offset, len } => Ok(self.change(slot, |bytes| {
                let (from, to) = (offset as usize, (offset + len) as usize);
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].copy_from_slice(&content(offset, len));
            })),
            Op::AppendHeld { slot, len } => {
                Ok(self.change(slot, |bytes| bytes.extend(content(0, len))))
            }
            Op::ResizeHeld { slot, size } => {
                Ok(self.change(slot, |bytes| bytes.resize(size as usize, 0)))
            }
            Op::PunchHeld { slot, offset, len } => Ok(self.change(slot, |bytes| {
                let end = bytes.len();
                bytes[end.min(offset as usize)..end.min((offset + len) as usize)].fill(0);
            })),
            Op::ReadHeld { slot } => Ok(match self.held(slot, 'f') {
                Some(node) => Answer::Content(Arc::clone(&node.content)),
                None => Answer::Done,
            }),
            Op::ChmodHeld { slot, mode } => {
                if let Some(id) = self.slots[slot].filter(|id| self.nodes[*id].kind != 'l') {
                    let node = &mut self.nodes[id];
                    node.mode = mode;
                    node.acl = node.acl.map(|acl| acl.following(mode));
                }
                Ok(Answer::Done)
            }
            Op::DefaultAclHeld { slot, list } => {
                if let Some(id) = self.slots[slot].filter(|id| self.nodes[*id].kind == 'd') {
                    self.nodes[id].default_acl = list.map(Acl::of_pool);
                }
                Ok(Answer::Done)
            }
            Op::ReadAclHeld { slot } => {
                let node = self.slots[slot].map(|id| &self.nodes[id]);
                Ok(match node.filter(|node| node.kind != 'l') {
                    Some(node) => Answer::Value(node.acl.map(Acl::bytes)),
                    None => Answer::Done,
                })
            }
            Op::XattrHeld { slot, len } => self.set_attribute(slot, len),
            Op::FlagHeld { slot, flag, on } => {
                if let Some(node) = self.flagged(slot) {
                    node.flags &= !FLAGS[flag];
                    node.flags |= if on { FLAGS[flag] } else { 0 };
                }
                Ok(Answer::Done)
            }
            Op::ReadFlagsHeld { slot } => Ok(match self.flagged(slot) {
                Some(node) => Answer::Flags(node.flags),
                None => Answer::Done,
            }),
            Op::ExtentsHeld { .. } => Ok(Answer::Done),
            Op::ProjectHeld { slot, project } => {
                if let (Some(id), true) = (self.slots[slot], self.projects) {
                    self.nodes[id].project = project;
                }
                Ok(Answer::Done)
            }
            Op::LetGo { slot } => {
                self.slots[slot] = None;
                Ok(Answer::Done)
            }
            Op::Reopen => {
                self.slots = [None; SLOTS];
                Ok(Answer::Done)
            }
        }
    }

    /// What a slot holds, if it is of a kind.
    pub fn held(&self, slot: usize, kind: char) -> Option<&Node> {
        self.slots[slot].map(|id| &self.nodes[id]).filter(|node| node.kind == kind)
    }

    /// What a slot holds, if it is of a kind whose flags can be read.
    fn flagged(&mut self, slot: usize) -> Option<&mut Node> {
        let id = self.slots[slot].filter(|id| matches!(self.nodes[*id].kind, 'f' | 'd'))?;
        Some(&mut self.nodes[id])
    }

    /// Changes the bytes of the file that a slot holds, if it holds one.
    fn change(&mut self, slot: usize, change: impl FnOnce(&mut Vec<u8>)) -> Answer {
        if self.held(slot, 'f').is_some()
            && let Some(id) = self.slots[slot]
        {
            change(Arc::make_mut(&mut self.nodes[id].content));
        }
        Answer::Done
    }

    fn set_attribute(&mut self, slot: usize, len: Option<u8>) -> Outcome {
        let Some(id) = self.slots[slot] else { return Ok(Answer::Done) };
        let node = &mut self.nodes[id];
        if !matches!(node.kind, 'f' | 'd') {
            return Err(EPERM);
        }
        if len.is_none() && node.xattr.is_none() {
            return Err(ENODATA);
        }
        node.xattr = len.map(|len| vec![len; len.into()]);
        Ok(Answer::Value(node.xattr.clone()))
    }

    /// Names and kinds, sorted.
    pub fn list(&self, dir: Id) -> Answer {
        let names = self.nodes[dir].names.values();
        let mut list: Vec<_> =
            names.map(|(name, id)| (name.clone(), self.nodes[*id].kind)).collect();
        list.sort();
        Answer::List(list)
    }

    fn link(&mut self, source: Id, dir: Id, name: &str) -> Outcome {
        self.check_new(dir, name)?;
        let node = &self.nodes[source];
        if node.kind == 'd' {
            return Err(EPERM);
        }
        if node.links == 0 && !node.nameable {
            return Err(ENOENT);
        }
        self.nodes[source].links += 1;
        self.enter(dir, name, source);
        Ok(Answer::Done)
    }

    fn unlink(&mut self, dir: Id, name: &str) -> Outcome {
        if matches!(name, "." | "..") {
            return Err(EISDIR);
        }
        let id = self.lookup(dir, name)?;
        if self.nodes[id].kind == 'd' {
            return Err(EISDIR);
        }
        self.leave(dir, name);
        self.drop_name(id);
        Ok(Answer::Done)
    }

    fn drop_name(&mut self, id: Id) {
        match self.nodes[id].kind {
            'd' => self.nodes[id].links = 0,
            _ => self.nodes[id].links -= 1,
        }
        // A file that lost its last name cannot get another.
        self.nodes[id].nameable = false;
    }

    fn rmdir(&mut self, dir: Id, name: &str) -> Outcome {
        match name {
            "." => return Err(EINVAL),
            ".." => return Err(ENOTEMPTY),
            _ => {}
        }
        let id = self.lookup(dir, name)?;
        if self.nodes[id].kind != 'd' {
            return Err(ENOTDIR);
        }
        if !self.nodes[id].names.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.leave(dir, name);
        self.drop_name(id);
        self.nodes[dir].links -= 1;
        Ok(Answer::Done)
    }

    fn is_at_or_above(&self, above: Id, mut dir: Id) -> bool {
        while dir != above && dir != 0 {
            dir = self.nodes[dir].parent;
        }
        dir == above
    }

    fn rename(&mut self, (from, old): (Id, &str), (to, new): (Id, &str), way: Way) -> Outcome {
        if matches!(old, "." | "..") {
            return Err(EBUSY);
        }
        if matches!(new, "." | "..") {
            return Err(if way == Way::NoReplace { EEXIST } else { EBUSY });
        }
        let source = self.lookup(from, old)?;
        if new.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        let victim = self.find(to, new);
        match victim {
            Some(_) if way == Way::NoReplace => return Err(EEXIST),
            None if way == Way::Exchange => return Err(ENOENT),
            _ => {}
        }
        let is_dir = |id: Id| self.nodes[id].kind == 'd';
        let exchange = way == Way::Exchange;
        if from != to {
            if is_dir(source) && self.is_at_or_above(source, to) {
                return Err(EINVAL);
            }
            if victim.is_some_and(|v| is_dir(v) && self.is_at_or_above(v, from)) {
                return Err(if exchange { EINVAL } else { ENOTEMPTY });
            }
        }
        if victim == Some(source) {
            return Ok(Answer::Done);
        }
        if let (Some(victim), true) = (victim, exchange) {
            self.exchange((from, old), (to, new), source, victim);
            return Ok(Answer::Done);
        }
        if let Some(victim) = victim {
            match (is_dir(source), is_dir(victim)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.nodes[victim].names.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
            if is_dir(victim) {
                self.nodes[to].links -= 1;
            }
            self.drop_name(victim);
            // The entry keeps its place, and so the name with which it was created.
            let key = self.key(new);
            let kept = self.nodes[to].names[&key].0.clone();
            self.nodes[to].names.insert(key, (kept, source));
        } else {
            self.enter(to, new, source);
        }
        if self.nodes[source].kind == 'd' {
            self.nodes[source].parent = to;
            self.nodes[from].links -= 1;
            self.nodes[to].links += 1;
        }
        if way == Way::Whiteout {
            let id = self.add(from, Node { uid: 0, ..node('c', 0, 0) });
            let key = self.key(old);
            let kept = self.nodes[from].names[&key].0.clone();
            self.nodes[from].names.insert(key, (kept, id));
        } else {
            self.leave(from, old);
        }
        Ok(Answer::Done)
    }

    fn exchange(&mut self, (from, old): (Id, &str), (to, new): (Id, &str), a: Id, b: Id) {
        let (old, new) = (self.key(old), self.key(new));
        let kept = |tree: &Tree, dir: Id, key: &str| tree.nodes[dir].names[key].0.clone();
        let (name_a, name_b) = (kept(self, from, &old), kept(self, to, &new));
        self.nodes[from].names.insert(old, (name_a, b));
        self.nodes[to].names.insert(new, (name_b, a));
        for (id, out, into) in [(a, from, to), (b, to, from)] {
            if self.nodes[id].kind == 'd' {
                self.nodes[id].parent = into;
                self.nodes[out].links -= 1;
                self.nodes[into].links += 1;
            }
        }
    }
}

fn node(kind: char, mode: u16, gid: u32) -> Node {
    Node {
        kind,
        mode,
        uid: OWNER,
        gid,
        links: if kind == 'd' { 2 } else { 1 },
        target: None,
        names: BTreeMap::new(),
        parent: 0,
        nameable: false,
        content: Arc::default(),
        xattr: None,
        acl: None,
        default_acl: None,
        flags: 0,
        project: 0,
    }
}
