//! Prefixes of attribute names: a number on disk, a string in the API.

/// The prefix of an attribute's name, as the number on disk. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: NameIndex = NameIndex(1);
    /// `system.posix_acl_access`, the whole name.
    pub const ACL_ACCESS: NameIndex = NameIndex(2);
    /// `system.posix_acl_default`, the whole name.
    pub const ACL_DEFAULT: NameIndex = NameIndex(3);
    /// `trusted.`
    pub const TRUSTED: NameIndex = NameIndex(4);
    /// Lustre; unused.
    pub const LUSTRE: NameIndex = NameIndex(5);
    /// `security.`
    pub const SECURITY: NameIndex = NameIndex(6);
    /// `system.`: "data" is inline data.
    pub const SYSTEM: NameIndex = NameIndex(7);
    /// `system.richacl`, the whole name; unused.
    pub const RICHACL: NameIndex = NameIndex(8);
    /// The encryption context, name "c"; never listed.
    pub const ENCRYPTION: NameIndex = NameIndex(9);
    /// `gnu.`
    pub const HURD: NameIndex = NameIndex(10);

    /// Index and prefix; where the last is true the prefix is the whole name.
    const TABLE: [(NameIndex, &'static str, bool); 8] = [
        (NameIndex::USER, "user.", false),
        (NameIndex::ACL_ACCESS, "system.posix_acl_access", true),
        (NameIndex::ACL_DEFAULT, "system.posix_acl_default", true),
        (NameIndex::TRUSTED, "trusted.", false),
        (NameIndex::SECURITY, "security.", false),
        (NameIndex::RICHACL, "system.richacl", true),
        (NameIndex::SYSTEM, "system.", false),
        (NameIndex::HURD, "gnu.", false),
    ];

    /// The prefix in the API, or `None` for an attribute that the API does not name.
    pub fn prefix(self) -> Option<&'static str> {
        Self::TABLE.iter().find(|row| row.0 == self).map(|row| row.1)
    }

    /// Splits a caller's full name into index and stored name, or `None` for an unknown prefix.
    ///
    /// The stored name is empty only for the names that an index covers whole
    /// (`system.posix_acl_…`).
    pub fn split(full: &[u8]) -> Option<(NameIndex, &[u8])> {
        Self::TABLE.iter().find_map(|&(index, prefix, whole)| {
            let rest = full.strip_prefix(prefix.as_bytes())?;
            (rest.is_empty() == whole).then_some((index, rest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_split_into_index_and_rest() {
        for (full, want) in [
            ("user.mime", Some((NameIndex::USER, "mime"))),
            ("user.", None),
            ("trusted.overlay.opaque", Some((NameIndex::TRUSTED, "overlay.opaque"))),
            ("security.capability", Some((NameIndex::SECURITY, "capability"))),
            ("system.posix_acl_access", Some((NameIndex::ACL_ACCESS, ""))),
            ("system.posix_acl_default", Some((NameIndex::ACL_DEFAULT, ""))),
            ("system.data", Some((NameIndex::SYSTEM, "data"))),
            ("gnu.translator", Some((NameIndex::HURD, "translator"))),
            ("nothing.known", None),
            ("", None),
        ] {
            let want = want.map(|(index, rest)| (index, rest.as_bytes()));
            assert_eq!(NameIndex::split(full.as_bytes()), want, "{full}");
        }
        assert_eq!(NameIndex::ENCRYPTION.prefix(), None);
        assert_eq!(NameIndex(200).prefix(), None);
    }
}
