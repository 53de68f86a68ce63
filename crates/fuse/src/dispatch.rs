//! Passes a request to the filesystem and puts the reply where the transport sends it from.
//!
//! ```text
//!   Message ──► Request ──► Operations ──► room: payload of the reply
//!      │ EINVAL…   │           │ panic: EIO, and a line in `log`
//!      └───────────┴───────────┴──► Outcome::Reply { error, len } | Outcome::Silent
//! ```

use crate::abi::{self, Opcode, OpenReply, WriteRequest};
use crate::connection::{Log, is_end};
use crate::negotiate::Agreed;
use crate::operations::{
    DirCache, Entry, HandleId, Handles, NodeId, Opened, OpenedDir, Operations, WriteFlags,
};
use crate::reply::{self, Records, put, put_bytes};
use crate::request::{Message, Operation, Request};
use crate::statistics::Requests;
use parking_lot::RwLock;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation has no reply.
    Silent,
    /// A reply: an errno, or `len` bytes at the front of the reply buffer.
    Reply {
        /// The errno of a failed request.
        error: Option<Errno>,
        /// Bytes of payload, 0 with an error.
        len: usize,
    },
}

/// Passes requests to one filesystem. Any number of threads share one `Dispatch`.
pub struct Dispatch {
    operations: Arc<dyn Operations>,
    agreed: Agreed,
    requests: Requests,
    log: Log,
    destroyed: AtomicBool,
    /// Each request holds this shared while it runs. `Dispatch::destroy` takes it exclusively, and
    /// so waits for all of them.
    at_work: RwLock<()>,
    /// Where notifications to the kernel are written.
    connection: Option<Arc<OwnedFd>>,
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatch").finish_non_exhaustive()
    }
}

impl Dispatch {
    /// Serves a connection on which the kernel and the server agreed on `agreed`.
    pub fn new(operations: Arc<dyn Operations>, agreed: Agreed, log: Log) -> Dispatch {
        let requests = Requests::default();
        let (destroyed, at_work) = (AtomicBool::new(false), RwLock::new(()));
        Dispatch { operations, agreed, requests, log, destroyed, at_work, connection: None }
    }

    /// The same; notifications to the kernel are written to `connection`, an open `/dev/fuse`.
    pub fn with_notices(self, connection: Arc<OwnedFd>) -> Dispatch {
        Dispatch { connection: Some(connection), ..self }
    }

    /// The settings of the connection.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Writes a message to the log.
    pub(crate) fn log_message(&self, text: &str) {
        (self.log)(text);
    }

