//! Names and numbers of this system's users and groups.
//!
//! ```text
//!   /etc/passwd   name:x:NUMBER:…
//!   /etc/group    name:x:NUMBER:…
//! ```

use std::{fs, io};

/// The table of users.
pub(crate) const USERS: &str = "/etc/passwd";
/// The table of groups.
pub(crate) const GROUPS: &str = "/etc/group";

/// The name of a number in a table. `None` if there is none, or no table.
pub(crate) fn name(table: &str, number: u32) -> Option<String> {
    let lines = fs::read(table).ok()?;
    let lines = String::from_utf8_lossy(&lines);
    entries(&lines).find(|(_, known)| *known == number).map(|(name, _)| name.to_owned())
}

/// The number of a name in a table.
///
/// Errors: the table cannot be read.
pub(crate) fn number(table: &str, name: &str) -> io::Result<Option<u32>> {
    let lines = fs::read(table)?;
    let lines = String::from_utf8_lossy(&lines);
    Ok(entries(&lines).find(|(known, _)| *known == name).map(|(_, number)| number))
}

/// The names and numbers of a table. Lines without a number are left out.
fn entries(lines: &str) -> impl Iterator<Item = (&str, u32)> {
    lines.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_names_and_numbers() {
        let found: Vec<_> = entries("root:x:0:\nadm:x:4:syslog\nbroken\n:\n").collect();
        assert_eq!(found, [("root", 0), ("adm", 4)]);
        assert!(number("/no/such/table", "root").is_err());
        assert_eq!(name("/no/such/table", 0), None);
    }
}
