//! The differences that stay, each with its reason.

/// A difference that is known.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How the label begins.
    pub label: &'static str,
    /// The kernel's answer, or how it begins.
    pub kernel: &'static str,
    /// The mount's answer, or how it begins.
    pub mount: &'static str,
    /// Why it is so, and stays so.
    pub reason: &'static str,
}

/// All of them.
pub const KNOWN: &[Known] = &[];

/// Whether this difference is known.
pub fn is_known(label: &str, kernel: &str, mount: &str) -> bool {
    KNOWN.iter().any(|known| {
        label.starts_with(known.label)
            && kernel.starts_with(known.kernel)
            && mount.starts_with(known.mount)
    })
}
