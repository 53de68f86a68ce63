//! What mount, dispatch and transports share: where errors are logged, how processors idle, and how the
//! end of the connection to the kernel is recognised.

use rustix::io::Errno;
use std::sync::Arc;

/// Receives each line about what went wrong in the server.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What processors do while the mount waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// As `Poll` on machines of up to four processors, else as `Halt`.
    #[default]
    Auto,
    /// While requests come close together (5000 a second and more), no processor sleeps deeply; in a virtual machine, not at
    /// all. Takes the right to write `/dev/cpu_dma_latency`; without it, as `Halt`.
    Poll,
    /// They sleep as the system has them sleep.
    Halt,
}

/// Whether `errno` says that the connection is over: unmounted or aborted.
pub(crate) fn is_end(errno: Errno) -> bool {
    matches!(errno, Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN | Errno::BADF)
}
