//! Many of one kind: indexed directories of every depth, files created and removed.

use std::io;

use super::Place;
use crate::rng::{Rng, bytes};

/// `count` names in `dir`, links of a new file every `links` names.
fn fill(
    p: &Place,
    dir: &str,
    count: usize,
    links: usize,
    name: impl Fn(usize) -> String,
) -> io::Result<()> {
    p.mkdir(dir)?;
    let mut source = String::new();
    for i in 0..count {
        let path = format!("{dir}/{}", name(i));
        if i % links == 0 {
            p.put(&path, b"s")?;
            source = path;
        } else {
            p.link(&source, path)?;
        }
    }
    Ok(())
}

/// 5,000 names of many lengths.
pub(super) fn htree5k(p: &Place) -> io::Result<()> {
    fill(p, "mid", 5000, 2500, |i| format!("{i:05}_{}", "q".repeat(i % 60)))
}

/// 100,000 names.
pub(super) fn htree100k(p: &Place) -> io::Result<()> {
    fill(p, "big", 100_000, 20_000, |i| format!("file_{i:06}_{}", "abcdefgh".repeat(i % 4)))
}

/// 70,000 names of 250 bytes: three index levels with blocks of 1 KiB (needs large_dir).
pub(super) fn htree_deep(p: &Place) -> io::Result<()> {
    let pad = "z".repeat(243);
    fill(p, "big", 70_000, 30_000, |i| format!("{i:06}_{pad}"))
}

/// 3,000 steps that create and remove small files.
pub(super) fn churn(p: &Place) -> io::Result<()> {
    let mut rng = Rng::new(99);
    let mut live = Vec::new();
    p.mkdir("churn")?;
    for i in 0..3000 {
        if !live.is_empty() && rng.below(100) < 45 {
            let name: String = live.swap_remove(rng.below(live.len()));
            p.unlink(name)?;
        } else {
            let name = format!("churn/{i:05}");
            p.put(&name, &bytes(i, rng.below(6000)))?;
            live.push(name);
        }
    }
    Ok(())
}
