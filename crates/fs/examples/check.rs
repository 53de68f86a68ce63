//! Checks volumes and prints what is wrong: `cargo run --example check -- disk.img`.

use extant::FileOptions;
use extant::check::{self, Options};
use std::sync::Arc;

fn main() {
    let mut worst = 0;
    for path in std::env::args_os().skip(1) {
        let report = FileOptions::new()
            .open(&path)
            .and_then(|device| check::check_device(Arc::new(device), &Options::default(), &()));
        let exit = match &report {
            Ok(report) => {
                report.findings.iter().for_each(|finding| println!("{finding}"));
                println!("{}: {:?}", path.display(), report.stats);
                report.exit_code()
            }
            Err(error) => {
                println!("{}: {error}", path.display());
                8
            }
        };
        worst = worst.max(exit);
    }
    std::process::exit(worst);
}
