//! Lists a source, prints what it contains, and reads all of it if requested:
//! `walk SOURCE [THREADS [read]]`.

use extant_image::{SourceOptions, SourceSpec, Tree};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let threads = args.get(2).map_or(0, |n| n.parse().unwrap());
    let options = SourceOptions::new().threads(threads);
    let start = Instant::now();
    let tree = Tree::read(&[SourceSpec::new(&args[1])], &options, &()).unwrap();
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
    if args.len() > 3 {
        let start = Instant::now();
        let next = std::sync::atomic::AtomicUsize::new(0);
        let workers = threads.max(1);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| read_all(&tree, &next));
            }
        });
        println!("contents read in {:?} by {workers} threads", start.elapsed());
    }
}

/// Reads the files of the tree, 64 nodes at a time.
fn read_all(tree: &Tree, next: &std::sync::atomic::AtomicUsize) {
    let mut reader = tree.reader();
    let mut buf = vec![0; 256 << 10];
    let mut ids = tree.iter().map(|(id, _)| id);
    let mut passed = 0;
    loop {
        let first = next.fetch_add(64, std::sync::atomic::Ordering::Relaxed);
        if first >= tree.node_count() {
            return;
        }
        let skip = first - passed;
        for id in ids.by_ref().skip(skip).take(64) {
            let size = tree.node(id).kind.size();
            let mut at = 0;
            while at < size {
                at += reader.read_at(id, at, &mut buf).unwrap() as u64;
            }
        }
        passed = first + 64;
    }
}
