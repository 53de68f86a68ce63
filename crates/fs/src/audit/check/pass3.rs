//! Pass 3: every directory is reachable from the root, and its ".." is its parent.
//!
//! ```text
//!   root ◄── a ◄── b          parent known for each ──► does the path up end at the root?
//!            c ──► d ──► c    no: a loop that no name outside leads to
//! ```

use super::pass1::Tables;
use super::view::View;
use extant_base::{Ino, Site, What};
use std::sync::atomic::Ordering::Relaxed;

/// What is known about a directory's path up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    /// On the path that is being followed.
    Here,
    Root,
    Nowhere,
}

/// Runs the pass.
pub(super) fn run(view: &View<'_>, tables: &Tables) {
    let Some(root) = tables.dir(Ino::ROOT.get()) else {
        view.error(What::RootDirectory, Site::of_ino(Ino::ROOT));
        return;
    };
    let mut ways = vec![Way::Unknown; tables.dirs.len()];
    ways[root] = Way::Root;
    let mut path = Vec::new();
    for n in 0..tables.dirs.len() {
        let mut at = n;
        let end = loop {
            match ways[at] {
                Way::Unknown => {}
                Way::Here => {
                    // The path returned to itself. This is reported once, where it closed.
                    let ino = tables.dirs[at].ino;
                    report(view, What::DirectoryLoop, ino, "is below itself");
                    break Way::Nowhere;
                }
                known => break known,
            }
            ways[at] = Way::Here;
            path.push(at);
            let parent = tables.parents[at].load(Relaxed);
            match tables.dir(parent) {
                Some(parent) => at = parent,
                None => {
                    let dotdot = tables.dotdots[at].load(Relaxed);
                    let detail = format!("\"..\" names inode {dotdot}");
                    report(view, What::DirectoryUnattached, tables.dirs[at].ino, &detail);
                    break Way::Nowhere;
                }
            }
        };
        path.drain(..).for_each(|at| ways[at] = end);
    }
    for (n, dir) in tables.dirs.iter().enumerate() {
        let parent = if n == root { Ino::ROOT.get() } else { tables.parents[n].load(Relaxed) };
        let dotdot = tables.dotdots[n].load(Relaxed);
        // If there is no parent or no "..", another finding has reported that.
        if parent != 0 && dotdot != 0 && parent != dotdot {
            let detail = format!("names inode {dotdot}, the parent is inode {parent}");
            report(view, What::DirectoryParent, dir.ino, &detail);
        }
    }
}

fn report(view: &View<'_>, what: What, ino: u32, detail: &str) {
    view.error_with(what, Site { ino: Ino::new(ino), ..Site::NOWHERE }, detail);
}
