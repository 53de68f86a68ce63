//! Damage that is found is recorded in the superblock, where other tools read it.

use super::Bench;
use extant_base::{BlockNr, Error, Ino, Site, What};
use extant_testkit::e2fsprogs;

fn report(bench: &Bench, what: What, at: Site) {
    let error =
        bench.volume.context().recording_errors(|| Err::<(), Error>(at.corrupt(what))).unwrap_err();
    assert_eq!(error.errno(), 117);
}

#[test]
fn the_first_and_the_last_error_are_recorded() {
    let bench = Bench::mke2fs(8, "-b 1024");
    report(&bench, What::InodeChecksum, Site::of_ino(Ino::new(12).unwrap()));
    report(&bench, What::ExtentEmpty, Site::of_ino(Ino::ROOT).block(BlockNr(99)));
    let other: Result<(), Error> = bench.volume.context().recording_errors(|| Err(Error::NotFound));
    assert!(other.is_err());
    bench.volume.mount_state().sync().unwrap();
    let says = e2fsprogs::dumpe2fs(&bench.path).unwrap();
    for part in [
        "clean with errors",
        "FS Error count:           2",
        "First error function:     InodeChecksum",
        "First error inode #:      12",
        "First error err:          EFSBADCRC",
        "Last error function:      ExtentEmpty",
        "Last error block #:       99",
        "Last error err:           EFSCORRUPTED",
    ] {
        assert!(says.contains(part), "{part}: {says}");
    }
    bench.volume.context().check_writable().unwrap();
}

#[test]
fn a_volume_with_errors_remount_ro_takes_no_changes_after_an_error() {
    for policy in ["remount-ro", "panic"] {
        let bench = Bench::mke2fs(8, &format!("-b 1024 -e {policy}"));
        bench.volume.context().check_writable().unwrap();
        report(&bench, What::DirentLength, Site::of_ino(Ino::ROOT));
        assert!(matches!(bench.volume.context().check_writable(), Err(Error::ReadOnly)));
        bench.volume.mount_state().sync().unwrap();
        let says = e2fsprogs::dumpe2fs(&bench.path).unwrap();
        assert!(says.contains("with errors"), "{says}");
    }
}
