//! A sequence of FUSE requests to a volume.
//!
//! ```text
//!   input:    volume (1) │ edits (1) │ edit … │ request │ request │ …
//!   request:  operation (1) │ node (1) │ how (1) │ length (1) │ bytes: struct, then names or data
//! ```
//! A request refers to a node or handle of an earlier reply by its number in the order of the
//! replies. A volume without edits is consistent afterwards.

use crate::Target;
use crate::image::patch::{self, EDIT};
use crate::parsers::fuse::dispatch;
use extant::check::{self, check_device};
use extant::{BlockDevice, Environment, OpenOptions};
use extant_compat_tests::bounded::Bounded;
use extant_fuse::abi::{self, Opcode};
use extant_fuse::dispatch::{Dispatch, Outcome};
use extant_fuse::request::Message;
use extant_fuse::{Volume, VolumeOptions};
use std::cell::RefCell;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Requests to a volume.
pub const TARGETS: &[Target] =
    &[Target { name: "fuse_volume", run, seeds, weight: 10, longest: 4000 }];

/// The number of requests of an input that are sent.
const REQUESTS_MAX: usize = 100;
/// Bytes of data in a long request: copies of the input's data.
const LONG: usize = 200_000;

/// Sends the requests.
pub fn run(data: &[u8]) {
    let Some((&[volume, edits], rest)) = data.split_first_chunk() else { return };
    let edits = (usize::from(edits) % 4 * EDIT).min(rest.len());
    let (edits, rest) = rest.split_at(edits);
    let Some(patched) = patch::patched(&[&[volume, 0], edits].concat()) else { return };
    let device: Arc<dyn BlockDevice> = Bounded::over(patched.device);
    if patched.volume.members > 1 || patched.volume.journal > 0 {
        return;
    }
    let mut options = OpenOptions::new();
    options.write(true).cache_bytes(1 << 20).page_cache_bytes(2 << 20).commit_interval(None);
    options.environment(Environment::fixed(Default::default(), 7));
    let Ok(fs) = options.open_device(Arc::clone(&device)) else { return };
    let wish = VolumeOptions { check_permissions: volume & 0x80 == 0, ..Default::default() };
    let Ok(volume) = Volume::new(fs, wish) else { return };
    let volume = Arc::new(volume);
    let mut kernel = Kernel { nodes: vec![1], handles: vec![0] };
    let dispatch = dispatch(volume.clone());
    kernel.ask_all(&dispatch, rest);
    dispatch.destroy();
    volume.let_go();
    drop((dispatch, volume));
    let options = check::Options { threads: 2, ..Default::default() };
    let report = check_device(device, &options, &());
    if edits.is_empty() {
        let report = report.expect("it can be checked");
        let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(report.clean, "{said:?}");
    }
}

/// What the kernel knows.
struct Kernel {
    nodes: Vec<u64>,
    handles: Vec<u64>,
}

