//! `extant chown`: changes owners.

use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::{as_path, inner_path};
use crate::verb::mkfs::format_options::{ID_MAX, id};
use extant::{Error, SetAttributes};
use std::ffi::{OsStr, OsString};

/// Largest table of users or groups that is read, in bytes.
const TABLE_MAX: u64 = 16 << 20;

/// The attribute with a program's capabilities.
const CAPABILITY: &str = "security.capability";

/// Change owner and group of files in a volume.
///
/// OWNER is USER, USER:GROUP, :GROUP or USER: (the user's own group). Users and groups are numbers,
/// or names in the volume's /etc/passwd and /etc/group. Symbolic links given as PATH are followed
/// unless --no-dereference is given; links found by -R are skipped. As with chown(2), files lose
/// capabilities, set-user-ID and set-group-ID. Either all files are changed, or none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant chown root.img 1000:1000 /home/user
  extant chown -R root.img www-data:www-data /var/www
  extant chown root.img :adm /var/log

Exit status: 0 changed, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// New owner and group
    #[arg(value_name = "OWNER")]
    owner: String,
    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change directories and everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links instead of the files that they lead to
    #[arg(long, conflicts_with = "recursive")]
    no_dereference: bool,
    #[command(flatten)]
    steps: Steps,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, self.steps)?;
        let (uid, gid) = owner(&change, &self.owner)?;
        let changes = SetAttributes { uid, gid, ..SetAttributes::default() };
        for path in &self.paths {
            let path = inner_path(path)?;
            if self.no_dereference {
                change.at(&path, |fs| fs.set_symlink_attributes(as_path(&path), &changes))?;
                continue;
            }
            super::chmod::each(&change, &path, self.recursive, &mut |path, node| {
                // As in chown(2). Removed first, so that with --in-steps no file has the new owner
                // and the old capabilities.
                if !node.metadata().is_dir() {
                    let name = OsStr::new(CAPABILITY);
                    match node.remove_xattr(name) {
                        Ok(()) | Err(Error::NoAttribute) => {}
                        Err(error) => return Err(change.failure(path, &error)),
                    }
                }
                change.at(path, |_| node.set_attributes(&changes))
            })?;
        }
        change.finish()?;
        Ok(0)
    }
}

/// The user and group that `text` names in the volume.
fn owner(change: &Change, text: &str) -> Result<(Option<u32>, Option<u32>), Failure> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    if user.is_empty() && group.is_none_or(str::is_empty) {
        return Err(Failure::usage(format_args!("'{text}' names neither a user nor a group")));
    }
    let uid = match user {
        "" => None,
        user => Some(number(change, "/etc/passwd", user, 2)?),
    };
    let gid = match group {
        None => None,
        Some("") => Some(number(change, "/etc/passwd", user, 3)?),
        Some(group) => Some(number(change, "/etc/group", group, 2)?),
    };
    Ok((uid, gid))
}

/// A number, or the number in field `field` of the line of a table of the volume that begins with
/// `name`.
fn number(change: &Change, table: &str, name: &str, field: usize) -> Result<u32, Failure> {
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        let id = id(name).ok_or_else(|| {
            Failure::usage(format_args!("'{name}' is not an owner: the largest id is {ID_MAX}"))
        })?;
        if table == "/etc/passwd" && field == 3 {
            return Err(Failure::usage(format_args!(
                "'{name}:' is a number and has no group: write \
                                                    {name}:GROUP"
            )));
        }
        return Ok(id);
    }
    let Some(found) = change.metadata_following_links(table.as_bytes())? else {
        return Err(change.refuse(
            table.as_bytes(),
            "the file does not exist, so names cannot be looked up: use numbers",
        ));
    };
    let len = found.len();
    if len > TABLE_MAX {
        return Err(change.refuse(
            table.as_bytes(),
            "the file is too large, so names cannot be \
                                                    looked up: use numbers",
        ));
    }
    let text = change.at(table.as_bytes(), |fs| fs.read(table))?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    let found = line.and_then(|line| line.split(':').nth(field)?.parse().ok());
    found.ok_or_else(|| {
        change.refuse(table.as_bytes(), &format!("the file has no entry '{name}': use a number"))
    })
}
