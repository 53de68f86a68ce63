//! Makes doc tests of the guide's Rust. It adds to each block what a reader need not see: the block
//! runs in a directory of its own and may use `?`, and `fs` is a volume unless the block opens one
//! itself.

use std::path::Path;
use std::{env, fs};

/// The chapters with Rust.
const CHAPTERS: [&str; 2] = ["rust.md", "rust-io.md"];

fn main() {
    let out = env::var("OUT_DIR").expect("cargo says where");
    for chapter in CHAPTERS {
        let path = format!("../../docs/guide/{chapter}");
        println!("cargo:rerun-if-changed={path}");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        fs::write(Path::new(&out).join(chapter), prepared(&text)).expect("there is room");
    }
}

/// The same text; its Rust runs in a directory of its own and may use `?`.
fn prepared(text: &str) -> String {
    let mut prepared = String::new();
    let mut rest = text;
    while let Some((before, block)) = rest.split_once("```rust\n") {
        let (block, after) = block.split_once("```").expect("a block ends");
        prepared.push_str(before);
        prepared.push_str("```rust\n# let _here = extant_guide_tests::scratch_as_home();\n");
        if !block.contains("let fs =") && block.contains("fs.") {
            prepared.push_str("# let fs = extant_guide_tests::scratch_volume();\n");
        }
        prepared.push_str(block);
        prepared.push_str("# Ok::<(), Box<dyn std::error::Error>>(())\n```");
        rest = after;
    }
    prepared.push_str(rest);
    prepared
}