    /// Requests so far.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Answers `message`; `buf`, the reply buffer, has at least [`Agreed::reply_bytes`].
    pub fn answer(&self, message: &Message<'_>, buf: &mut [u8]) -> Outcome {
        let opcode = Opcode::of(message.head.opcode);
        self.requests.count(opcode);
        let _at_work = (opcode != Some(Opcode::Destroy)).then(|| self.at_work.read());
        let answered = match Request::read(message, &self.agreed.limits()) {
            Ok(request) => catch_unwind(AssertUnwindSafe(|| self.perform(&request, buf)))
                .unwrap_or_else(|panic| {
                    let name = opcode.map_or("?", Opcode::name);
                    let text = text_of(&*panic);
                    (self.log)(&format!("{name} of node {} panicked: {text}", request.node.0));
                    Err(Errno::IO)
                }),
            Err(errno) => Err(errno),
        };
        match opcode {
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::NotifyReply) => Outcome::Silent,
            _ => match answered {
                Ok(len) => Outcome::Reply { error: None, len },
                Err(errno) => Outcome::Reply { error: Some(errno), len: 0 },
            },
        }
    }

    /// Calls the filesystem's `destroy`, once, when the kernel sends no more requests. Waits for
    /// requests that still run: the kernel does not wait for FORGET and RELEASE, and a file whose
    /// last name is gone is freed only by them.
    pub fn destroy(&self) {
        let _alone = self.at_work.write();
        if !self.destroyed.swap(true, Ordering::AcqRel) {
            let done = catch_unwind(AssertUnwindSafe(|| self.operations.destroy()));
            if let Err(panic) = done {
                (self.log)(&format!("the end of the mount panicked: {}", text_of(&*panic)));
            }
        }
    }

    fn of_file(&self, handle: HandleId) -> Option<HandleId> {
        (self.agreed.handles == Handles::All).then_some(handle)
    }

    fn of_dir(&self, handle: HandleId) -> Option<HandleId> {
        (self.agreed.handles != Handles::None).then_some(handle)
    }

    fn perform(&self, request: &Request<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        let fs = &*self.operations;
        let Request { node, ref by, operation } = *request;
        match operation {
            Operation::Lookup { name } => put_entry(buf, &fs.lookup(by, node, name)?),
            Operation::Forget { count } => {
                fs.forget(node, count);
                Ok(0)
            }
            Operation::BatchForget { all } => {
                for bytes in all.chunks_exact(size_of::<abi::ForgetOne>()) {
                    let one = abi::ForgetOne::read_from_bytes(bytes).expect("cut to its size");
                    fs.forget(NodeId(one.nodeid), one.nlookup);
                }
                Ok(0)
            }
            Operation::Getattr { handle } => {
                let handle = handle.and_then(|h| self.of_file(h));
                let (attributes, valid) = fs.get_attributes(by, node, handle)?;
                put(buf, &reply::attributes_out(&attributes, valid))
            }
            Operation::Statx { handle } => {
                let handle = handle.and_then(|h| self.of_file(h));
                let (attributes, valid) = fs.get_attributes(by, node, handle)?;
                put(buf, &reply::statx_out(&attributes, valid))
            }
            Operation::Setattr { handle, changes } => {
                let handle = handle.and_then(|h| self.of_file(h));
                let (attributes, valid) = fs.set_attributes(by, node, handle, &changes)?;
                put(buf, &reply::attributes_out(&attributes, valid))
            }
            Operation::Readlink => match fs.read_link(by, node)? {
                target if target.len() >= abi::PAGE => Err(Errno::NAMETOOLONG),
                target => put_bytes(buf, &target),
            },
            Operation::Statfs => {
                let s = fs.statistics()?;
                let out = abi::StatfsOut {
                    blocks: s.blocks,
                    bfree: s.free,
                    bavail: s.available,
                    files: s.inodes,
                    ffree: s.free_inodes,
                    bsize: s.block_bytes,
                    namelen: s.name_max,
                    frsize: s.block_bytes,
                    ..Default::default()
                };
                put(buf, &out)
            }
            Operation::Setxattr { name, value, flags, kill_sgid } => {
                fs.set_xattr(by, node, name, value, flags, kill_sgid).map(|()| 0)
            }
            Operation::Getxattr { name, size } => value(buf, size, &fs.get_xattr(by, node, name)?),
            Operation::Listxattr { size } => value(buf, size, &fs.list_xattrs(by, node)?),
            Operation::Removexattr { name } => fs.remove_xattr(by, node, name).map(|()| 0),
            Operation::Fsyncdir { data_only } => fs.sync_dir(by, node, data_only).map(|()| 0),
            Operation::Syncfs => fs.sync_all().map(|()| 0),
            Operation::Destroy => {
                self.destroy();
                Ok(0)
            }
            Operation::Never => Err(Errno::NOSYS),
            Operation::Opendir { .. }
            | Operation::Readdir { .. }
            | Operation::Releasedir { .. } => self.perform_on_open_dir(request, buf),
            Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Create { .. } => self.change_names(request, buf),
            _ => self.perform_on_content(request, buf),
        }
    }

    /// Answers a request that adds, removes or moves names. The kernel drops the names that it has
    /// cached after an error, too: a change that could not be synced is there.
    fn change_names(&self, request: &Request<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        let done = self.perform_on_names(request, buf);
        self.drop_names(request.node);
        if let Operation::Rename { new_dir, .. } = request.operation {
            self.drop_names(new_dir);
        }
        done
    }

    fn perform_on_names(&self, request: &Request<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        let fs = &*self.operations;
        let Request { node, ref by, operation } = *request;
        match operation {
            Operation::Symlink { name, target } => {
                put_entry(buf, &fs.symlink(by, node, name, target)?)
            }
            Operation::Mknod { name, new } => put_entry(buf, &fs.make_node(by, node, name, &new)?),
            Operation::Mkdir { name, new } => put_entry(buf, &fs.make_dir(by, node, name, &new)?),
            Operation::Unlink { name } => fs.unlink(by, node, name).map(|()| 0),
            Operation::Rmdir { name } => fs.remove_dir(by, node, name).map(|()| 0),
            Operation::Rename { name, new_dir, new_name, flags } => {
                fs.rename(by, node, name, new_dir, new_name, flags).map(|()| 0)
            }
            Operation::Link { node: old, name } => put_entry(buf, &fs.link(by, old, node, name)?),
            Operation::Create { .. } if self.agreed.handles != Handles::All => Err(Errno::NOSYS),
            Operation::Create { name, new, flags } => {
                let (entry, opened) = fs.create(by, node, name, &new, flags)?;
                put_opened(buf, &entry, opened)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn perform_on_open_dir(&self, request: &Request<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        let fs = &*self.operations;
        let Request { node, ref by, operation } = *request;
        match operation {
            Operation::Opendir { flags } => match self.agreed.handles {
                Handles::None => Err(Errno::NOSYS),
                Handles::Directories | Handles::All => {
                    put(buf, &opened_dir(fs.open_dir(by, node, flags)?))
                }
            },
            Operation::Readdir { handle, offset, size, plus } => {
                let buf = buf.get_mut(..size).ok_or(Errno::INVAL)?;
                let mut listing = Records::new(buf, plus);
                fs.read_dir(by, node, self.of_dir(handle), offset, &mut listing)?;
                Ok(listing.used())
            }
            Operation::Releasedir { handle } => {
                if let Some(handle) = self.of_dir(handle) {
                    fs.release_dir(node, handle);
                }
                Ok(0)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn perform_on_content(&self, request: &Request<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        let fs = &*self.operations;
        let Request { node, ref by, operation } = *request;
        match operation {
            Operation::Open { .. } if self.agreed.handles != Handles::All => Err(Errno::NOSYS),
            Operation::Open { flags } => put(buf, &opened(fs.open(by, node, flags)?)),
            Operation::Tmpfile { new, flags } => {
                let (entry, opened) = fs.make_unnamed(by, node, &new, flags)?;
                put_opened(buf, &entry, opened)
            }
            Operation::Flush { handle } => {
                let handle = self.of_file(handle).ok_or(Errno::NOSYS)?;
                fs.flush(node, handle).map(|()| 0)
            }
            Operation::Release { handle } => {
                if let Some(handle) = self.of_file(handle) {
                    fs.release(node, handle);
                }
                Ok(0)
            }
            Operation::Read { handle, offset, size } => {
                let buf = buf.get_mut(..size).ok_or(Errno::INVAL)?;
                let read = fs.read(by, node, self.of_file(handle), offset, buf)?;
                Ok(read.min(size))
            }
            Operation::Write { handle, offset, bytes, how, open_flags } => {
                let flags = WriteFlags {
                    from_cache: how.contains(WriteRequest::CACHE),
                    kill_suid_sgid: how.contains(WriteRequest::KILL_SUIDGID),
                    open_flags,
                };
                let written = fs.write(by, node, self.of_file(handle), offset, bytes, flags)?;
                let size = written.min(bytes.len()) as u32;
                put(buf, &abi::WriteOut { size, padding: 0 })
            }
            Operation::Fsync { handle, data_only } => {
                fs.sync_file(by, node, self.of_file(handle), data_only).map(|()| 0)
            }
            Operation::Bmap { block, block_bytes } => {
                put(buf, &abi::BmapOut { block: fs.block_map(node, block, block_bytes)? })
            }
            Operation::Ioctl { command, input, out_size: wanted } => {
                let front = size_of::<abi::IoctlOut>();
                let out = buf.get_mut(front..front + wanted).ok_or(Errno::INVAL)?;
                let used = fs.control(by, node, command, input, out)?.min(wanted);
                // Only commands with input change a file. The kernel does not know which attributes
                // those commands change.
                if !input.is_empty() {
                    self.forget_attributes(node);
                }
                put(buf, &abi::IoctlOut::default())?;
                Ok(front + used)
            }
            Operation::Fallocate { handle, offset, len, mode } => {
                fs.allocate(by, (node, handle), offset, len, mode).map(|()| 0)
            }
            Operation::Lseek { offset, whence } => {
                put(buf, &abi::LseekOut { offset: fs.seek(by, node, offset, whence)? })
            }
            Operation::CopyFileRange { from, to, to_handle, len, wide } => {
                let copied = fs.copy_range(by, (node, from), to, to_handle, len)?.min(len);
                match u32::try_from(copied) {
                    _ if wide => put(buf, &abi::CopyFileRangeOut { bytes_copied: copied }),
                    Ok(size) => put(buf, &abi::WriteOut { size, padding: 0 }),
                    Err(_) => Err(Errno::OVERFLOW),
                }
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

impl Dispatch {
    /// Requests that the kernel drop the attributes that it has cached of `node`. Sent before the
    /// reply, so that the caller's next `stat` shows the change.
    fn forget_attributes(&self, node: NodeId) {
        self.invalidate(abi::NotifyInvalInode { ino: node.0, off: -1, len: 0 });
    }

    /// Requests that the kernel drop the names of `dir`, if it may have cached any. It uses no
    /// cached name in a listing that begins after the change, but would do so in one that has begun
    /// before. Sent before the reply.
    fn drop_names(&self, dir: NodeId) {
        if self.operations.expire_names(dir) {
            self.invalidate(abi::NotifyInvalInode { ino: dir.0, off: 0, len: 0 });
        }
    }

    fn invalidate(&self, notice: abi::NotifyInvalInode) {
        let Some(connection) = &self.connection else { return };
        let len = size_of::<abi::OutHeader>() + size_of::<abi::NotifyInvalInode>();
        let head = abi::OutHeader { len: len as u32, error: abi::NOTIFY_INVAL_INODE, unique: 0 };
        match rustix::io::write(connection, &[head.as_bytes(), notice.as_bytes()].concat()) {
            // The kernel has cached nothing of the inode, or the connection has ended.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) if is_end(errno) => {}
            Err(errno) => self.log_message(&format!("a notice to the kernel was refused: {errno}")),
        }
    }
}

fn put_entry(buf: &mut [u8], entry: &Entry) -> Result<usize, Errno> {
    put(buf, &reply::entry_out(entry))
}

fn opened(opened: Opened) -> abi::OpenOut {
    let mut flags = match opened.past_cache {
        true => OpenReply::DIRECT_IO,
        false => OpenReply::KEEP_CACHE | OpenReply::PARALLEL_DIRECT_WRITES,
    };
    flags.set(OpenReply::NO_FLUSH, !opened.flush);
    open_out(opened.handle, flags)
}

fn opened_dir(opened: OpenedDir) -> abi::OpenOut {
    let flags = match opened.cache {
        DirCache::Off => OpenReply::empty(),
        DirCache::Fill => OpenReply::CACHE_DIR,
        DirCache::Keep => OpenReply::CACHE_DIR | OpenReply::KEEP_CACHE,
    };
    open_out(opened.handle, flags)
}

fn open_out(handle: HandleId, flags: OpenReply) -> abi::OpenOut {
    abi::OpenOut { fh: handle.0, open_flags: flags.bits(), backing_id: 0 }
}

fn put_opened(buf: &mut [u8], entry: &Entry, how: Opened) -> Result<usize, Errno> {
    let front = put(buf, &reply::entry_out(entry))?;
    Ok(front + put(&mut buf[front..], &opened(how))?)
}

/// The reply with an extended attribute's value. The caller has `size` bytes for it; with 0 it
/// requests the length.
fn value(buf: &mut [u8], size: usize, value: &[u8]) -> Result<usize, Errno> {
    match value.len() {
        len if len > abi::XATTR_MAX => Err(Errno::TOOBIG),
        len if size == 0 => put(buf, &abi::GetxattrOut { size: len as u32, padding: 0 }),
        len if len > size => Err(Errno::RANGE),
        _ => put_bytes(buf, value),
    }
}

/// The message of a panic.
fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no text",
    }
}
