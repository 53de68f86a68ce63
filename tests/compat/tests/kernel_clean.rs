//! Volumes filled by Linux and unmounted: extant shows the same tree and finds no error. Then
//! extant changes them in every way that it can: e2fsck finds no error, and Linux shows what extant
//! shows.

use extant_compat_tests::changed::change_and_judge;
use extant_compat_tests::look_of;
use extant_testkit::extant::Extant;
use extant_testkit::kernel_images::{CleanCase, Maker, clean_cases};
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;

fn group(name: &str, takes: impl Fn(&CleanCase) -> bool) {
    let extant = Extant::get().expect("the extant command");
    let cases: Vec<&CleanCase> = clean_cases().iter().filter(|case| takes(case)).collect();
    run_cases(
        name,
        &cases,
        |case| case.name.to_owned(),
        |case| {
            let scratch = Scratch::new();
            let volume = case.make(scratch.path())?;
            let shown = if case.profiles.contains("encrypt") {
                extant.manifest_in_part(&volume.img)?
            } else {
                extant.manifest(&volume.img)?
            };
            let (look, expected) = look_of(case, volume.manifest.clone());
            let shown = look_of(case, shown).1;
            expected.diff(&shown, look).expect_same("Linux | extant")?;
            extant.expect_clean(&volume.img)?;
            change_and_judge(&extant, case, &volume)?;
            Ok(format!("{} entries", expected.entries.len()))
        },
    );
}

fn large(case: &CleanCase) -> bool {
    case.name.contains("100k") || case.name.contains("depth3")
}

#[test]
fn volumes_of_this_kernel_are_read_as_it_shows_them() {
    require!(Root, Loop, E2fsprogs);
    group("kernel_clean/host", |case| case.maker == Maker::Host && !large(case));
}

#[test]
fn directories_of_many_levels_are_read_as_linux_shows_them() {
    require!(Root, Loop, E2fsprogs);
    group("kernel_clean/large", large);
}

#[test]
fn volumes_of_an_older_kernel_and_quotas_are_read_as_it_shows_them() {
    require!(E2fsprogs, Uml);
    group("kernel_clean/uml", |case| case.maker == Maker::Uml);
}

#[test]
fn volumes_that_mke2fs_filled_hold_what_their_source_held() {
    require!(Root, E2fsprogs);
    group("kernel_clean/mke2fs", |case| case.maker == Maker::Mke2fs);
}
