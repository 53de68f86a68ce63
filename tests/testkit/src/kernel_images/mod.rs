//! Volumes made by mke2fs and filled by Linux: clean ones with a manifest, and crash states with
//! the list of what must survive.
//!
//! ```text
//!   clean:  mke2fs ──► mount, populate, unmount ──► mount ro, walk ──► image + manifest
//!   crash:  mke2fs ──► mount, scenario, fsync ──► shutdown (no log flush) ──► image + must survive
//! ```

mod clean;
mod crash;
mod scenario;

pub use clean::{CleanCase, CleanVolume, Maker, clean_cases};
pub use crash::{CrashCase, CrashState, crash_cases};
pub use scenario::{Must, run_scenario};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let clean = clean_cases().iter().map(|case| case.name.to_owned());
        let crash = crash_cases().into_iter().map(|case| case.name);
        let all: Vec<String> = clean.chain(crash).collect();
        let unique: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
        assert!(clean_cases().len() >= 60 && crash_cases().len() >= 150);
    }

    #[test]
    fn a_crash_state_needs_recovery_and_what_it_lost_is_noticed() {
        crate::require!(Root, Loop, E2fsprogs);
        let scratch = Scratch::new();
        let cases = crash_cases();
        let case = cases.iter().find(|case| case.name == "full-create").expect("a row");
        let state = case.make(scratch.path()).unwrap();
        let header = crate::e2fsprogs::dumpe2fs(&state.img).unwrap();
        assert!(header.contains("needs_recovery"));
        assert_eq!(state.must.len(), 6);
        let nothing = crate::manifest::Manifest::default();
        assert!(state.must.iter().all(|must| must.check(&nothing).is_err()));
    }
}
