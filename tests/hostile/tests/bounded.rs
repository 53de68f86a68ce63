//! Every target of hostile bytes for several seconds.
//!
//! `EXTANT_CASE=image` runs those with `image` in their name, `EXTANT_SECONDS` sets the time for
//! all of them together (60), `EXTANT_SOAK` multiplies it, `EXTANT_SEED` selects other inputs. A
//! failure names the input: `EXTANT_HOSTILE=tar:0:153 cargo test -p extant-hostile-tests --test
//! bounded one -- --exact --ignored --nocapture` runs it again, and `EXTANT_KEEP=FILE` keeps its
//! bytes, for `EXTANT_TARGET=tar cargo fuzz run hostile FILE`.

use extant_hostile_tests::bounded;

#[test]
fn no_bytes_do_harm() {
    extant_testkit::require!(E2fsprogs);
    bounded::run_all("one");
}

#[test]
#[ignore = "a child of no_bytes_do_harm"]
fn one() {
    bounded::child();
}
