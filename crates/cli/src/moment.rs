//! Times for people, in UTC.

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
