//! Bytes from the kernel become a request, or an errno.
//!
//! ```text
//!   transport ──► Message { head, fixed, payload } ──► Request { by, node, ask: Ask }
//!                  /dev/fuse: one run of bytes          each length checked, names free of NUL
//!                  io_uring:  three places              and '/', sizes within what was agreed
//! ```
//!
//! Nothing here allocates, and no bytes make it panic.

mod ask;
mod read;

pub use ask::Ask;

use crate::abi::{self, Opcode};
use crate::operations::{Caller, NodeId};
use zerocopy::FromBytes;

/// What INIT settled that the reading of requests needs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest READ and WRITE, bytes.
    pub max_transfer: u32,
    /// Largest reply without its header, bytes: listings, values and answers of `ioctl` stay below.
    pub max_reply: u32,
    /// SETXATTR has its long struct.
    pub setxattr_ext: bool,
}

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The header.
    pub head: abi::InHeader,
    /// The operation's struct; at least so long where the kernel told the truth.
    pub fixed: &'a [u8],
    /// What follows it.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Takes one run of bytes apart. `None`: not even a header.
    pub fn whole(bytes: &'a [u8], limits: &Limits) -> Option<Message<'a>> {
        let (head, body) = abi::InHeader::read_from_prefix(bytes).ok()?;
        let (fixed, payload) = body.split_at(fixed_bytes(head.opcode, limits).min(body.len()));
        Some(Message { head, fixed, payload })
    }

    /// A ring's request: the struct stands at the front of `place`, however long that is.
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

/// Bytes of the struct behind the header.
fn fixed_bytes(opcode: u32, limits: &Limits) -> usize {
    match Opcode::of(opcode) {
        Some(Opcode::Setxattr) if !limits.setxattr_ext => 8,
        Some(opcode) => opcode.struct_bytes(),
        None => 0,
    }
}

/// A request that may be acted upon.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The file it is about; the directory where a name is.
    pub node: NodeId,
    /// Who asks.
    pub by: Caller,
    /// What.
    pub ask: Ask<'a>,
}
