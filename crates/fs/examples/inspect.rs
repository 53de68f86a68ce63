//! Reads an image, or saves its content, read-only and without a mount.
//!
//!   cargo run --example inspect -- IMG [PATH]
//!
//! Walks from PATH and shows each inode; for a file, where its bytes are on the device. A volume
//! after a crash is recovered in memory: the image is not changed.

use extant::Filesystem;
use std::io::Read;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let Some(image) = args.next() else {
        eprintln!("inspect IMG [PATH]");
        std::process::exit(2);
    };
    let start = args.next().unwrap_or_else(|| "/".into());
    let fs = Filesystem::open(image)?;
    let sb = fs.superblock();
    println!("{} blocks of {}, features: {}", sb.blocks_count, sb.block_size.bytes(), sb.features);

    if fs.symlink_metadata(&start)?.is_file() {
        return show_file(&fs, start.as_ref());
    }
    for entry in fs.walk(&start).sorted(true) {
        // A damaged directory gives one error; the walk continues.
        match entry {
            Ok(entry) => {
                let meta = entry.metadata()?;
                println!(
                    "{:>8} {:06o} {:>6}:{:<6} {:>12} {}",
                    meta.ino(),
                    meta.mode(),
                    meta.uid(),
                    meta.gid(),
                    meta.len(),
                    entry.path().display()
                );
            }
            Err(error) => println!("         {error}"),
        }
    }
    Ok(())
}

fn show_file(fs: &Filesystem, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut file = fs.open_file(path)?;
    for name in fs.xattrs(path)? {
        println!("{}: {} bytes", name.display(), fs.xattr(path, &name)?.len());
    }
    for piece in file.extents()? {
        let (start, end) = (piece.offset, piece.offset + piece.len);
        println!("bytes {start}..{end} from block {} (written: {})", piece.block, piece.written);
    }
    // A `File` is `Read + Seek`, and has positional reads for many threads at once.
    let mut head = Vec::new();
    file.by_ref().take(64).read_to_end(&mut head)?;
    println!("{}", head.escape_ascii());
    Ok(())
}
