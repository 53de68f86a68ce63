//! `extant xattr`: shows and changes extended attributes.

use crate::apply::of_attribute;
use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::{Image, as_path, inner_path};
use crate::out::Out;
use crate::shown::{BASE64, Shown, Whole, encoded, hex};
use base64::Engine;
use extant::{Error, Filesystem, XattrMode};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Show, set and remove extended attributes of files in a volume.
///
/// Without -n and -x, attributes are shown as by getfattr -d. A value is text, 0x with hexadecimal
/// digits, or 0s with base64, as for setfattr. Symbolic links are not followed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant xattr root.img /srv/file
  extant xattr -n user.note -v 'kept by hand' root.img /srv/file
  extant xattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= root.img /bin/ping
  extant xattr -x user.note root.img /srv/file /srv/other

Exit status: 0 done, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Name of the attribute to set, or without -v to show
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// New value of the attribute; empty if omitted
    #[arg(short, long, value_name = "VALUE", requires = "name")]
    value: Option<OsString>,
    /// Name of the attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with_all = ["name", "value"])]
    remove: Option<OsString>,
    /// Print one JSON object per line (docs/JSON.md)
    #[arg(long, conflicts_with_all = ["value", "remove"])]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    path: String,
    name: String,
    value_base64: String,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        if self.value.is_none() && self.remove.is_none() {
            return self.show();
        }
        let change = Change::begin(&self.image, Steps { in_steps: false })?;
        for path in &self.paths {
            let path = inner_path(path)?;
            let node = change.at(&path, |fs| fs.node_nofollow(as_path(&path)))?;
            let (name, len, done) = match (&self.name, &self.value, &self.remove) {
                (Some(name), Some(value), _) => {
                    let value = decoded(value.as_bytes()).map_err(Failure::usage)?;
                    (name, value.len(), node.set_xattr(name, &value, XattrMode::Any))
                }
                (_, _, Some(name)) => (name, 0, node.remove_xattr(name)),
                _ => continue,
            };
            done.map_err(|error| of_attribute(&change, &path, (name.as_bytes(), len), &error))?;
        }
        change.finish()?;
        Ok(0)
    }

    fn show(&self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let fs = image.open()?;
        let mut out = Out::new();
        for path in &self.paths {
            let path = inner_path(path)?;
            let found = attributes(&fs, &path, self.name.as_deref());
            let found = found.map_err(|error| image.failure(&path, &error))?;
            if self.json {
                for (name, value) in found {
                    out.json(&Row {
                        path: encoded(&path),
                        name: encoded(&name),
                        value_base64: BASE64.encode(&value),
                    })?;
                }
                continue;
            }
            if found.is_empty() {
                continue;
            }
            out.text(format_args!("# file: {}\n", Whole(&path)))?;
            for (name, value) in found {
                out.text(format_args!("{}={}\n", Whole(&name), readable(&value)))?;
            }
            out.text(format_args!("\n"))?;
        }
        out.finish()?;
        Ok(0)
    }
}

/// The attributes at `path`, or only the attribute `only`.
fn attributes(
    fs: &Filesystem,
    path: &[u8],
    only: Option<&OsStr>,
) -> extant::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = match only {
        Some(name) => vec![name.to_owned()],
        None => fs.xattrs(as_path(path))?,
    };
    let value = |name: OsString| match fs.xattr(as_path(path), &name) {
        Ok(value) => Ok((name.as_bytes().to_vec(), value)),
        Err(error) => Err(error),
    };
    names.into_iter().map(value).collect::<Result<_, Error>>()
}

/// Decodes a value in the notation of setfattr.
fn decoded(text: &[u8]) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("'{}' is not {what}", Shown(text));
    if let Some(digits) = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")) {
        let nibble = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
        let nibbles: Option<Vec<u8>> = digits.iter().map(nibble).collect();
        let nibbles = nibbles.filter(|nibbles| nibbles.len().is_multiple_of(2));
        let nibbles = nibbles.ok_or_else(|| wrong("0x and pairs of hexadecimal digits"))?;
        return Ok(nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect());
    }
    match text.strip_prefix(b"0s").or_else(|| text.strip_prefix(b"0S")) {
        Some(digits) => BASE64.decode(digits).map_err(|_| wrong("0s and base64")),
        None => Ok(text.to_vec()),
    }
}

/// Text in quotes, or hexadecimal digits.
fn readable(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.chars().any(|c| c.is_control()) => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        _ => format!("0x{}", hex(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_setfattr_reads_them() {
        assert_eq!(decoded(b"plain").unwrap(), b"plain");
        assert_eq!(decoded(b"0x00ff").unwrap(), [0, 255]);
        assert_eq!(decoded(b"0sAQID").unwrap(), [1, 2, 3]);
        assert_eq!(decoded(b"0sAQI=").unwrap(), [1, 2]);
        assert!(decoded(b"0x0").is_err() && decoded(b"0s!").is_err());
        assert_eq!(decoded(b"0sAQI").unwrap(), [1, 2]);
    }
}
