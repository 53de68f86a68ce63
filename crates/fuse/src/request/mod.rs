//! Decodes bytes from the kernel into a request, or an errno.
//!
//! ```text
//!   transport ──► Message { head, fixed, payload } ──► Request { by, node, operation }
//!                  /dev/fuse: one run of bytes          each length checked, names free of NUL
//!                  io_uring:  three places              and '/', sizes within the agreed limits
//! ```
//!
//! Nothing here allocates, and no input makes it panic.

mod operation;
mod read;

pub use operation::Operation;

use crate::abi::{self, Opcode};
use crate::operations::{Caller, NodeId};
use zerocopy::FromBytes;

/// The results of INIT that decoding needs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest READ and WRITE, bytes.
    pub max_transfer: u32,
    /// Largest reply without its header, bytes. Listings, values and results of `ioctl` are
    /// smaller.
    pub max_reply: u32,
    /// SETXATTR uses its long struct.
    pub setxattr_ext: bool,
}

/// A request as it arrived: its parts, not yet checked.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The header.
    pub head: abi::InHeader,
    /// The operation's struct, and no more. Shorter if the kernel sent too few bytes.
    pub fixed: &'a [u8],
    /// What follows it.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits one run of bytes. `None` if it is shorter than a header.
    pub fn whole(bytes: &'a [u8], limits: &Limits) -> Option<Message<'a>> {
        let (head, body) = abi::InHeader::read_from_prefix(bytes).ok()?;
        let (fixed, payload) = body.split_at(fixed_bytes(head.opcode, limits).min(body.len()));
        Some(Message { head, fixed, payload })
    }

    /// A request that arrived through a ring. The struct is at the front of `place`, which may be
    /// longer.
    pub fn parts(
        head: abi::InHeader,
        place: &'a [u8],
        payload: &'a [u8],
        limits: &Limits,
    ) -> Message<'a> {
        let fixed = &place[..fixed_bytes(head.opcode, limits).min(place.len())];
        Message { head, fixed, payload }
    }
}

/// Size of the struct after the header, in bytes.
fn fixed_bytes(opcode: u32, limits: &Limits) -> usize {
    match Opcode::of(opcode) {
        Some(Opcode::Setxattr) if !limits.setxattr_ext => 8,
        Some(opcode) => opcode.struct_bytes(),
        None => 0,
    }
}

/// A request whose fields have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The file that the request is about, or the directory of its name.
    pub node: NodeId,
    /// The process that made the request.
    pub by: Caller,
    /// The operation.
    pub operation: Operation<'a>,
}
