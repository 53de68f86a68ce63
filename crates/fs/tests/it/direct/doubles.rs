//! Callers' memory in its worst forms.

use extant::File;
use extant::direct::{Access, CallerMemory, Faults, Source, Span, Target};

/// Memory whose bytes from `at` on are absent: until they are faulted in, or always.
pub struct FaultsAt<'m> {
    pub inner: Source<'m>,
    pub len: usize,
    pub at: usize,
    /// Whether faulting in makes the bytes present.
    pub can_appear: bool,
    /// How often a copy stops again even then.
    pub stays_absent: u32,
    pub faulted_in: u32,
}

impl<'m> FaultsAt<'m> {
    pub fn new(bytes: &'m [u8], at: usize, can_appear: bool) -> FaultsAt<'m> {
        let inner = Source::new(bytes);
        FaultsAt { inner, len: bytes.len(), at, can_appear, stays_absent: 0, faulted_in: 0 }
    }

    fn pos(&self) -> usize {
        self.len - self.inner.left()
    }
}

impl<'m> CallerMemory<'m> for FaultsAt<'m> {
    fn left(&self) -> usize {
        self.inner.left()
    }

    fn copy_out(&mut self, to: &mut [u8], faults: Faults) -> usize {
        if faults == Faults::Allowed && self.can_appear {
            self.at = self.len;
        }
        let n = to.len().min(self.at.saturating_sub(self.pos()));
        self.inner.copy_out(&mut to[..n], faults)
    }

    fn copy_in(&mut self, _: &[u8], _: Faults) -> usize {
        0
    }

    fn fault_in(&mut self, len: usize, _: Access) -> usize {
        self.faulted_in += 1;
        if self.stays_absent > 0 {
            self.stays_absent -= 1;
            return len;
        }
        if self.can_appear {
            self.at = self.len;
        }
        len.min(self.at.saturating_sub(self.pos()))
    }

    fn revert(&mut self, len: usize) {
        self.inner.revert(len);
    }

    fn lend(&mut self, _: usize, _: Access) -> Option<Span<'m>> {
        None
    }
}

/// Memory for reads that is absent until it is faulted in, and is never lent.
pub struct Absent<'m> {
    pub inner: Target<'m>,
    pub present: bool,
}

impl<'m> CallerMemory<'m> for Absent<'m> {
    fn left(&self) -> usize {
        self.inner.left()
    }

    fn copy_out(&mut self, _: &mut [u8], _: Faults) -> usize {
        0
    }

    fn copy_in(&mut self, from: &[u8], faults: Faults) -> usize {
        self.present |= faults == Faults::Allowed;
        if self.present { self.inner.copy_in(from, faults) } else { 0 }
    }

    fn fault_in(&mut self, len: usize, access: Access) -> usize {
        self.present = true;
        self.inner.fault_in(len, access)
    }

    fn revert(&mut self, len: usize) {
        self.inner.revert(len);
    }

    fn lend(&mut self, _: usize, _: Access) -> Option<Span<'m>> {
        None
    }
}

/// A mapping of a file: absent bytes are read from the file when a page fault is allowed.
pub struct Mapping<'f> {
    pub file: &'f File,
    pub start: u64,
    pub len: usize,
    pub at: usize,
    /// How many bytes from the start are present.
    pub present: usize,
}

impl Mapping<'_> {
    fn load(&self, to: &mut [u8]) -> usize {
        self.file.read_at(to, self.start + self.at as u64).unwrap()
    }
}

impl<'m> CallerMemory<'m> for Mapping<'_> {
    fn left(&self) -> usize {
        self.len - self.at
    }

    fn copy_out(&mut self, to: &mut [u8], faults: Faults) -> usize {
        let n = match faults {
            Faults::Allowed => to.len().min(self.left()),
            Faults::Off => to.len().min(self.present.saturating_sub(self.at)),
        };
        let n = self.load(&mut to[..n]);
        self.at += n;
        n
    }

    fn copy_in(&mut self, _: &[u8], _: Faults) -> usize {
        0
    }

    /// Takes the file's locks, as a page fault does for a page that the program is about to write.
    fn fault_in(&mut self, len: usize, _: Access) -> usize {
        let mut page = vec![0; len.min(self.left())];
        let n = self.load(&mut page);
        self.file.write_at(&page[..n], self.start + self.at as u64).unwrap();
        self.present = self.present.max(self.at + n);
        n
    }

    fn revert(&mut self, len: usize) {
        self.at -= len;
    }

    fn lend(&mut self, _: usize, _: Access) -> Option<Span<'m>> {
        None
    }
}