impl Kernel {
    fn ask_all(&mut self, dispatch: &Dispatch, mut rest: &[u8]) {
        thread_local! {
            static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        ROOM.with_borrow_mut(|room| {
            room.resize(room.len().max(dispatch.agreed().reply_bytes()), 0);
            for _ in 0..REQUESTS_MAX {
                let Some((&head, more)) = rest.split_first_chunk() else { break };
                let (bytes, more) = more.split_at(usize::from(head[3]).min(more.len()));
                rest = more;
                self.ask(dispatch, head, bytes, room);
            }
        });
    }

    fn ask(&mut self, dispatch: &Dispatch, head: [u8; 4], bytes: &[u8], room: &mut [u8]) {
        let [opcode, node, how, _] = head;
        let opcode = Opcode::ALL[usize::from(opcode) % Opcode::ALL.len()];
        // Nothing follows the last one.
        if matches!(opcode, Opcode::Destroy | Opcode::Init) {
            return;
        }
        let (mut fixed, payload) = bytes.split_at(opcode.struct_bytes().min(bytes.len()));
        let mut whole = fixed.to_vec();
        whole.resize(opcode.struct_bytes(), 0);
        fixed = &whole;
        let handle = self.handles[usize::from(how & 0x3F) % self.handles.len()];
        let with_handle = [&handle.to_ne_bytes(), fixed.get(8..).unwrap_or(&[])].concat();
        if how & 0x40 == 0 && fixed.len() >= 8 {
            fixed = &with_handle;
        }
        let long = payload.repeat(LONG / payload.len().max(1));
        let payload = if how & 0x80 != 0 { &long[..] } else { payload };
        let nodeid = match node {
            0xF0.. => [0, 2, 8, u64::MAX][usize::from(node) % 4],
            node => self.nodes[usize::from(node) % self.nodes.len()],
        };
        let len = (size_of::<abi::InHeader>() + fixed.len() + payload.len()) as u32;
        let head =
            abi::InHeader { len, opcode: opcode as u32, unique: 2, nodeid, ..Default::default() };
        let request = [head.as_bytes(), fixed, payload].concat();
        let Some(message) = Message::whole(&request, &dispatch.agreed().limits()) else { return };
        let Outcome::Reply { error, len } = dispatch.answer(&message, room) else { return };
        assert!(len <= room.len() && (error.is_none() || len == 0));
        if error.is_some() {
            return;
        }
        let word =
            |at: usize| u64::from_ne_bytes(room[at..at + 8].try_into().expect("eight bytes"));
        match opcode {
            Opcode::Lookup | Opcode::Mknod | Opcode::Mkdir | Opcode::Symlink | Opcode::Link => {
                self.nodes.push(word(0));
            }
            Opcode::Create | Opcode::Tmpfile => {
                self.nodes.push(word(0));
                self.handles.push(word(size_of::<abi::EntryOut>()));
            }
            Opcode::Open | Opcode::Opendir => self.handles.push(word(0)),
            _ => {}
        }
    }
}

/// A request of an input.
fn request(opcode: Opcode, node: u8, handle: u8, fixed: &[u8], payload: &[u8]) -> Vec<u8> {
    let nr = Opcode::ALL.iter().position(|known| *known == opcode).expect("it is one of them");
    let mut body = fixed.to_vec();
    body.resize(opcode.struct_bytes(), 0);
    body.extend_from_slice(payload);
    let how = if opcode.struct_bytes() >= 8 && handle == 0xFF { 0x40 } else { handle & 0x3F };
    [&[nr as u8, node, how, body.len() as u8], &body[..]].concat()
}

/// Typical sequences of programs, and each operation once, on each volume.
fn seeds() -> Vec<Vec<u8>> {
    let none = 0xFF;
    let write = |offset: u64, size: u32| {
        abi::WriteIn { offset, size, ..Default::default() }.as_bytes().to_vec()
    };
    let read = |size: u32| abi::ReadIn { size, ..Default::default() }.as_bytes().to_vec();
    let allocate = |mode: u32, offset: u64, length: u64| {
        abi::FallocateIn { offset, length, mode, ..Default::default() }.as_bytes().to_vec()
    };
    let create = abi::CreateIn { flags: 2, mode: 0o100_644, ..Default::default() };
    let mkdir = abi::MkdirIn { mode: 0o755, ..Default::default() };
    let value = abi::SetxattrIn { size: 5, ..Default::default() };
    let into_2 = |bytes: usize| {
        let mut fixed = vec![0; bytes];
        fixed[0] = 2;
        fixed
    };
    let work = [
        request(Opcode::Lookup, 0, none, &[], b"victims\0"),
        request(Opcode::Lookup, 1, none, &[], b"large\0"),
        request(Opcode::Open, 2, none, &[], b""),
        request(Opcode::Read, 2, 1, &read(9000), b""),
        request(Opcode::Write, 2, 1, &write(5000, 11), b"other bytes"),
        request(Opcode::Fallocate, 2, 1, &allocate(0, 300_000, 9000), b""),
        request(Opcode::Fallocate, 2, 1, &allocate(3, 4096, 9000), b""),
        request(Opcode::Fsync, 2, 1, &[], b""),
        request(Opcode::Release, 2, 1, &[], b""),
        request(Opcode::Create, 1, none, create.as_bytes(), b"new\0"),
        request(Opcode::Write, 3, 2, &write(1 << 20, 4), b"data"),
        request(Opcode::Setxattr, 3, none, value.as_bytes(), b"user.a\0value"),
        request(Opcode::Getxattr, 3, none, &[200], b"user.a\0"),
        request(Opcode::Listxattr, 3, none, &[200], b""),
        request(Opcode::Mkdir, 1, none, mkdir.as_bytes(), b"dir\0"),
        request(Opcode::Symlink, 4, none, &[], b"link\0target\0"),
        request(Opcode::Readlink, 5, none, &[], b""),
        request(Opcode::Rename, 1, none, &into_2(8), b"new\0renamed\0"),
        request(Opcode::Link, 1, none, &into_2(8), b"hard\0"),
        request(Opcode::Opendir, 1, none, &[], b""),
        request(Opcode::Readdir, 1, 3, &read(4096), b""),
        request(Opcode::Readdirplus, 1, 3, &read(4096), b""),
        request(Opcode::Unlink, 1, none, &[], b"large\0"),
        request(Opcode::Rmdir, 1, none, &[], b"dir\0"),
        request(Opcode::Statfs, 0, none, &[], b""),
        request(Opcode::Syncfs, 0, none, &[], b""),
    ];
    let each =
        Opcode::ALL.iter().map(|opcode| request(*opcode, 0, none, &[1; 16], b"name\0other\0"));
    let each: Vec<Vec<u8>> = each.collect();
    let volumes = crate::image::volumes::all().len() as u8;
    let on = |volume: u8| {
        [&work[..], &each[..]].map(|requests| [vec![volume, 0], requests.concat()].concat())
    };
    (0..volumes).flat_map(on).collect()
}
