//! Starts transfers of one size and waits for them.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Result, ensure};
use extant::BlockDevice;
use extant::cache::CacheUse;
use extant::direct::{AlignedBuf, DirectOptions, DirectQueue, OwnedMemory};
use extant_base::ByteOffset;
use extant_blockdev::{Access, BufPool, FileDevice, Memory, Queue, QueueWay, Request, transfer};

use super::work::Setting;

/// Transfers of one subject. A call that exceeds the setting's depth waits.
pub(crate) trait Lane {
    fn start(&mut self, at: u64) -> Result<()>;
    /// Waits for one transfer to end.
    fn wait(&mut self) -> Result<()>;
    /// Makes earlier writes durable.
    fn sync(&mut self) -> Result<()>;
}

/// A buffer with non-zero content.
fn filled(len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(0x5A);
    buf
}

/// Changes one byte in each cache line, as a program does that produces the bytes it writes.
fn make(bytes: &mut [u8], setting: Setting) {
    if setting.touched && setting.case.writes() {
        bytes.iter_mut().step_by(LINE).for_each(|byte| *byte = byte.wrapping_add(1));
    }
}

/// Reads one byte in each cache line, as a program does that uses what it read.
fn look(bytes: &[u8], setting: Setting) {
    if setting.touched && !setting.case.writes() {
        black_box(bytes.iter().step_by(LINE).fold(0, |sum: u8, byte| sum ^ byte));
    }
}

/// Size of a line of the processor's caches in bytes.
const LINE: usize = 64;

/// The backing file or device alone.
pub(crate) struct Raw {
    device: Arc<FileDevice>,
    queue: Queue<'static>,
    pool: BufPool,
    setting: Setting,
    /// Transfers that have ended and were not waited for.
    over: usize,
}

impl Raw {
    pub(crate) fn new(device: Arc<FileDevice>, setting: Setting) -> Raw {
        let queue = Queue::new(device.clone(), setting.depth, QueueWay::Auto);
        Raw { device, queue, pool: BufPool::new(128 << 20), setting, over: 0 }
    }
}

impl Raw {
    fn look(&self, request: &Request<'_>) {
        if let Memory::Owned(bytes) = &request.memory {
            look(bytes, self.setting);
        }
    }
}

impl Lane for Raw {
    fn start(&mut self, at: u64) -> Result<()> {
        let access = if self.setting.case.writes() { Access::Read } else { Access::Write };
        let mut buf = self.pool.take(self.setting.call_bytes);
        make(&mut buf, self.setting);
        let mut request =
            Request { tag: at, access, at: ByteOffset(at), memory: Memory::Owned(buf) };
        if self.setting.depth == 1 {
            transfer(&*self.device, &mut request)?;
            self.look(&request);
            return Ok(());
        }
        self.queue.submit(request);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        // Takes all that have ended, so that as many are submitted together.
        if self.over == 0 {
            let mut next = self.queue.wait();
            while let Some(done) = next {
                done.result?;
                self.look(&done.request);
                self.over += 1;
                next = self.queue.poll();
            }
        }
        self.over = self.over.saturating_sub(1);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}

/// extant's direct calls, one after the other.
pub(crate) struct Calls {
    pub file: extant::File,
    pub options: DirectOptions,
    buf: AlignedBuf,
    setting: Setting,
}

impl Calls {
    pub(crate) fn new(file: extant::File, options: DirectOptions, setting: Setting) -> Calls {
        Calls { file, options, buf: filled(setting.call_bytes), setting }
    }
}

impl Lane for Calls {
    fn start(&mut self, at: u64) -> Result<()> {
        make(&mut self.buf, self.setting);
        let done = match self.setting.case.writes() {
            true => self.file.write_direct_at(&self.buf, at, &self.options)?,
            false => self.file.read_direct_at(&mut self.buf, at, &self.options)?,
        };
        ensure!(done == self.buf.len(), "a transfer of {done} bytes");
        look(&self.buf, self.setting);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}

/// extant's queue.
pub(crate) struct Queued {
    file: extant::File,
    options: DirectOptions,
    queue: DirectQueue<OwnedMemory>,
    free: Vec<AlignedBuf>,
    setting: Setting,
}

impl Queued {
    pub(crate) fn new(
        fs: &extant::Filesystem,
        file: extant::File,
        options: DirectOptions,
        setting: Setting,
    ) -> Queued {
        let free = (0..setting.depth).map(|_| filled(setting.call_bytes)).collect();
        Queued { file, options, queue: fs.direct_queue(setting.depth), free, setting }
    }
}

impl Lane for Queued {
    fn start(&mut self, at: u64) -> Result<()> {
        let mut buf = self.free.pop().expect("a buffer for each transfer");
        make(&mut buf, self.setting);
        let memory = OwnedMemory::new(buf);
        match self.setting.case.writes() {
            true => self.queue.write(at, &self.file, memory, at, &self.options),
            false => self.queue.read(at, &self.file, memory, at, &self.options),
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let done = self.queue.wait().expect("a transfer is under way");
        let moved = done.result?;
        ensure!(moved == self.setting.call_bytes, "a transfer of {moved} bytes");
        let buf = done.memory.into_buf().expect("nobody has the memory of one that is over");
        look(&buf, self.setting);
        self.free.push(buf);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}

/// extant's page cache; each write is sent to the device immediately.
pub(crate) struct Buffered {
    file: extant::File,
    buf: AlignedBuf,
    setting: Setting,
}

impl Buffered {
    pub(crate) fn new(file: extant::File, setting: Setting) -> Buffered {
        Buffered { file, buf: filled(setting.call_bytes), setting }
    }
}

impl Lane for Buffered {
    fn start(&mut self, at: u64) -> Result<()> {
        make(&mut self.buf, self.setting);
        if self.setting.case.writes() {
            self.file.write_all_at(&self.buf, at)?;
            self.file.write_back(at, self.buf.len() as u64)?;
        } else {
            let read = self.file.read_at_with(&mut self.buf, at, CacheUse::DropBehind)?;
            ensure!(read == self.buf.len(), "a read of {read} bytes");
            look(&self.buf, self.setting);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}
