//! Lists a source and prints what it holds: `walk SOURCE [THREADS]`.
use extant_image::{Quiet, SourceOptions, SourceSpec, Tree};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let threads = args.get(2).map_or(0, |n| n.parse().unwrap());
    let options = SourceOptions::new().threads(threads);
    let start = Instant::now();
    let tree = Tree::read(&[SourceSpec::new(&args[1])], &options, &Quiet).unwrap();
    let read = start.elapsed();
    let digest = tree.digest();
    let hashed = start.elapsed() - read;
    println!(
        "{} nodes, {} names, {} bytes of data: read {read:?}, digest {hashed:?}, {:02x?}",
        tree.node_count(),
        tree.name_count(),
        tree.data_bytes(),
        &digest[..4]
    );
}
