//! New blocks whose data did not reach the device, in a transaction that has no space to hide them.

use crate::files::file::FallocateMode;
use crate::files::file::pieces::Piece;
use crate::open::OpenOptions;
use extant_base::{ByteOffset, Error};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_journal::Credits;
use extant_testkit::e2fsprogs;
use std::sync::Arc;
use std::sync::mpsc::channel;

const OTHERS: u8 = 0x5A;

#[test]
fn blocks_that_cannot_be_hidden_are_never_shown_by_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    e2fsprogs::mke2fs(&path, 16 << 20, "-b 1024 -J size=1", None).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
    let mut options = OpenOptions::new();
    options.write(true).page_cache_bytes(0);
    let fs = options.open_device(device.clone()).unwrap();
    let (volume, node) = (fs.volume(), fs.create_file("/f", &Default::default()).unwrap());
    let file = node.open().unwrap();
    file.allocate(FallocateMode::Allocate, 0, 4096).unwrap();
    fs.sync().unwrap();
    let extent = file.extents().unwrap()[0];
    // Data of another file, left in these blocks.
    let at = ByteOffset(extent.block.0 * 1024);
    device.write_at(at, &[OTHERS; 4096]).unwrap();

    let mut body = node.inode().write();
    let handle = volume.journal().start(volume.credits_of(&body).convert()).unwrap();
    let ((filled, is_filled), (done, is_done)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let other = volume.journal().start(Credits::blocks(1)).unwrap();
            while other.extend(Credits::blocks(1)).unwrap() {}
            filled.send(()).unwrap();
            let _ = is_done.recv();
            let _ = other.stop();
        });
        is_filled.recv().unwrap();
        let written = extant_ondisk::extent::ExtentState::Written;
        volume.file_mut(&mut body).convert(&handle, 0..4, written).unwrap();
        let piece = Piece { logical: 0, len: 4, block: extent.block, fresh: true, moved: false };
        volume.file_mut(&mut body).hide(&handle, &[piece]);
        let _ = body.store(volume, &handle);
        drop(done);
    });
    let _ = handle.stop();
    drop(body);
    assert!(matches!(fs.sync(), Err(Error::Aborted { .. })));
    drop((file, node));
    drop(fs);
    // The error is recorded; the file reads as before.
    let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
    assert_eq!(fs.read("/f").unwrap(), [0; 4096]);
    fs.close().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
}
