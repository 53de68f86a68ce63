//! Requests that set fields of the superblock, and the clock.

use super::session::{Done, Session, Wrong};
use crate::compat::clock;
use crate::compat::console::Console;
use crate::compat::getopt;
use crate::compat::tune2fs::options::time;
use crate::failure::Failure;
use crate::verb::mkfs::uuid;
use extant::tune::{ErrorPolicy, Tune};
use extant::{Environment, Timestamp};
use std::ffi::OsString;

/// The fields that the engine can set, and their kinds. The others of the original cannot be set by
/// themselves on a volume that stays consistent.
const FIELDS: [(&str, &str); 17] = [
    ("r_blocks_count", "unsigned integer"),
    ("mtime", "date/time"),
    ("mnt_count", "unsigned integer"),
    ("max_mnt_count", "integer"),
    ("errors", "unsigned integer"),
    ("lastcheck", "date/time"),
    ("checkinterval", "unsigned integer"),
    ("def_resuid", "unsigned integer"),
    ("def_resgid", "unsigned integer"),
    ("uuid", "UUID"),
    ("volume_name", "string"),
    ("last_mounted", "string"),
    ("def_hash_version", "hash algorithm"),
    ("mkfs_time", "date/time"),
    ("raid_stride", "unsigned integer"),
    ("raid_stripe_width", "unsigned integer"),
    ("mount_opts", "string"),
];

/// Seconds since 1970 of a time as debugfs takes it.
fn seconds(text: &str) -> Option<i64> {
    let sec = time(text).or_else(|| getopt::number(text));
    sec.and_then(|sec| i64::try_from(sec).ok())
}

/// `set_current_time`: the time of later changes.
pub(super) fn set_current_time(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let [text] = args else {
        return Err(Wrong::Line("set_current_time: Usage: set_current_time <time>".into()));
    };
    let text = getopt::text(text);
    let Some(sec) = seconds(&text) else {
        let line = format!("set_current_time: Couldn't parse argument as a time: {text}\n");
        return Err(Wrong::Line(line));
    };
    session.set_now("set_current_time", Timestamp::from_secs(sec))?;
    Ok(to.print(format_args!("Setting current time to {}\n\n", clock::ctime(sec)))?)
}

/// `set_super_value`: the fields of [`FIELDS`].
pub(super) fn set_super_value(
    session: &mut Session,
    request: &str,
    args: &[OsString],
    to: &mut Console,
) -> Done {
    if let [option] = args
        && option == "-l"
    {
        return Ok(list(to)?);
    }
    let [field, value] = args else {
        return Err(Wrong::Line(format!(
            "{request}: Usage: set_super_value <field> <value>\n\
             \t\"set_super_value -l\" will list the names of superblock fields\n\
             \twhich can be set."
        )));
    };
    let (field, value) = (getopt::text(field), getopt::text(value));
    session.check_write(request)?;
    if !FIELDS.iter().any(|(known, _)| *known == field) {
        return Err(Wrong::Line(format!("{request}: invalid field specifier: {field}")));
    }
    let stripe = (session.raw().sb.raid_stride, session.raw().sb.raid_stripe_width);
    let Some(changes) = changes(&field, &value, stripe) else {
        return Err(Wrong::Line(format!("Couldn't parse '{value}' for field {field}.")));
    };
    session.tune(request, &changes)
}

fn list(to: &mut Console) -> Result<(), Failure> {
    to.print(format_args!("Superblock fields supported by the set_super_value command:\n"))?;
    for (field, kind) in FIELDS {
        to.print(format_args!("\t{field:<25}\t{kind}\n"))?;
    }
    Ok(())
}

/// The change that sets a field. `None` if the value is none for it.
fn changes(field: &str, value: &str, stripe: (u16, u32)) -> Option<Tune> {
    let number = || getopt::number(value);
    let word = || number().and_then(|number| u32::try_from(number).ok());
    let half = || number().and_then(|number| u16::try_from(number).ok());
    let moment = || seconds(value).and_then(|sec| u64::try_from(sec).ok());
    let text = || Some(value.to_owned());
    let none = Tune::default();
    Some(match field {
        "r_blocks_count" => Tune { reserved_blocks: Some(number()?), ..none },
        "mtime" => Tune { last_mount: Some(moment()?), ..none },
        "mnt_count" => Tune { mount_count: Some(half()?), ..none },
        "max_mnt_count" => Tune { max_mounts: Some(value.parse().ok()?), ..none },
        "errors" => Tune { errors: Some(ErrorPolicy(half()?)), ..none },
        "lastcheck" => Tune { last_check: Some(moment()?), ..none },
        "checkinterval" => Tune { check_interval: Some(word()?), ..none },
        "def_resuid" => Tune { reserved_uid: Some(word()?), ..none },
        "def_resgid" => Tune { reserved_gid: Some(word()?), ..none },
        "uuid" => {
            let choice = uuid::choice(value).ok()?;
            Tune { uuid: Some(choice.bytes(&Environment::default())), ..none }
        }
        "volume_name" => Tune { label: text(), ..none },
        "last_mounted" => Tune { last_mounted: text(), ..none },
        "def_hash_version" => {
            let version = match value {
                "legacy" => 0,
                "half_md4" => 1,
                "tea" => 2,
                _ => return None,
            };
            Tune { hash_version: Some(version), ..none }
        }
        "mkfs_time" => Tune { made: Some(moment()?), ..none },
        "raid_stride" => Tune { stride: Some((half()?, stripe.1)), ..none },
        "raid_stripe_width" => Tune { stride: Some((stripe.0, word()?)), ..none },
        _ => Tune { mount_text: text(), ..none },
    })
}
