//! A device that is or becomes a member, and its name.

use extant_base::{ByteOffset, Error, MemberError, MemberProblem, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{MEMBER_OFFSET, MEMBER_SIZE, Member};
use std::sync::Arc;

/// A device and the caller's name for it.
#[derive(Clone)]
pub struct Part {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Its name in messages.
    pub name: String,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Part {
    /// Pairs `device` with `name`.
    pub fn new(device: Arc<dyn BlockDevice>, name: impl Into<String>) -> Part {
        Part { device, name: name.into() }
    }

    /// The member record, or `None` if the device has none.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` from the record; `Device`.
    pub fn record(&self) -> Result<Option<Member>> {
        record_of(&*self.device)
    }

    pub(crate) fn refuse(&self, problem: MemberProblem) -> Error {
        refusal(&self.name, problem)
    }
}

pub(crate) fn refusal(name: &str, problem: MemberProblem) -> Error {
    Error::Member(Box::new(MemberError { member: name.to_owned(), problem }))
}

/// The member record of `device`, or `None` if it has none.
///
/// # Errors
/// `Corrupt`, `Unsupported` from the record; `Device`.
pub fn record_of(device: &dyn BlockDevice) -> Result<Option<Member>> {
    let mut bytes = [0; MEMBER_SIZE];
    if device.len() < MEMBER_OFFSET + MEMBER_SIZE as u64 {
        return Ok(None);
    }
    device.read_fresh_at(ByteOffset(MEMBER_OFFSET), &mut bytes)?;
    Member::check(&bytes)
}
