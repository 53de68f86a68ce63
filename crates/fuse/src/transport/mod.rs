//! How requests arrive and replies leave.
//!
//! ```text
//!   dev    threads read requests from /dev/fuse and write replies: two system calls a request
//!   uring  threads with a ring each commit a reply and fetch the next request: one system call;
//!          requests that the kernel does not send there still arrive through dev
//! ```

pub(crate) mod buffer;
pub(crate) mod cpu_latency;
pub(crate) mod dev;
pub(crate) mod uring;
pub(crate) mod worker_pool;

pub(crate) use cpu_latency::CpuLatencyHold;
pub(crate) use worker_pool::WorkerPool;
