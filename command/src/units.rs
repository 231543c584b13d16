//! Numbers of octets, and times, as people write and read them.

use std::time::Duration;

/// Parses a number of octets such as `64`, `4K`, `1M` or `2G` (powers of 1024).
pub fn parse_octets(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no number of octets: write 64, 4K, 1M or 2G");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().map_err(|_| bad())?;
    let shift = shift(unit).ok_or_else(bad)?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more octets than there are"))
}

fn shift(unit: &str) -> Option<u32> {
    match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        _ => None,
    }
}

/// Parses a time in seconds, such as `2` or `0.5`.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let digits = text.strip_suffix('s').unwrap_or(text);
    digits
        .parse()
        .ok()
        .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time <= Duration::from_secs(86_400))
        .ok_or_else(|| format!("{text:?} is no time in seconds up to a day: write 2 or 0.5"))
}

/// Returns a time, in seconds since 1970, as date and time in UTC.
pub fn utc(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin with March here, so that the day of a leap year is the last one; 400 of them have
    // always as many days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + era * 400 + i64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}", second % 60)
}

/// Returns the shortest exact form of a number with a unit: `64`, `4K`, `1M`.
pub fn octets(count: u64) -> String {
    let exact = [(30, "G"), (20, "M"), (10, "K")];
    let fits = |&&(shift, _): &&(u32, &str)| count != 0 && count.is_multiple_of(1 << shift);
    match exact.iter().find(fits) {
        Some((shift, unit)) => format!("{}{unit}", count >> shift),
        None => count.to_string(),
    }
}

/// Returns a number of octets rounded for people: `1.4 GiB`.
pub fn about(count: u64) -> String {
    let units = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| count >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", count as f64 / (1u64 << shift) as f64),
        None => in_octets(count),
    }
}

/// Returns a number of octets in words: `1 octet`, `2 octets`.
pub fn in_octets(count: u64) -> String {
    if count == 1 { "1 octet".to_owned() } else { format!("{count} octets") }
}

/// Returns a rate as files and as lines count it: `125.0 MB/s (1.00 Gbit/s)`.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} MB/s ({:.2} Gbit/s)", bytes_per_s / 1e6, gigabits(bytes_per_s))
}

/// Converts octets a second to Gbit/s, powers of ten.
pub fn gigabits(bytes_per_s: f64) -> f64 {
    bytes_per_s * 8.0 / 1e9
}

/// Converts nanoseconds to microseconds.
pub fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_read_with_their_units() {
        for (text, count) in
            [("0", 0), ("64", 64), ("4K", 4096), ("4k", 4096), ("1M", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_octets(text), Ok(count), "{text}");
        }
        for text in ["", "K", "-1", "4X", "1.5M", "99999999999999999999", "18014398509481984K", "ä"] {
            assert!(parse_octets(text).is_err(), "{text}");
        }
    }

    #[test]
    fn octets_are_written_as_short_as_exact() {
        for (count, text) in
            [(0, "0"), (64, "64"), (4096, "4K"), (4097, "4097"), (3 << 20, "3M"), (1 << 30, "1G")]
        {
            assert_eq!(octets(count), text);
            assert_eq!(parse_octets(text), Ok(count));
        }
    }

    #[test]
    fn one_octet_is_not_several() {
        for (count, text) in [(0, "0 octets"), (1, "1 octet"), (2, "2 octets"), (1536, "1.5 KiB")] {
            assert_eq!(about(count), text);
        }
    }

    #[test]
    fn every_number_has_a_unit_that_fits() {
        for (count, text) in
            [(3 << 30, "3.0 GiB"), (1 << 40, "1.0 TiB"), (5 << 49, "2.5 PiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(about(count), text);
        }
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("2s"), Ok(Duration::from_secs(2)));
        for text in ["", "-1", "NaN", "inf", "1e30", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_dates_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_827_696, "2000-02-29 12:34:56"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_709_251_200, "2024-03-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        // What a peer says may be any number.
        let _ = (utc(i64::MIN), utc(i64::MAX));
    }
}
