//! Writing cache lines back with the best instruction that the CPU has.
//!
//! ```text
//!   CPUID 7.0 EBX bit 24 ─► CLWB        bit 23 ─► CLFLUSHOPT        1 EDX bit 19 ─► CLFLUSH
//!                           in any order: a fence must follow       one after the other
//! ```
//!
//! Other architectures have no implementation here, so they offer no window.
//! Source: Intel SDM volume 2, CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, CPUID.

use super::Way;

/// How this CPU writes lines back. Made by [`Lines::detect`] alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    way: Way,
    /// Bytes in a line, a power of two.
    line: usize,
}

impl Lines {
    pub(super) fn way(self) -> Way {
        self.way
    }
}

#[cfg(target_arch = "x86_64")]
impl Lines {
    /// The best instruction that the CPU has, or `None`.
    pub(super) fn detect() -> Option<Lines> {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        // SAFETY: every x86-64 CPU has CPUID, and no leaf above the largest one is requested.
        #[allow(unused_unsafe)]
        let (one, seven) = unsafe {
            let largest = __cpuid(0).eax;
            (__cpuid(1), if largest >= 7 { __cpuid_count(7, 0).ebx } else { 0 })
        };
        let line = ((one.ebx >> 8 & 0xFF) * 8) as usize;
        let way = match (seven >> 24 & 1, seven >> 23 & 1, one.edx >> 19 & 1) {
            (1, _, _) => Way::Clwb,
            (_, 1, _) => Way::ClflushOpt,
            (_, _, 1) => Way::Clflush,
            _ => return None,
        };
        line.is_power_of_two().then_some(Lines { way, line })
    }

    /// All instructions that this CPU has, for tests.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Lines> {
        let Some(best) = Lines::detect() else { return Vec::new() };
        let known = [Way::Clwb, Way::ClflushOpt, Way::Clflush];
        // Each of them implies those after it.
        let first = known.iter().position(|way| *way == best.way).unwrap_or(known.len());
        known[first..].iter().map(|way| Lines { way: *way, ..best }).collect()
    }

    /// Starts the write-back of the cache lines that contain `len` bytes from `start` on.
    ///
    /// # Safety
    /// The bytes are mapped.
    pub(super) unsafe fn write_back(self, start: *const u8, len: usize) {
        let end = start as usize + len;
        let mut line = start as usize & !(self.line - 1);
        while line < end {
            // SAFETY: `detect` has found the instruction. It changes no memory, only where the
            // newest bytes are kept. The line holds a byte that the caller keeps mapped, and a page
            // consists of whole lines, so all of the line is mapped.
            unsafe {
                match self.way {
                    Way::Clwb => {
                        core::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Way::ClflushOpt => {
                        core::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Way::Clflush | Way::Memory => {
                        core::arch::x86_64::_mm_clflush(line as *const u8);
                    }
                }
            }
            line += self.line;
        }
    }

    /// Waits for the write-backs started before.
    pub(super) fn fence(self) {
        // SAFETY: every x86-64 CPU has SFENCE.
        #[allow(unused_unsafe)]
        unsafe {
            core::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Lines {
    pub(super) fn detect() -> Option<Lines> {
        None
    }

    #[cfg(test)]
    pub(super) fn all() -> Vec<Lines> {
        Vec::new()
    }

    /// # Safety
    /// No condition: no value exists on which this could be called.
    pub(super) unsafe fn write_back(self, _: *const u8, _: usize) {
        unreachable!("there is no way on this architecture");
    }

    pub(super) fn fence(self) {
        unreachable!("there is no way on this architecture");
    }
}
