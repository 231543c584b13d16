//! One line of the log, in a bounded place on the stack.

use std::fmt::{self, Arguments, Debug, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::Event;
use tracing::field::{Field, Visit};

/// Octets of the longest line, with its end. A pipe takes as many at once.
const LONGEST: usize = 1024;

/// Octets at the end of a line that was cut; the last of them ends every line.
const CUT: &[u8] = b"...\n";

/// A line that is being put together. Characters that a terminal would act on are escaped, and so
/// are ends of lines: texts in it may be a peer's.
pub(crate) struct Line {
    octets: [u8; LONGEST],
    len: usize,
    is_cut: bool,
}

impl Line {
    fn new() -> Self {
        Line { octets: [0; LONGEST], len: 0, is_cut: false }
    }

    /// Returns the line about an event; `dropped` lines before it were not written.
    pub(crate) fn of(event: &Event<'_>, dropped: u32) -> Self {
        let mut line = Line::new();
        // What does not fit is left out, and the line says so.
        let _ = line.fill(event, dropped);
        line.end()
    }

    /// Returns a line about the log itself.
    pub(crate) fn complaint(what: Arguments<'_>) -> Self {
        let mut line = Line::new();
        let _ = write!(line, "rddp: {what}");
        line.end()
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    fn fill(&mut self, event: &Event<'_>, dropped: u32) -> fmt::Result {
        let metadata = event.metadata();
        let target = metadata.target().strip_prefix("rddp_").unwrap_or(metadata.target());
        let process = rustix::process::getpid().as_raw_nonzero();
        write!(self, "{} rddp[{process}] {:>5} {target}:", Utc::now(), metadata.level())?;
        let mut fields = Fields { line: self, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        if dropped > 0 { write!(self, " (lines dropped before: {dropped})") } else { Ok(()) }
    }

    fn end(mut self) -> Self {
        let end = if self.is_cut { CUT } else { b"\n" };
        self.octets[self.len..self.len + end.len()].copy_from_slice(end);
        self.len += end.len();
        self
    }

    fn push(&mut self, c: char) -> fmt::Result {
        let len = c.len_utf8();
        if self.is_cut || self.len + len > LONGEST - CUT.len() {
            self.is_cut = true;
            return Err(fmt::Error);
        }
        c.encode_utf8(&mut self.octets[self.len..]);
        self.len += len;
        Ok(())
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if is_printable(c) { self.push(c) } else { c.escape_default().try_for_each(|c| self.push(c)) }
        })
    }
}

/// Returns whether a character only shows, and makes a terminal do nothing else.
fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Puts the fields of an event into a line: the message first, as `tracing` hands it over.
struct Fields<'a> {
    line: &'a mut Line,
    result: fmt::Result,
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.result = self.result.and_then(|()| match field.name() {
            "message" => write!(self.line, " {value:?}"),
            name => write!(self.line, " {name}={value:?}"),
        });
    }
}

/// A moment in UTC, written as RFC 3339 has it.
struct Utc {
    seconds: u64,
    micros: u32,
}

impl Utc {
    fn now() -> Self {
        // A clock before 1970 counts as that.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Utc { seconds: since.as_secs(), micros: since.subsec_micros() }
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.seconds / 86_400, self.seconds % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", self.micros)
    }
}

/// Returns year, month and day of a day since 1970-01-01. Years are counted from March on, so that
/// a leap day is a year's last, in eras of 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let from_january = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(from_january <= 2), from_january, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        String::from_utf8(Line::complaint(format_args!("{text}")).octets().to_vec()).unwrap()
    }

    #[test]
    fn a_peers_text_is_one_line_and_moves_no_cursor() {
        assert_eq!(
            line("a\nrddp: b\u{1b}[2J\u{202e} \u{e4}"),
            "rddp: a\\nrddp: b\\u{1b}[2J\\u{202e} \u{e4}\n"
        );
    }

    #[test]
    fn a_long_line_is_cut_at_a_character_and_says_so() {
        for len in 980..1030 {
            let (written, text) = (line(&"\u{e4}".repeat(len / 2)), "\u{e4}".repeat(len / 2));
            assert!(written.len() <= LONGEST && written.ends_with('\n'));
            assert_eq!(written.ends_with("...\n"), 6 + text.len() > LONGEST - 4, "{len}");
        }
    }

    #[test]
    fn days_have_their_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(19_783), (2024, 3, 1));
        assert_eq!(date(20_454), (2026, 1, 1));
        assert_eq!(Utc { seconds: 951_868_799, micros: 7 }.to_string(), "2000-02-29T23:59:59.000007Z");
    }
}
