//! Requests through `/dev/fuse`: a read receives a request, a write answers it.
//!
//! Each thread has its own file on the connection, so that the kernel keeps the requests of
//! different threads apart. Each thread also has two buffers: a request is read into one, so that
//! the data to write starts on a page boundary; the reply and its header go out from the other in
//! one write.

use crate::abi::{self, DEV_IOC_CLONE};
use crate::connection::{Log, is_end};
use crate::dispatch::{Dispatch, Outcome};
use crate::request::Message;
use crate::transport::buffer::Buffer;
use crate::transport::worker_pool::Place;
use crate::transport::{CpuLatencyHold, WorkerPool};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl};
use std::io;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

const OUT_HEADER: usize = size_of::<abi::OutHeader>();
const IN_FRONT: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// State that the threads share.
pub(crate) struct Dev {
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) connection: Arc<OwnedFd>,
    pub(crate) cpu_latency: Option<Arc<CpuLatencyHold>>,
    pub(crate) log: Log,
}

/// Opens `/dev/fuse`.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Another file on the connection of `fd`; `fd` itself if `/dev/fuse` cannot be opened.
pub(crate) fn clone_of(fd: &Arc<OwnedFd>) -> Arc<OwnedFd> {
    let clone = || -> Result<OwnedFd, Errno> {
        let new = open()?;
        let old = fd.as_raw_fd() as u32;
        // SAFETY: the request takes a pointer to a u32 that holds an open fd of the process. `fd`
        // keeps that fd open during the call, and the kernel writes nothing through the pointer.
        unsafe { ioctl(&new, Setter::<DEV_IOC_CLONE, u32>::new(old)) }?;
        Ok(new)
    };
    clone().map_or_else(|_| Arc::clone(fd), Arc::new)
}

/// Starts a thread that serves until the connection ends.
pub(crate) fn start(dev: &Arc<Dev>, pool: &Arc<WorkerPool>) -> io::Result<()> {
    let ours = Arc::clone(dev);
    pool.start(move |place| serve(&ours, &place))
}

fn serve(dev: &Arc<Dev>, place: &Place) {
    let fd = clone_of(&dev.connection);
    let agreed = dev.dispatch.agreed();
    let mut request = Buffer::new(IN_FRONT, agreed.request_bytes() - IN_FRONT);
    let mut reply = Buffer::new(OUT_HEADER, agreed.reply_bytes());
    loop {
        let read = match rustix::io::read(&*fd, request.bytes()) {
            Ok(read) => read,
            // Interrupted, or the kernel withdrew the request before it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(errno) if is_end(errno) => return,
            Err(errno) => {
                (dev.log)(&format!("/dev/fuse cannot be read: {errno}"));
                return;
            }
        };
        if let Some(cpu_latency) = &dev.cpu_latency {
            cpu_latency.request();
        }
        if place.busy()
            && let Err(error) = start(dev, place.pool())
        {
            (dev.log)(&format!("no further thread serves the mount: {error}"));
        }
        answer(&dev.dispatch, fd.as_fd(), &request.bytes()[..read], reply.bytes());
        if !place.idle() {
            return;
        }
    }
}

/// Answers one request. If no process waits for the reply any more, it is dropped.
fn answer(dispatch: &Dispatch, fd: BorrowedFd<'_>, request: &[u8], reply: &mut [u8]) {
    let Some(message) = Message::whole(request, &dispatch.agreed().limits()) else { return };
    let (header, payload) = reply.split_at_mut(OUT_HEADER);
    let Outcome::Reply { error, len } = dispatch.answer(&message, payload) else { return };
    let (unique, error) = (message.head.unique, error.map_or(0, |e| -e.raw_os_error()));
    let len = OUT_HEADER + len;
    let head = abi::OutHeader { len: len as u32, error, unique };
    header.copy_from_slice(head.as_bytes());
    send(fd, &reply[..len], dispatch);
}

fn send(fd: BorrowedFd<'_>, reply: &[u8], dispatch: &Dispatch) {
    match rustix::io::write(fd, reply) {
        Ok(_) => {}
        // No process waits for the reply: the caller was killed, or the connection ended.
        Err(Errno::NOENT) => {}
        Err(errno) if is_end(errno) => {}
        Err(errno) => dispatch.log_message(&format!("a reply was refused: {errno}")),
    }
}

/// Reads the first request, which is INIT. `None` if the connection ends first.
pub(crate) fn read_init(fd: &OwnedFd) -> Result<Option<(abi::InHeader, abi::InitIn)>, Errno> {
    let mut bytes = vec![0; abi::MIN_READ_BUFFER];
    let read = loop {
        match rustix::io::read(fd, &mut bytes) {
            Ok(read) => break read,
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(errno) if is_end(errno) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    };
    let (head, body) = abi::InHeader::read_from_prefix(&bytes[..read]).map_err(|_| Errno::PROTO)?;
    if head.opcode != abi::Opcode::Init as u32 {
        return Err(Errno::PROTO);
    }
    // A kernel without `flags2` sends 16 bytes. The missing bytes count as zero.
    let mut offer = [0; size_of::<abi::InitIn>()];
    let given = body.len().min(offer.len());
    offer[..given].copy_from_slice(&body[..given]);
    Ok(Some((head, abi::InitIn::read_from_bytes(&offer).expect("of its size"))))
}

/// Answers INIT.
pub(crate) fn answer_init(fd: &OwnedFd, unique: u64, out: &abi::InitOut) -> Result<(), Errno> {
    let len = OUT_HEADER + size_of::<abi::InitOut>();
    let head = abi::OutHeader { len: len as u32, error: 0, unique };
    let reply = [head.as_bytes(), out.as_bytes()].concat();
    rustix::io::write(fd, &reply).map(drop)
}
