//! What every subject does: calls of one size at places in one order, so many at a time.

use std::time::Instant;

use anyhow::Result;
use extant::{AlignedBuf, DirectOptions, DirectQueue, File, OwnedMemory};
use extant_base::ByteOffset;
use extant_blockdev::{Access, CallerMemory, Memory, Queue, Request};

use crate::rig::scatter;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Case {
    RandWrite,
    SeqWrite,
    RandRead,
    SeqRead,
}

pub(super) const CASES: [Case; 4] =
    [Case::RandWrite, Case::SeqWrite, Case::RandRead, Case::SeqRead];

impl Case {
    pub(super) fn name(self) -> &'static str {
        match self {
            Case::RandWrite => "randwrite",
            Case::SeqWrite => "seqwrite",
            Case::RandRead => "randread",
            Case::SeqRead => "seqread",
        }
    }

    fn access(self) -> Access {
        match self {
            Case::RandWrite | Case::SeqWrite => Access::Read,
            Case::RandRead | Case::SeqRead => Access::Write,
        }
    }
}

/// One sample's work.
pub(super) struct Work {
    pub case: Case,
    pub call_bytes: usize,
    pub depth: usize,
    pub calls: usize,
    pub file_bytes: u64,
    pub seed: u64,
}

impl Work {
    /// Where the `n`-th call goes.
    fn place(&self, n: usize) -> u64 {
        let slots = (self.file_bytes / self.call_bytes as u64) as usize;
        let slot = match self.case {
            Case::RandWrite | Case::RandRead => scatter(n + self.seed as usize * self.calls, slots),
            Case::SeqWrite | Case::SeqRead => n % slots,
        };
        slot as u64 * self.call_bytes as u64
    }

    fn memory(&self) -> OwnedMemory {
        let mut buf = AlignedBuf::zeroed(self.call_bytes);
        buf.fill(self.seed as u8 | 1);
        OwnedMemory::new(buf)
    }

    /// The seconds that the calls take at a device.
    pub(super) fn at_device(&self, queue: &mut Queue<'static>) -> Result<f64> {
        let mut idle: Vec<OwnedMemory> = (0..self.depth).map(|_| self.memory()).collect();
        let mut lent: Vec<Option<OwnedMemory>> = (0..self.calls).map(|_| None).collect();
        let access = self.case.access();
        let start = Instant::now();
        let mut next = 0;
        loop {
            while next < self.calls
                && let Some(mut memory) = idle.pop()
            {
                let span = memory.lend(self.call_bytes, access).expect("a whole buffer");
                let (at, tag) = (ByteOffset(self.place(next)), next as u64);
                queue.submit(Request { tag, access, at, memory: Memory::Lent(vec![span]) });
                lent[next] = Some(memory);
                next += 1;
            }
            let Some(done) = queue.wait() else { break };
            done.result?;
            let tag = done.request.tag as usize;
            drop(done.request);
            if let Some(mut memory) = lent[tag].take() {
                memory.revert(self.call_bytes);
                idle.push(memory);
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Those that they take in a file of a volume.
    pub(super) fn at_file(
        &self,
        queue: &mut DirectQueue<OwnedMemory>,
        file: &File,
        options: &DirectOptions,
    ) -> Result<f64> {
        let mut idle: Vec<OwnedMemory> = (0..self.depth).map(|_| self.memory()).collect();
        let start = Instant::now();
        let mut next = 0;
        loop {
            while next < self.calls
                && let Some(memory) = idle.pop()
            {
                let (at, tag) = (self.place(next), next as u64);
                match self.case.access() {
                    Access::Read => queue.write(tag, file, at, memory, options),
                    Access::Write => queue.read(tag, file, at, memory, options),
                }
                next += 1;
            }
            let Some(done) = queue.wait() else { break };
            done.result?;
            let mut memory = done.memory;
            memory.revert(self.call_bytes);
            idle.push(memory);
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Those that they take through the cache, each on the device when its call returns. Nothing is under way beside
    /// it, whatever the depth: as in a fallback.
    pub(super) fn buffered(&self, file: &File) -> Result<f64> {
        let mut buf = AlignedBuf::zeroed(self.call_bytes);
        let start = Instant::now();
        for n in 0..self.calls {
            let at = self.place(n);
            match self.case.access() {
                Access::Read => {
                    file.write_all_at(at, &buf)?;
                    file.write_back(at, self.call_bytes as u64)?;
                }
                Access::Write => {
                    file.read_at(at, &mut buf)?;
                }
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}
