//! What mount, dispatch and transports share: where errors are logged, how processors idle, and
//! how the end of the connection to the kernel is recognised.

use rustix::io::Errno;
use std::sync::Arc;

/// Receives each line about what went wrong in the server.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How deeply processors may sleep while the mount waits for requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// `Poll` on machines of up to four processors, otherwise `Halt`.
    #[default]
    Auto,
    /// While requests come close together (5000 a second or more), processors use only their
    /// lightest sleep state; in a virtual machine they do not sleep at all. Needs permission to
    /// write `/dev/cpu_dma_latency`; without it, the same as `Halt`.
    Poll,
    /// Processors sleep as the system decides.
    Halt,
}

/// Whether `errno` says that the connection is over: unmounted or aborted.
pub(crate) fn is_end(errno: Errno) -> bool {
    matches!(errno, Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN | Errno::BADF)
}
