//! Writing cache lines back, by the best instruction that the CPU has.
//!
//! ```text
//!   CPUID 7.0 EBX bit 24 ─► CLWB        bit 23 ─► CLFLUSHOPT        1 EDX bit 19 ─► CLFLUSH
//!                           any order, so a fence behind them       one after the other
//! ```
//!
//! Other architectures have no way here, so no window is offered there.
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
    /// What the CPU has, or `None`.
    pub(super) fn detect() -> Option<Lines> {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        // SAFETY: every x86-64 CPU has CPUID, and nobody asks it for a leaf above the largest.
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

    /// The ways that this CPU has, for tests.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Lines> {
        let Some(best) = Lines::detect() else { return Vec::new() };
        let known = [Way::Clwb, Way::ClflushOpt, Way::Clflush];
        // Each of them implies those behind it.
        let first = known.iter().position(|way| *way == best.way).unwrap_or(known.len());
        known[first..].iter().map(|way| Lines { way: *way, ..best }).collect()
    }

    /// Sends the lines of `len` bytes from `start` on their way.
    ///
    /// # Safety
    /// The bytes are mapped.
    pub(super) unsafe fn write_back(self, start: *const u8, len: usize) {
        let end = start as usize + len;
        let mut line = start as usize & !(self.line - 1);
        while line < end {
            // SAFETY: `detect` has seen the instruction. It changes no memory, only where its
            // newest bytes are kept; the line holds a byte that the caller keeps mapped, and pages
            // are whole lines, so it is mapped as a whole.
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

    /// Waits for the lines sent before.
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
    /// None is needed: there is no value to call this on.
    pub(super) unsafe fn write_back(self, _: *const u8, _: usize) {
        unreachable!("there is no way on this architecture");
    }

    pub(super) fn fence(self) {
        unreachable!("there is no way on this architecture");
    }
}
