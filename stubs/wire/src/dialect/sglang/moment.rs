//! Moments as Python writes them.

use std::time::Duration;

/// A moment since 1970 in UTC, with so many digits of a second, and what says that it is UTC.
pub fn written(since_1970: Duration, digits: u32, zone: &str) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = since_1970.subsec_nanos() / 10_u32.pow(9 - digits);
    let width = digits as usize;
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:0width$}{zone}"
    )
}

/// Year, month and day of a number of days since 1970, by eras of 400 years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (400 * era + year + next, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_by_date_and_time() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.123Z"),
            (951_782_399, "2000-02-28T23:59:59.123Z"),
            (951_782_400, "2000-02-29T00:00:00.123Z"),
            (1_796_026_816, "2026-11-30T08:20:16.123Z"),
            (4_107_542_400, "2100-03-01T00:00:00.123Z"),
        ] {
            let moment = Duration::new(seconds, 123_456_789);
            assert_eq!(written(moment, 3, "Z"), expected);
        }
        let moment = Duration::new(1_796_026_811, 918_762_000);
        let expected = "2026-11-30T08:20:11.918762+00:00";
        assert_eq!(written(moment, 6, "+00:00"), expected);
    }
}
