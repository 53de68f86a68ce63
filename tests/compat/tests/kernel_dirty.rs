//! Volumes that Linux was writing when the power was cut. extant shows what was synced, without a
//! write if it only reads. After its recovery e2fsck finds nothing and Linux agrees.
//!
//! ```text
//!   crash state ──► tree (image unchanged) ──► must survive?
//!        ├──► replay ──► e2fsck ──► check ──► tree, the same? ──► Linux mounts it, the same?
//!        ├──► Linux recovers a copy: the same?
//!        └──► extant opens a copy to write and changes it ──► e2fsck
//! ```

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use extant_compat_tests::changed::change;
use extant_compat_tests::{Verdict, linux_confirms};
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::extant::Extant;
use extant_testkit::kernel_images::{CrashCase, CrashState, crash_cases};
use extant_testkit::manifest::{Look, Manifest, hash_file};
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, copy_sparse};

fn group(name: &str, takes: impl Fn(&CrashCase) -> bool) {
    let extant = Extant::get().expect("the extant command");
    let cases: Vec<CrashCase> = crash_cases().into_iter().filter(takes).collect();
    let kept = Scratch::new();
    let verdicts = Mutex::new(Vec::new());
    let mut failures = try_cases(
        name,
        &cases,
        |case| case.name.clone(),
        |case| {
            let scratch = Scratch::new();
            let state = case.make(scratch.path())?;
            let crashed = kept.file(&format!("{}.crashed", case.name));
            copy_sparse(&state.img, &crashed)?;
            let crashed_journal = keep_journal(&kept, &format!("{}.crashed", case.name), &state)?;
            let expected = recover(&extant, case, &state)?;
            if case.journaled() {
                let img = kept.file(&case.name);
                copy_sparse(&state.img, &img)?;
                let by_extant = Verdict {
                    name: case.name.clone(),
                    img,
                    journal: keep_journal(&kept, &case.name, &state)?,
                    expected: expected.clone(),
                    look: Look::all(),
                    recovered_by_linux: false,
                };
                // After fast commits Linux may leave directories with wrong counts, and sets the
                // times of directories to which it added names to the time of the recovery.
                let exact = !case.fast_commits();
                let by_linux = Verdict {
                    name: format!("{} as Linux recovers it", case.name),
                    img: crashed.clone(),
                    journal: crashed_journal.clone(),
                    expected,
                    look: Look { blocks: exact, dir_shape: exact, dir_times: exact, ..Look::all() },
                    recovered_by_linux: true,
                };
                if ["mixed", "orphans"].contains(&case.scenario.as_str()) {
                    // Opening recovers it, too; then it is used.
                    copy_sparse(&crashed, &state.img)?;
                    if let (Some(from), Some(to)) = (&crashed_journal, &state.journal) {
                        copy_sparse(from, to)?;
                    }
                    change(&state.img, state.journal.as_deref())?;
                }
                let mut verdicts = verdicts.lock().expect("no case panics with it");
                verdicts.push(by_extant);
                if !linux_dies_of(case) {
                    verdicts.push(by_linux);
                }
            }
            Ok(format!("{} to survive", state.must.len()))
        },
    );
    let guest = Scratch::new();
    let verdicts = verdicts.into_inner().expect("no case panics with it");
    failures.extend(linux_confirms(name, &verdicts, guest.path()));
    expect_none(name, &failures);
}

/// Linux hits one of its own bugs when it replays fast commits on a volume without extents.
fn linux_dies_of(case: &CrashCase) -> bool {
    case.fast_commits() && case.mkfs.contains("^extent")
}

/// A copy of the state's external journal, among the files that are `kept`.
fn keep_journal(kept: &Scratch, name: &str, state: &CrashState) -> Result<Option<PathBuf>, String> {
    let Some(journal) = &state.journal else { return Ok(None) };
    let to = kept.file(&format!("{name}.journal"));
    copy_sparse(journal, &to)?;
    Ok(Some(to))
}

/// Reads, recovers and reads again. Returns the tree after the recovery.
fn recover(extant: &Extant, case: &CrashCase, state: &CrashState) -> Result<Manifest, String> {
    let img = state.img.as_path();
    let mut named = img.as_os_str().to_owned();
    if let Some(journal) = &state.journal {
        refused_without_its_journal(extant, state)?;
        named.push("?journal=");
        named.push(journal);
    }
    let named = Path::new(&named);
    let before = digest(img)?;
    let dirty = extant.manifest(named).map_err(|e| format!("before recovery: {e}"))?;
    if digest(img)? != before {
        return Err("reading changed the image".into());
    }
    survived("before recovery", state, &dirty)?;
    extant.run(&["replay".as_ref(), named.as_os_str()])?.success()?;
    if case.journaled() {
        e2fsck(img, state.journal.as_deref()).expect_clean()?;
        extant.expect_clean(named)?;
    }
    let recovered = extant.manifest(named).map_err(|e| format!("after recovery: {e}"))?;
    survived("after recovery", state, &recovered)?;
    dirty.diff(&recovered, Look::all()).expect_same("read-only | recovered")?;
    Ok(recovered)
}

/// Without the journal that is on a device of its own, recovery is refused and changes nothing.
fn refused_without_its_journal(extant: &Extant, state: &CrashState) -> Result<(), String> {
    let before = digest(&state.img)?;
    let done = extant.run(&["replay".as_ref(), state.img.as_os_str()])?;
    if done.ok() {
        return Err("replay without the external journal reports success".into());
    }
    if !done.err().contains("journal") {
        return Err(format!("the refusal does not name the journal: {done}"));
    }
    if digest(&state.img)? != before {
        return Err("a refused replay changed the image".into());
    }
    Ok(())
}

fn survived(when: &str, state: &CrashState, shown: &Manifest) -> Result<(), String> {
    let lost: Vec<String> = state.must.iter().filter_map(|must| must.check(shown).err()).collect();
    match lost.len() {
        0 => Ok(()),
        n => Err(format!(
            "{when}: {n} of {} lost: {}",
            state.must.len(),
            lost[..n.min(3)].join("; ")
        )),
    }
}

fn digest(img: &Path) -> Result<String, String> {
    let file = std::fs::File::open(img).map_err(|e| e.to_string())?;
    let len = file.metadata().map_err(|e| e.to_string())?.len();
    hash_file(&file, len).map_err(|e| e.to_string())
}

#[test]
fn full_commits_are_recovered() {
    require!(Root, Loop, E2fsprogs, Uml);
    group("kernel_dirty/full", |case| case.name.starts_with("full-"));
}

#[test]
fn fast_commits_are_recovered() {
    require!(Root, Loop, E2fsprogs, Uml);
    group("kernel_dirty/fast", CrashCase::fast_commits);
}

#[test]
fn journals_of_every_kind_are_recovered() {
    require!(Root, Loop, E2fsprogs, Uml);
    group("kernel_dirty/kinds", |case| {
        !case.name.starts_with("full-") && !case.fast_commits() && case.journaled()
    });
}

#[test]
fn volumes_without_a_journal_show_what_was_synced() {
    require!(Root, Loop, E2fsprogs);
    group("kernel_dirty/none", |case| !case.journaled());
}
