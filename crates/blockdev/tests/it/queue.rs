//! A queue over a device that fails.

use extant_base::{ByteOffset, IoOp};
use extant_blockdev::{Access, BufPool, Memory, MemoryDevice, Queue, QueueWay, Request};
use extant_testdev::Faulty;
use std::sync::Arc;

#[test]
fn each_request_has_its_own_error() {
    for way in [QueueWay::Auto, QueueWay::Ring, QueueWay::Threads, QueueWay::Inline] {
        let faulty = Faulty::new(MemoryDevice::new(1 << 20));
        faulty.fail_range(IoOp::Write, 8192..8193);
        let mut queue = Queue::new(Arc::new(faulty), 8, way);
        let pool = BufPool::default();
        for n in 0..4 {
            let memory = Memory::Owned(pool.take(4096));
            queue.submit(Request {
                tag: n,
                access: Access::Read,
                at: ByteOffset(n * 4096),
                memory,
            });
        }
        let memory = Memory::Owned(pool.take(4096));
        queue.submit(Request { tag: 9, access: Access::Write, at: ByteOffset(1 << 20), memory });
        let mut failed = Vec::new();
        while let Some(done) = queue.wait() {
            failed.extend(done.result.is_err().then_some(done.request.tag));
        }
        failed.sort_unstable();
        assert_eq!(failed, [2, 9]);
    }
}
