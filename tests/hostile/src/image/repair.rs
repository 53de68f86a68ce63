//! A repair of a changed volume.

use crate::image::bodies::checked;
use crate::image::patch::{EDIT, patched};
use extant::BlockDevice;
use extant_compat_tests::bounded::Bounded;
use extant_repair::{Options, Plan, plan};
use std::sync::Arc;

/// Plans a repair. Nothing may be written meanwhile; the repair of an unchanged volume is empty,
/// and so is a second one of the repaired volume.
pub fn run(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    if patched.volume.members > 1 || patched.volume.journal > 0 {
        return;
    }
    let device = Bounded::over(patched.device.clone());
    let before = device.bytes();
    let planned = planned(Arc::clone(&device) as Arc<dyn BlockDevice>);
    assert!(device.bytes() == before, "the device was written");
    let Some(planned) = planned else { return };
    for _ in planned.report().files() {}
    if data.len() < 2 + EDIT {
        assert!(planned.is_clean(), "{:?}", planned.left());
    }
    if planned.is_clean() {
        let again = self::planned(planned.device()).expect("the repaired volume can be read");
        assert!(again.is_clean() && again.is_empty().unwrap_or(false), "{:?}", again.places());
    }
}

fn planned(device: Arc<dyn BlockDevice>) -> Option<Plan> {
    checked(plan(device, &Options { now: 1_700_000_000, threads: 2, ..Options::default() }, &()))
}
