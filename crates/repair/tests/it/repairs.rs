//! A repair of an image, as the command does it.

use extant::FileDevice;
use extant_blockdev::BlockDevice;
use extant_repair::{Options, Plan, Report, SideFile, plan};
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;

/// The time of all repairs.
const NOW: u32 = 1_700_000_000;

/// Plans the repair of an image.
pub fn plan_of(device: Arc<dyn BlockDevice>) -> extant::Result<Plan> {
    plan(device, &Options { now: NOW, threads: 2, ..Options::default() }, &())
}

/// Repairs an image. Then e2fsck finds nothing, and a second repair has nothing to do.
pub fn repair(img: &Path) -> Result<Report, String> {
    let scratch = Scratch::new();
    let home = extant::FileOptions::new().write(true).open(img).map_err(|e| e.to_string())?;
    let home: Arc<dyn BlockDevice> = Arc::new(home);
    let plan = plan_of(Arc::clone(&home)).map_err(|e| format!("plan: {e}"))?;
    if !plan.is_clean() {
        let left: Vec<String> = plan.left().iter().take(4).map(|one| one.to_string()).collect();
        return Err(format!("not clean after all rounds: {}", left.join(" | ")));
    }
    if !plan.is_empty().map_err(|e| e.to_string())? {
        let side = SideFile::create(&scratch.file("side"), &plan).map_err(|e| e.to_string())?;
        side.apply(&home).map_err(|e| format!("apply: {e}"))?;
    }
    let report = plan.report().clone();
    drop((home, plan));
    e2fsck(img, None).expect_clean()?;
    let device = FileDevice::open(img).map_err(|e| e.to_string())?;
    let again = plan_of(Arc::new(device)).map_err(|e| format!("second plan: {e}"))?;
    match again.is_empty().map_err(|e| e.to_string())? && again.is_clean() {
        true => Ok(report),
        false => Err(format!("a second repair changes {:?}", again.places())),
    }
}
