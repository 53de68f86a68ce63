//! Access control lists: what a directory passes on, and what a new file gets of it.
//!
//! ```text
//!   default list of a directory ──and the mode requested──► mode of what is created in it
//!        │                                                  its own list, if it names a user
//!        └──whole──► default list of a directory created in it
//! ```
//!
//! The entries of owner, mask and others in a file's own list are the bits of its mode, whichever
//! call sets those. Source: acl(5), "Object creation and default ACLs".

/// The attribute with a directory's default list.
pub const DEFAULT: &str = "system.posix_acl_default";
/// The attribute with a file's own list.
pub const ACCESS: &str = "system.posix_acl_access";

/// The user whom some lists name.
const NAMED: u32 = 9;

/// A list; permissions are `rwx`, 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acl {
    owner: u16,
    group: u16,
    others: u16,
    /// Of the named user, and the mask.
    named: Option<(u16, u16)>,
}

impl Acl {
    /// The `n`-th list of the pool.
    pub fn of_pool(n: usize) -> Acl {
        [
            Acl { owner: 7, group: 5, others: 1, named: Some((4, 6)) },
            Acl { owner: 5, group: 0, others: 7, named: Some((7, 7)) },
            Acl { owner: 6, group: 4, others: 0, named: None },
        ][n % 3]
    }

    /// What a file created with `mode` gets from its directory's default list: its mode, and a
    /// list.
    pub fn inherited(self, mode: u16) -> (u16, Option<Acl>) {
        let class = self.named.map_or(self.group, |(_, mask)| mask);
        let mode = mode & (0o7000 | self.owner << 6 | class << 3 | self.others);
        (mode, self.named.is_some().then(|| self.following(mode)))
    }

    /// A file's own list after its mode became `mode`.
    pub fn following(self, mode: u16) -> Acl {
        let named = self.named.map(|(rights, _)| (rights, mode >> 3 & 7));
        Acl { owner: mode >> 6 & 7, others: mode & 7, named, ..self }
    }

    /// As system calls pass it.
    pub fn bytes(self) -> Vec<u8> {
        let (user, mask) = (self.named.map(|it| it.0), self.named.map(|it| it.1));
        let entries = [
            (1, Some(self.owner), u32::MAX),
            (2, user, NAMED),
            (4, Some(self.group), u32::MAX),
            (16, mask, u32::MAX),
            (32, Some(self.others), u32::MAX),
        ];
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            let Some(rights) = rights else { continue };
            bytes.extend([u16::to_le_bytes(tag), rights.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}
