//! Random operations that records of fast commits can express: every fsync after the first sync can
//! be a fast commit.
//!
//! ```text
//!   setup   4 files that keep their names ─ sync
//!   then    a file written, truncated, punched, linked, renamed, chmodded, or new ─ fsync it ─ …
//! ```

use crate::parse;
use crate::workload::Workload;
use extant_testkit::rng::Rng;

/// Files whose last name is never removed.
const KEPT: [&str; 4] = ["/k0", "/k1", "/d/k2", "/d/k3"];
const DIRS: [&str; 2] = ["", "/d"];

/// The workload of a seed: `len` operations, most of them synced at once.
pub fn workload(seed: u64, len: usize) -> Workload {
    let mut rng = Rng::new(seed ^ 0x7071);
    let mut text = "mkdir /d 0755".to_owned();
    for path in KEPT {
        text += &format!(" ; creat {path} 0644 ; write {path} 0 9000");
    }
    text += " ; sync";
    // Second names, and new files.
    let (mut links, mut new) = (Vec::<(String, usize)>::new(), Vec::<String>::new());
    for n in 0..len {
        let kept = rng.below(KEPT.len());
        let file = match new.is_empty() || rng.below(2) == 0 {
            true => KEPT[kept].to_owned(),
            false => new[rng.below(new.len())].clone(),
        };
        let name = format!("{}/n{n}", DIRS[rng.below(2)]);
        let (at, size) = (rng.below(40_000), 1 + rng.below(9000));
        let (op, changed) = match rng.below(12) {
            0 | 1 => (format!("write {file} {at} {size}"), file),
            2 | 3 => (format!("append {file} {size}"), file),
            4 => (format!("truncate {file} {at}"), file),
            5 => {
                let how = "FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE";
                (format!("falloc {file} {how} {at} {size}"), file)
            }
            6 => (format!("chmod {file} 06{}4", rng.below(8)), file),
            7 => {
                links.push((name.clone(), kept));
                (format!("link {} {name}", KEPT[kept]), KEPT[kept].to_owned())
            }
            8 if !links.is_empty() => {
                let (gone, of) = links.swap_remove(rng.below(links.len()));
                (format!("unlink {gone}"), KEPT[of].to_owned())
            }
            9 if !new.is_empty() => {
                let at = rng.below(new.len());
                let old = std::mem::replace(&mut new[at], name.clone());
                (format!("rename {old} {name}"), name)
            }
            10 if !links.is_empty() => {
                let at = rng.below(links.len());
                let old = std::mem::replace(&mut links[at].0, name.clone());
                (format!("rename {old} {name}"), name)
            }
            _ => {
                new.push(name.clone());
                (format!("creat {name} 0600 ; write {name} {at} {size}"), name)
            }
        };
        text += &format!(" ; {op}");
        if rng.below(4) > 0 {
            text += &format!(" ; fsync {changed}");
        } else if rng.below(12) == 0 {
            text += " ; sync";
        }
    }
    let ops = parse::ops(&text).expect("the text is right");
    Workload { name: format!("told {seed}"), ops }
}
