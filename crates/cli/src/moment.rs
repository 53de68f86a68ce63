//! Times for people, in UTC.
//!
//! ```text
//!   2023-11-14 22:13:20      also without seconds, or without a time of day; T for the space, Z
//!   @1700000000              seconds since 1970
//!   90s, 10m, 2h, 3d         so long ago
//! ```

use extant::Timestamp;

/// `2023-11-14 22:13:20.000000000 UTC`
pub(crate) fn full(time: Timestamp) -> String {
    let (date, clock) = civil(time.sec);
    let [h, m, s] = clock;
    format!("{date} {h:02}:{m:02}:{s:02}.{:09} UTC", time.nsec)
}

/// `2023-11-14 22:13:20 UTC`, or `never` for 0.
pub(crate) fn seconds(sec: u64) -> String {
    if sec == 0 {
        return "never".into();
    }
    let (date, [h, m, s]) = civil(i64::try_from(sec).unwrap_or(i64::MAX));
    format!("{date} {h:02}:{m:02}:{s:02} UTC")
}

/// `2023-11-14 22:13`
pub(crate) fn short(time: Timestamp) -> String {
    let (date, [h, m, _]) = civil(time.sec);
    format!("{date} {h:02}:{m:02}")
}

/// Reads a time: its last second, in seconds since 1970. `now` is the present time.
///
/// Errors: a message for the user.
pub(crate) fn parse(text: &str, now: u64) -> Result<u64, String> {
    let wrong = || {
        format!(
            "'{text}' is not a time: write 2023-11-14, '2023-11-14 22:13' or \
             '2023-11-14 22:13:20' (UTC), @SECONDS since 1970, or 10m, 2h, 3d for so long ago"
        )
    };
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().map_err(|_| wrong());
    }
    if let Some((unit, factor)) = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]
        .iter()
        .find(|(unit, _)| text.ends_with(unit))
    {
        let number: u64 = text[..text.len() - unit.len()].parse().map_err(|_| wrong())?;
        return number.checked_mul(*factor).map(|ago| now.saturating_sub(ago)).ok_or_else(wrong);
    }
    date_and_clock(text).ok_or_else(wrong)
}

/// Reads `2023-11-14 22:13:20` and its shorter forms.
fn date_and_clock(text: &str) -> Option<u64> {
    let text = text.strip_suffix(" UTC").or_else(|| text.strip_suffix('Z')).unwrap_or(text);
    let (date, clock) = match text.split_once([' ', 'T']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let numbers = |text: &str, separator: char| -> Option<Vec<u64>> {
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        text.split(separator).map(|part| part.parse().ok().filter(|_| is_number(part))).collect()
    };
    let &[year, month, day] = numbers(date, '-')?.as_slice() else { return None };
    let seconds = match clock.map(|clock| numbers(clock, ':')).map(Option::unwrap_or_default) {
        None => 86_399,
        Some(clock) => match clock[..] {
            [h @ 0..24, m @ 0..60] => h * 3600 + m * 60 + 59,
            [h @ 0..24, m @ 0..60, s @ 0..60] => h * 3600 + m * 60 + s,
            _ => return None,
        },
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    // As in `civil`: a year begins in March.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let first = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    let days = (first + day).checked_sub(719_469)?;
    let sec = days * 86_400 + seconds;
    // A day that the month does not have would be shown as another one.
    civil(i64::try_from(sec).ok()?).0.ends_with(&format!("-{day:02}")).then_some(sec)
}

/// Date and time of day in the Gregorian calendar, from seconds since 1970.
fn civil(sec: i64) -> (String, [i64; 3]) {
    let (days, rest) = (sec.div_euclid(86_400), sec.rem_euclid(86_400));
    // Counts in cycles of 400 years from 0000-03-01, so that the leap day is the last day of a
    // year.
    let days = days + 719_468;
    let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_cycle = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = cycle * 400 + year_of_cycle + i64::from(month <= 2);
    (format!("{year:04}-{month:02}-{day_of_month:02}"), [rest / 3600, rest / 60 % 60, rest % 60])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        let last_second = [
            ("2023-11-14 22:13:20", 1_700_000_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000),
            ("2023-11-14 22:13:20 UTC", 1_700_000_000),
            ("2023-11-14 22:13", 1_700_000_039),
            ("2000-02-29", 951_868_799),
            ("1970-01-01", 86_399),
            ("@7", 7),
            ("90s", 1_000_000 - 90),
            ("10m", 1_000_000 - 600),
            ("2h", 1_000_000 - 7200),
            ("3d", 1_000_000 - 3 * 86_400),
            ("99999d", 0),
        ];
        for (text, sec) in last_second {
            assert_eq!(parse(text, 1_000_000), Ok(sec), "{text}");
        }
        for sec in (0..4_000_000_000).step_by(12_345_678) {
            assert_eq!(parse(&seconds(sec.max(1)), 0), Ok(sec.max(1)));
        }
        for text in [
            "",
            "today",
            "2023-02-29",
            "2023-13-01",
            "2023-1-1 24:00",
            "1969-12-31",
            "+5-1-1",
            "-3d",
            "@",
            "d",
            "2023-11-14 22",
            "99999999999999999999d",
            "9999999-01-01",
        ] {
            assert!(parse(text, 1_000_000).unwrap_err().contains("is not a time"), "{text}");
        }
    }

    #[test]
    fn known_moments_have_their_dates() {
        let known = [
            (0, "1970-01-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (1_700_000_000, "2023-11-14 22:13"),
            (4_107_542_399, "2100-02-28 23:59"),
            (15_032_385_535, "2446-05-10 22:38"),
            (-2_147_483_648, "1901-12-13 20:45"),
        ];
        for (sec, text) in known {
            assert_eq!(short(Timestamp { sec, nsec: 0 }), text);
        }
        let full = full(Timestamp { sec: 1, nsec: 5 });
        assert_eq!(full, "1970-01-01 00:00:01.000000005 UTC");
    }
}
