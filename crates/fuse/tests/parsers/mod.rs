//! Sends any bytes as a request to a filesystem that checks what `Operations` guarantees. The fuzz
//! target and the hostile tests share this module.

#![allow(dead_code)]

use extant_fuse::abi::{self, InitFlags};
use extant_fuse::dispatch::{Dispatch, Outcome};
use extant_fuse::negotiate::Agreed;
use extant_fuse::request::Message;
use extant_fuse::{
    Answer, Attributes, Caller, DirCache, Entry, HandleId, Handles, Listing, NewNode, NodeId,
    Opened, OpenedDir, Operations, SetAttr, SetTime, Settings, Statistics, Timestamp, WriteFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

const MAX: u32 = 128 << 10;
const OPENED: Opened = Opened { handle: HandleId(1), past_cache: false, flush: true };

/// Answers every request, and panics on arguments that dispatch must not pass on.
struct Witness(Handles);

fn component(name: &OsStr) {
    let name = name.as_bytes();
    assert!(!name.is_empty() && name.len() <= 255, "{name:?}");
    assert!(!name.contains(&0) && !name.contains(&b'/'), "{name:?}");
}

fn entry_name(name: &OsStr) {
    component(name);
    assert!(name != "." && name != "..");
}

fn span(offset: u64, len: u64) {
    assert!(offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64), "{offset} {len}");
}

fn entry() -> Entry {
    let attributes = Attributes { ino: 5, mode: 0o100_644, nlink: 1, ..Default::default() };
    let (valid, node) = (Duration::MAX, NodeId(5));
    Entry { node, generation: 0, attributes, entry_valid: valid, attributes_valid: valid }
}

impl Witness {
    fn handle(&self, handle: Option<HandleId>) {
        assert_eq!(handle.is_some(), self.0 == Handles::All);
    }
}

