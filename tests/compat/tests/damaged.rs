//! Volumes with one kind of damage each: extant answers every request within limits, and its
//! checker finds an error wherever e2fsck does.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use extant_testkit::damaged::{DamagedImage, images};
use extant_testkit::extant::Extant;
use extant_testkit::report::run_cases;
use extant_testkit::scratch::{Scratch, copy_sparse};

/// The time limit of one call.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn damaged_volumes_do_no_harm_and_their_damage_is_found() {
    let Some(images) = images() else { return };
    let extant = Extant::get().expect("the extant command").within(LIMIT);
    run_cases("damaged", &images, |image| image.name.clone(), |image| judge(&extant, image));
}

fn judge(extant: &Extant, image: &DamagedImage) -> Result<String, String> {
    let scratch = Scratch::new();
    let img = scratch.file("image.img");
    image.unpack(&img)?;
    let mut failures = Vec::new();
    let check = extant.run(&with("check", &img, &["--json".as_ref()]));
    let exit = match &check {
        Ok(done) => done.code(),
        Err(error) => {
            failures.push(error.clone());
            None
        }
    };
    if image.has_errors() && !matches!(exit, Some(4 | 8)) {
        let (theirs, finding) = (image.e2fsck_exit.unwrap_or(-1), &image.first_finding);
        failures.push(format!("check: exit {exit:?}; e2fsck exits {theirs}: {finding}"));
    } else if image.e2fsck_exit == Some(0) && exit != Some(0) {
        // Printed, but no failure: e2fsck accepts some things, and extant checks all checksums.
        println!("damaged: {}: e2fsck finds nothing, check exits {exit:?}", image.name);
    }
    let out = scratch.file("out");
    for (verb, rest) in [
        ("tree", vec!["--json".as_ref(), "--hash".as_ref()]),
        ("info", vec!["--json".as_ref()]),
        ("get", vec!["/".as_ref(), out.as_os_str()]),
    ] {
        if let Err(error) = extant.run(&with(verb, &img, &rest)) {
            failures.push(error);
        }
    }
    let copy = scratch.file("copy.img");
    copy_sparse(&img, &copy)?;
    if let Err(error) = extant.run(&with("replay", &copy, &[])) {
        failures.push(error);
    }
    if failures.is_empty() {
        Ok(format!("check exits {}", exit.unwrap_or(-1)))
    } else {
        Err(failures.join("; "))
    }
}

fn with<'a>(verb: &'a str, img: &'a Path, rest: &[&'a OsStr]) -> Vec<&'a OsStr> {
    [verb.as_ref(), img.as_os_str()].into_iter().chain(rest.iter().copied()).collect()
}
