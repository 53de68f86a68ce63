//! Writes the seeds of every target, or of the named ones, to `CORPUS/target/…`, for libFuzzer, and
//! the volumes that they change to the folder `VOLUMES`. Prints the names of these targets.

use extant_hostile_tests::image::volumes;
use extant_hostile_tests::{Target, target, targets};
use std::path::Path;

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [corpus, kept, names @ ..] = &args[..] else {
        eprintln!("usage: hostile-corpus CORPUS VOLUMES [TARGET]…");
        std::process::exit(2);
    };
    volumes::write_to(Path::new(kept))?;
    let selected: Vec<&Target> = match names {
        [] => targets().collect(),
        names => names.iter().map(|name| target(name)).collect(),
    };
    for target in selected {
        let dir = Path::new(corpus).join(target.name);
        std::fs::create_dir_all(&dir)?;
        let seeds = (target.seeds)();
        for (nr, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{nr:03}")), seed)?;
        }
        println!("{}", target.name);
    }
    Ok(())
}