impl Operations for Witness {
    fn settings(&self) -> Settings {
        Settings {
            writeback_cache: true,
            posix_acl: true,
            handles: self.0,
            time_granularity_ns: 1,
            max_transfer: MAX,
            every_read: false,
        }
    }
    fn lookup(&self, _: &Caller, _: NodeId, name: &OsStr) -> Answer<Entry> {
        component(name);
        Ok(entry())
    }
    fn forget(&self, _: NodeId, _: u64) {}
    fn get_attributes(
        &self,
        _: &Caller,
        _: NodeId,
        _: Option<HandleId>,
    ) -> Answer<(Attributes, Duration)> {
        Ok((entry().attributes, Duration::ZERO))
    }
    fn set_attributes(
        &self,
        _: &Caller,
        _: NodeId,
        _: Option<HandleId>,
        changes: &SetAttr,
    ) -> Answer<(Attributes, Duration)> {
        span(changes.size.unwrap_or(0), 0);
        assert!(changes.mode.unwrap_or(0) <= 0o7777);
        let time = |time: Timestamp| assert!(time.nsec < 1_000_000_000);
        for set in
            [changes.atime, changes.mtime, changes.ctime.map(SetTime::To)].into_iter().flatten()
        {
            if let SetTime::To(at) = set {
                time(at);
            }
        }
        Ok((entry().attributes, Duration::ZERO))
    }
    fn read_link(&self, _: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Ok(vec![b'x'; (node.0 % 5000) as usize])
    }
    fn make_node(&self, _: &Caller, _: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        entry_name(name);
        assert!([1, 2, 6, 8, 12].contains(&(new.mode >> 12)) && new.umask <= 0o777);
        Ok(entry())
    }
    fn make_dir(&self, _: &Caller, _: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        entry_name(name);
        assert_eq!(new.mode >> 12, 4);
        Ok(entry())
    }
    fn symlink(&self, _: &Caller, _: NodeId, name: &OsStr, target: &OsStr) -> Answer<Entry> {
        entry_name(name);
        assert!(!target.is_empty() && target.len() < 4096);
        Ok(entry())
    }
    fn create(
        &self,
        _: &Caller,
        _: NodeId,
        name: &OsStr,
        new: &NewNode,
        _: u32,
    ) -> Answer<(Entry, Opened)> {
        entry_name(name);
        assert!(self.0 == Handles::All && new.mode >> 12 == 8);
        Ok((entry(), OPENED))
    }
    fn make_unnamed(
        &self,
        _: &Caller,
        _: NodeId,
        new: &NewNode,
        _: u32,
    ) -> Answer<(Entry, Opened)> {
        assert_eq!(new.mode >> 12, 8);
        Ok((entry(), OPENED))
    }
    fn unlink(&self, _: &Caller, _: NodeId, name: &OsStr) -> Answer<()> {
        entry_name(name);
        Ok(())
    }
    fn remove_dir(&self, _: &Caller, _: NodeId, name: &OsStr) -> Answer<()> {
        entry_name(name);
        Ok(())
    }
    fn rename(
        &self,
        _: &Caller,
        _: NodeId,
        name: &OsStr,
        _: NodeId,
        new_name: &OsStr,
        _: u32,
    ) -> Answer<()> {
        entry_name(name);
        entry_name(new_name);
        Ok(())
    }
    fn link(&self, _: &Caller, _: NodeId, _: NodeId, name: &OsStr) -> Answer<Entry> {
        entry_name(name);
        Ok(entry())
    }
    fn open(&self, _: &Caller, _: NodeId, _: u32) -> Answer<Opened> {
        assert_eq!(self.0, Handles::All);
        Ok(OPENED)
    }
    fn open_dir(&self, _: &Caller, _: NodeId, _: u32) -> Answer<OpenedDir> {
        assert_ne!(self.0, Handles::None);
        Ok(OpenedDir { handle: HandleId(1), cache: DirCache::Keep })
    }
    fn read(
        &self,
        _: &Caller,
        _: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        out: &mut [u8],
    ) -> Answer<usize> {
        self.handle(handle);
        span(offset, out.len() as u64);
        assert!(out.len() <= MAX as usize);
        out.fill(1);
        // More than the buffer holds. Dispatch must not trust this.
        Ok(out.len() + 1)
    }
    fn write(
        &self,
        _: &Caller,
        _: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
    ) -> Answer<usize> {
        self.handle(handle);
        span(offset, bytes.len() as u64);
        assert!(bytes.len() <= MAX as usize);
        Ok(usize::MAX)
    }
    fn allocate(
        &self,
        _: &Caller,
        _: (NodeId, HandleId),
        offset: u64,
        len: u64,
        _: u32,
    ) -> Answer<()> {
        span(offset, len);
        Ok(())
    }
    fn seek(&self, _: &Caller, _: NodeId, offset: u64, _: u32) -> Answer<u64> {
        Ok(offset)
    }
    fn copy_range(
        &self,
        _: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        _: HandleId,
        len: u64,
    ) -> Answer<u64> {
        span(from.1, len);
        span(to.1, len);
        Ok(u64::MAX)
    }
    fn block_map(&self, _: NodeId, block: u64, block_bytes: u32) -> Answer<u64> {
        assert!(block_bytes.is_power_of_two());
        Ok(block)
    }
    fn control(
        &self,
        _: &Caller,
        _: NodeId,
        _: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Answer<usize> {
        assert!(input.len() <= 2 * MAX as usize && out.len() <= MAX as usize);
        Ok(out.len() + 1)
    }
    fn read_dir(
        &self,
        _: &Caller,
        _: NodeId,
        _: Option<HandleId>,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        let plus = into.wants_entries();
        for (i, name) in [".", "..", "a", "eight..8", "nine....9"].iter().cycle().enumerate() {
            if !into.fits(name.len()) {
                break;
            }
            let next = offset.wrapping_add(i as u64 + 1);
            if plus {
                into.add_entry(OsStr::new(name), &entry(), next);
            } else {
                into.add_name(OsStr::new(name), 5, 8, next);
            }
        }
        Ok(())
    }
    fn get_xattr(&self, _: &Caller, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        assert!(!name.is_empty() && name.len() <= 255);
        Ok(vec![1; (node.0 % 70_000) as usize])
    }
    fn list_xattrs(&self, _: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Ok(vec![1; (node.0 % 70_000) as usize])
    }
    fn set_xattr(
        &self,
        _: &Caller,
        _: NodeId,
        name: &OsStr,
        value: &[u8],
        _: u32,
        _: bool,
    ) -> Answer<()> {
        assert!(!name.is_empty() && name.len() <= 255 && value.len() <= 65_536);
        Ok(())
    }
    fn remove_xattr(&self, _: &Caller, _: NodeId, name: &OsStr) -> Answer<()> {
        assert!(!name.is_empty());
        Ok(())
    }
    fn sync_file(&self, _: &Caller, _: NodeId, handle: Option<HandleId>, _: bool) -> Answer<()> {
        self.handle(handle);
        Err(Errno::IO)
    }
    fn statistics(&self) -> Answer<Statistics> {
        Ok(Statistics::default())
    }
}

/// A dispatcher for `operations`, as after an INIT from a new kernel.
pub fn dispatch(operations: Arc<dyn Operations>) -> Dispatch {
    let all = InitFlags::all().bits();
    let offer = abi::InitIn {
        major: abi::MAJOR,
        minor: abi::MINOR,
        flags: all as u32,
        flags2: (all >> 32) as u32,
        ..Default::default()
    };
    let agreed = Agreed::negotiate(&offer, &operations.settings()).unwrap();
    // Dispatch survives panics of a filesystem, but these tests must fail on one.
    Dispatch::new(operations, agreed, Arc::new(|text: &str| panic!("{text}")))
}

/// Sends `data` as a request through `/dev/fuse`, and as the parts that a ring delivers. The first
/// byte chooses the `Handles` setting.
pub fn request(data: &[u8]) {
    thread_local! {
        static SERVERS: [(Dispatch, std::cell::RefCell<Vec<u8>>); 3] =
            [Handles::None, Handles::Directories, Handles::All].map(|handles| {
                let dispatch = dispatch(Arc::new(Witness(handles)));
                let room = vec![0; dispatch.agreed().reply_bytes()];
                (dispatch, std::cell::RefCell::new(room))
            });
    }
    let Some((&choice, bytes)) = data.split_first() else { return };
    SERVERS.with(|servers| {
        let (dispatch, room) = &servers[choice as usize % 3];
        let room = &mut room.borrow_mut()[..];
        let limits = dispatch.agreed().limits();
        if let Some(message) = Message::whole(bytes, &limits) {
            answer(dispatch, &message, room);
            let mut place = [0xff; 128];
            let given = message.fixed.len().min(128);
            place[..given].copy_from_slice(&message.fixed[..given]);
            let parts = Message::parts(message.head, &place, message.payload, &limits);
            answer(dispatch, &parts, room);
        }
    });
}

fn answer(dispatch: &Dispatch, message: &Message<'_>, room: &mut [u8]) {
    if let Outcome::Reply { error, len } = dispatch.answer(message, room) {
        assert!(len <= room.len());
        assert!(error.is_none() || len == 0);
        assert!(error.is_none_or(|e| (1..512).contains(&e.raw_os_error())));
    }
}
