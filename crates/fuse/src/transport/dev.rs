//! Requests by `/dev/fuse`: a read brings one, a write answers it.
//!
//! Each thread has a file of its own on the connection, so that the kernel keeps the requests it is at apart
//! from those of others, and two buffers: into one a request is read, so that what it writes lies on a page's
//! boundary; from the other the reply goes out with its header, in one write.

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

/// What the threads share.
pub(crate) struct Dev {
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) connection: Arc<OwnedFd>,
    pub(crate) awake: Option<Arc<CpuLatencyHold>>,
    pub(crate) log: Log,
}

/// Opens `/dev/fuse`.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Another file on the connection of `fd`; the same one again where the device cannot be opened.
pub(crate) fn clone_of(fd: &Arc<OwnedFd>) -> Arc<OwnedFd> {
    let clone = || -> Result<OwnedFd, Errno> {
        let new = open()?;
        let old = fd.as_raw_fd() as u32;
        // SAFETY: the request takes a pointer to a u32 that holds an open fd of the process, which `fd` keeps
        // open for the call, and writes nothing through it.
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
            // Interrupted; or the request was taken back before it could be read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(errno) if is_end(errno) => return,
            Err(errno) => {
                (dev.log)(&format!("/dev/fuse cannot be read: {errno}"));
                return;
            }
        };
        if let Some(awake) = &dev.awake {
            awake.request();
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

/// Answers one request; an answer that nobody waits for any more is dropped.
fn answer(dispatch: &Dispatch, fd: BorrowedFd<'_>, request: &[u8], reply: &mut [u8]) {
    let Some(message) = Message::whole(request, &dispatch.agreed().limits()) else { return };
    let (header, room) = reply.split_at_mut(OUT_HEADER);
    let Outcome::Reply { error, len } = dispatch.answer(&message, room) else { return };
    let (unique, error) = (message.head.unique, error.map_or(0, |e| -e.raw_os_error()));
    let len = OUT_HEADER + len;
    let head = abi::OutHeader { len: len as u32, error, unique };
    header.copy_from_slice(head.as_bytes());
    send(fd, &reply[..len], dispatch);
}

fn send(fd: BorrowedFd<'_>, reply: &[u8], dispatch: &Dispatch) {
    match rustix::io::write(fd, reply) {
        Ok(_) => {}
        // Nobody waits for it: the caller was killed, or the connection ended.
        Err(Errno::NOENT) => {}
        Err(errno) if is_end(errno) => {}
        Err(errno) => dispatch.tell(&format!("a reply was refused: {errno}")),
    }
}

/// Reads the first request, which is INIT; `None` when the connection ended before.
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
    // A kernel without `flags2` sends 16 bytes: what is missing is zero.
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
