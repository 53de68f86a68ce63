//! Times in the local time zone, as ctime(3) and debugfs print them.

#![allow(unsafe_code)]

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Fri Nov  7 09:17:32 2026`
pub(super) fn ctime(sec: i64) -> String {
    let Some(time) = local(sec) else { return sec.to_string() };
    let (day, month) = (name(&DAYS, time.tm_wday), name(&MONTHS, time.tm_mon));
    format!(
        "{day} {month} {:2} {:02}:{:02}:{:02} {}",
        time.tm_mday,
        time.tm_hour,
        time.tm_min,
        time.tm_sec,
        year(&time)
    )
}

/// ` 7-Nov-2026 09:17`
pub(super) fn short(sec: i64) -> String {
    let Some(time) = local(sec) else { return sec.to_string() };
    let month = name(&MONTHS, time.tm_mon);
    format!("{:2}-{month}-{} {:02}:{:02}", time.tm_mday, year(&time), time.tm_hour, time.tm_min)
}

fn year(time: &libc::tm) -> i64 {
    1900 + i64::from(time.tm_year)
}

fn name(names: &[&'static str], index: i32) -> &'static str {
    usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("???")
}

/// The parts of a moment in the time zone of `TZ` or of this machine. `None` for a year that does
/// not fit.
fn local(sec: i64) -> Option<libc::tm> {
    let time: libc::time_t = sec;
    // SAFETY: `tm` consists of integers and a pointer, for which zero is valid.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call. No thread of this program changes `TZ`.
    let done = unsafe { libc::localtime_r(&raw const time, &raw mut parts) };
    (!done.is_null()).then_some(parts)
}

/// Seconds since 1970 of a local time: year, month, day, hour, minute, second. `None` if there is
/// no such time.
pub(super) fn seconds([year, month, day, hour, minute, second]: [i32; 6]) -> Option<i64> {
    // SAFETY: `tm` consists of integers and a pointer, for which zero is valid.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    (parts.tm_year, parts.tm_mon, parts.tm_mday) = (year - 1900, month - 1, day);
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (hour, minute, second);
    parts.tm_isdst = -1;
    let given = (parts.tm_mon, parts.tm_mday);
    // SAFETY: the pointer is valid for the call. No thread of this program changes `TZ`.
    let time = unsafe { libc::mktime(&raw mut parts) };
    // Days that a month does not have become days of the next one.
    (given == (parts.tm_mon, parts.tm_mday)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_the_form_of_ctime() {
        // The day is the same in every zone up to 12 hours from UTC.
        let text = ctime(1_700_046_000);
        assert!(text.starts_with("Wed Nov 15 ") || text.starts_with("Thu Nov 16 "), "{text}");
        assert!(text.ends_with(" 2023") && text.len() == 24, "{text}");
    }

    #[test]
    fn a_year_out_of_range_is_a_number() {
        assert_eq!(ctime(i64::MAX), i64::MAX.to_string());
    }
}
