//! Encryption contexts: the policy of each encrypted inode.
//!
//! ```text
//!   byte       0       1        2     3      4                  8 or 12         24
//!   version 1  │ = 1 │ contents│names│flags│ key descriptor (8) │ nonce (16) │            28 bytes
//!   version 2  │ = 2 │ contents│names│flags│ reserved (4) │ key identifier (16) │ nonce (16) │ 40
//!              └────────────── the policy ──────────────────────┘ one a file
//! ```
//!
//! A file in an encrypted directory has the directory's policy, which is all of the context except
//! the nonce. All contexts of unknown versions count as one policy, as in e2fsck. Source: Linux,
//! `Documentation/filesystems/fscrypt.rst`, "Encryption context".

use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::len_u32;
use hashbrown::HashMap;

/// The largest policy, in bytes.
const POLICY_MAX: usize = 24;

/// The content of an inode's encryption context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// Its policy, padded with zeros; all zeros for an unknown version.
    Policy([u8; POLICY_MAX]),
    /// The length is wrong for its version.
    Malformed,
}

impl Context {
    /// Reads the attribute's value.
    pub(super) fn of(value: &[u8]) -> Context {
        let (len, policy) = match value.first() {
            Some(1) => (28, 12),
            Some(2) => (40, 24),
            Some(_) => return Context::Policy([0; POLICY_MAX]),
            None => return Context::Malformed,
        };
        if value.len() != len {
            return Context::Malformed;
        }
        let mut bytes = [0; POLICY_MAX];
        bytes[..policy].copy_from_slice(&value[..policy]);
        Context::Policy(bytes)
    }
}

/// The number of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::audit::check) struct Policy(u32);

impl Policy {
    /// The policy of an inode whose context could not be read; it is not compared with others.
    pub(in crate::audit::check) const UNREAD: Policy = Policy(0);
}

/// The policies found so far, and their numbers.
pub(super) struct Policies(Mutex<HashMap<[u8; POLICY_MAX], u32>>);

impl Policies {
    pub(super) fn new() -> Policies {
        Policies(Mutex::new(Rank::Leaf, HashMap::new()))
    }

    /// The number of a policy.
    pub(super) fn number(&self, policy: [u8; POLICY_MAX]) -> Policy {
        let mut known = self.0.lock();
        // Fewer than 2^32 inodes have a policy.
        let next = len_u32(known.len()) + 1;
        Policy(*known.entry(policy).or_insert(next))
    }
}
