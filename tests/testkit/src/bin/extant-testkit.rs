//! The testkit as a command, for guests of user-mode Linux and for use by hand.
//!
//! ```text
//! extant-testkit manifest DIR           one JSON line an entry (docs/JSON.md)
//! extant-testkit populate DIR PROFILE…   fills DIR; prints what was skipped
//! extant-testkit clean NAME DIR         makes a volume of the matrix in DIR
//! extant-testkit crash NAME DIR         makes a crash state in DIR, prints what must survive
//! extant-testkit guest SCRIPT DIR IMG…   runs SCRIPT in user-mode Linux: /mnt/work is DIR
//! extant-testkit cases                  names all volumes and crash states
//! ```

use std::path::Path;
use std::process::ExitCode;

use extant_testkit::kernel_images::{clean_cases, crash_cases};
use extant_testkit::manifest::Manifest;
use extant_testkit::populate::populate;
use extant_testkit::uml::Uml;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["manifest", dir] => {
            Manifest::walk(Path::new(dir)).map(|m| print!("{}", m.to_json_lines()))
        }
        ["populate", dir, ref profiles @ ..] => {
            populate(Path::new(dir), &profiles.join(" ")).map(|skipped| print_lines(&skipped))
        }
        ["clean", name, dir] => clean(name, Path::new(dir)),
        ["crash", name, dir] => crash(name, Path::new(dir)),
        ["guest", script, dir, ref images @ ..] => guest(script, dir, images),
        ["cases"] => {
            clean_cases().iter().for_each(|case| println!("clean {} {}", case.name, case.mkfs));
            crash_cases().iter().for_each(|case| println!("crash {} {}", case.name, case.mkfs));
            Ok(())
        }
        _ => {
            eprintln!(
                "usage: extant-testkit manifest DIR | populate DIR PROFILE… | clean NAME DIR | \
                 crash NAME DIR | \
                 guest SCRIPT DIR IMG… | cases"
            );
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

fn print_lines(lines: &[String]) {
    lines.iter().for_each(|line| println!("{line}"));
}

fn clean(name: &str, dir: &Path) -> Result<(), String> {
    let case = clean_cases().iter().find(|case| case.name == name).ok_or("no such case")?;
    let volume = case.make(dir)?;
    println!("{}: {} entries", volume.img.display(), volume.manifest.entries.len());
    print_lines(&volume.skipped);
    let lines = volume.manifest.to_json_lines();
    std::fs::write(dir.join("manifest.jsonl"), lines).map_err(|e| e.to_string())
}

fn crash(name: &str, dir: &Path) -> Result<(), String> {
    let cases = crash_cases();
    let case = cases.iter().find(|case| case.name == name).ok_or("no such case")?;
    let state = case.make(dir)?;
    println!("{}", state.img.display());
    state.must.iter().for_each(|must| println!("{must:?}"));
    Ok(())
}

fn guest(script: &str, dir: &str, images: &[&str]) -> Result<(), String> {
    let images: Vec<&Path> = images.iter().map(Path::new).collect();
    let limit = std::time::Duration::from_secs(600);
    let script = std::fs::read_to_string(script).map_err(|e| format!("{script}: {e}"))?;
    let end = Uml::get()?.run(&script, &images, Path::new(dir), limit)?;
    print!("{}", end.text);
    end.success().map(drop)
}
