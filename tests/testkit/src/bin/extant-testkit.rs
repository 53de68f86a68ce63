//! The testkit as a command, for guests of user-mode Linux and for looking by hand.
//!
//! ```text
//! extant-testkit manifest DIR     one JSON line an entry (docs/JSON.md)
//! ```

use std::path::Path;
use std::process::ExitCode;

use extant_testkit::manifest::Manifest;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["manifest", dir] => {
            Manifest::walk(Path::new(dir)).map(|m| print!("{}", m.to_json_lines()))
        }
        _ => {
            eprintln!("usage: extant-testkit manifest DIR");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}
