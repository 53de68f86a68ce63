//! Options by name, as C and Python pass them: the long options of the command, each in a string.
//!
//! ```text
//!   { "label=root", "exclude=*.o", "exclude=/tmp", "random", NULL }
//!        └ text     └────── list of two ──────┘    └ flag         finish: no option is left
//! ```

use crate::answer::Fault;
use crate::pointers::strings;
use extant::disk::parse_uuid;
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// The options of one call. Each is taken out by name. An option that is left at the end is
/// unknown.
pub(crate) struct Options<'a>(Vec<(&'a [u8], Option<&'a [u8]>)>);

impl<'a> Options<'a> {
    /// Reads a list that ends in NULL.
    ///
    /// # Safety
    /// As [`strings`].
    pub(crate) unsafe fn of(list: *const *const c_char) -> Options<'a> {
        // SAFETY: this function has the same condition.
        let options = unsafe { strings(list) }.into_iter().map(|option| {
            let option = option.to_bytes();
            match option.iter().position(|byte| *byte == b'=') {
                Some(at) => (&option[..at], Some(&option[at + 1..])),
                None => (option, None),
            }
        });
        Options(options.collect())
    }

    /// All values of `name`, in order.
    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<&'a OsStr>, Fault> {
        let (found, rest): (Vec<_>, Vec<_>) =
            self.0.drain(..).partition(|(given, _)| *given == name.as_bytes());
        self.0 = rest;
        let values = found.into_iter().map(|(_, value)| {
            let value = value.ok_or_else(|| Fault::invalid(&format!("{name}: no value")))?;
            Ok(OsStr::from_bytes(value))
        });
        values.collect()
    }

    /// The value of `name`; the last one if there are several.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<&'a OsStr>, Fault> {
        Ok(self.list(name)?.pop())
    }

    /// The value of `name` as text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<&'a str>, Fault> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let text = value.to_str().ok_or_else(|| Fault::invalid(&format!("{name}: not UTF-8")));
        text.map(Some)
    }

    /// The value of `name`, converted by `parse`.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match parse(text) {
            Some(value) => Ok(Some(value)),
            None => Err(Fault::invalid(&format!("{name}: '{text}' is no value of it"))),
        }
    }

    /// The value of `name` as a number.
    pub(crate) fn number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Fault> {
        self.parsed(name, |text| text.parse().ok())
    }

    /// The value of `name` as a UUID: 32 hexadecimal digits, with or without hyphens.
    pub(crate) fn uuid(&mut self, name: &str) -> Result<Option<[u8; 16]>, Fault> {
        self.parsed(name, parse_uuid)
    }

    /// Whether `name`, which has no value, is in the list.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|given| *given != (name.as_bytes(), None));
        self.0.len() < before
    }

    /// Errors: EINVAL for an option that no call has taken out.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name = String::from_utf8_lossy(name);
                Err(Fault::invalid(&format!("{name}: no such option, or one without a value")))
            }
        }
    }
}

/// A percentage of the blocks, at most 50.
pub(crate) fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percent| (0.0..=50.0).contains(percent))
}

/// `UID:GID`.
pub(crate) fn owner(text: &str) -> Option<(u32, u32)> {
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
    let (uid, gid) = text.split_once(':')?;
    Some((id(uid)?, id(gid)?))
}
