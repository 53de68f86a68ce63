//! Runs families of the script in the working directory and prints the answers.
//!
//! ```text
//!   posix-script FAMILY…            answers, a line each
//!   posix-script --hold KIND PATH   locks a file, prints that, and waits for its input to end
//! ```

use extant_mount_tests::cases;
use extant_mount_tests::script::Script;
use std::io::{BufWriter, Write, stdout};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [hold, kind, path] = &arguments[..]
        && hold == "--hold"
    {
        cases::hold_lock(kind, path);
        return;
    }
    let mut script = Script::default();
    for family in &arguments {
        cases::run(family, &mut script);
    }
    let mut out = BufWriter::new(stdout().lock());
    for line in script.into_lines() {
        writeln!(out, "{line}").expect("the test reads it");
    }
    out.flush().expect("the test reads it");
}
