//! The time until which fast overwrites need nothing of the inode, in every order that the memory
//! model allows.
//!
//! ```text
//!   overwrite   enabled? ► folio's lock [ still enabled? ► bytes ]   no lock of the inode's
//!   change      inode [ disable ► folio's lock [ settle ] ► … ]      no overwrite after settling
//!   writer      inode [ bytes ► enable ]
//! ```
//!
//! A change disables fast overwrites before it takes the folio's lock, and an overwrite checks
//! under that lock. So either the change sees the overwrite, or the overwrite sees that it is
//! disabled. `disable_fast_overwrite` and `is_enabled` are the engine's own lines.

use crate::fast_overwrite_code::is_enabled;
use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Mutex};
use loom::thread::spawn;
use std::sync::atomic::Ordering;

pub(crate) struct Inode {
    pub(crate) fast_overwrite_until: AtomicU64,
    body: Mutex<()>,
    /// How often it was overwritten.
    folio: Mutex<u64>,
}

/// The order of the steps, right or wrong.
#[derive(Clone, Copy)]
struct Forms {
    overwrite: fn(&Inode),
    settle: fn(&Inode) -> u64,
}

const RIGHT: Forms = Forms {
    overwrite: |inode| {
        if inode.fast_overwrite_until.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut folio = inode.folio.lock().unwrap();
        if is_enabled(inode) {
            *folio += 1;
        }
    },
    settle: |inode| {
        inode.disable_fast_overwrite();
        *inode.folio.lock().unwrap()
    },
};

fn every_order(forms: Forms) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let inode = Arc::new(Inode {
            fast_overwrite_until: AtomicU64::new(0),
            body: Mutex::new(()),
            folio: Mutex::new(0),
        });
        let writer = spawn({
            let inode = inode.clone();
            move || {
                let _body = inode.body.lock().unwrap();
                inode.fast_overwrite_until.store(7, Ordering::Release);
            }
        });
        let overwriter = spawn({
            let inode = inode.clone();
            move || (forms.overwrite)(&inode)
        });
        {
            let _body = inode.body.lock().unwrap();
            let settled = (forms.settle)(&inode);
            let now = *inode.folio.lock().unwrap();
            assert_eq!(now, settled, "an overwrite follows the settled change");
        }
        writer.join().unwrap();
        overwriter.join().unwrap();
    });
}

#[test]
fn no_overwrite_follows_a_settled_change() {
    every_order(RIGHT);
}

#[test]
#[should_panic(expected = "an overwrite follows")]
fn a_check_before_the_folio_is_locked_is_too_early() {
    let overwrite = |inode: &Inode| {
        if is_enabled(inode) {
            *inode.folio.lock().unwrap() += 1;
        }
    };
    every_order(Forms { overwrite, ..RIGHT });
}

#[test]
#[should_panic(expected = "an overwrite follows")]
fn disabling_after_settling_is_too_late() {
    let settle = |inode: &Inode| {
        let settled = *inode.folio.lock().unwrap();
        inode.disable_fast_overwrite();
        settled
    };
    every_order(Forms { settle, ..RIGHT });
}
