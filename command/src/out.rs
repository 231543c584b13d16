//! Standard output (lines for people, and JSON for programs) and standard error.
//!
//! The reader of standard output may stop reading (`rddp perf local | head`). Then a command ends
//! without complaint, as if by SIGPIPE. A server goes on, since its clients are not concerned.
//! Output that cannot be written to standard error is dropped.
//!
//! Each object of JSON says by `schema` which form it has. A server's lines, and its objects, begin
//! with the time in UTC (RFC 3339).

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::failure::{Failure, FailureKind, is_printable};

/// Prints a line.
#[macro_export]
macro_rules! say {
    () => { $crate::out::line(format_args!("")) };
    ($($arg:tt)*) => { $crate::out::line(format_args!($($arg)*)) };
}

/// Prints a line to standard error.
#[macro_export]
macro_rules! complain {
    ($($arg:tt)*) => { $crate::out::complaint(format_args!($($arg)*)) };
}
pub use crate::{complain, say};

/// Version of the form of the objects that `--json` prints. It changes when a field goes, or gets
/// another meaning; new fields may come at any time.
const SCHEMA: u32 = 1;

/// The options of the command line about output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// `--json`: failures are objects, too.
    pub json: bool,
    /// `--quiet`: no progress, and of a server nothing of what went well.
    pub quiet: bool,
    /// `--verbose`: all that there is to say.
    pub verbose: bool,
}

static STYLE: OnceLock<Style> = OnceLock::new();

/// Sets the style of the process, before anything is printed.
pub fn set_style(style: Style) {
    let _ = STYLE.set(style);
}

/// Returns the style of the process.
pub fn style() -> Style {
    STYLE.get().copied().unwrap_or_default()
}

/// Prints a line of a server's output unless it is to be quiet; where nobody reads it, the line is
/// dropped.
pub fn event(text: fmt::Arguments<'_>) {
    if style().quiet {
        return;
    }
    drop_unread(format_args!("{} {text}", now()));
}

/// Prints a line of JSON of a server's output; where nobody reads it, the line is dropped.
pub fn json_event(value: &impl Serialize) {
    match to_json(&Timed { time: now(), value }) {
        Ok(text) => drop_unread(format_args!("{text}")),
        Err(error) => tracing::error!("{error}"),
    }
}

/// Prints a line of a server's to standard error: `failure` of the client `peer`.
pub fn client_failed(peer: &str, failure: &Failure) {
    if style().json {
        json_complaint(&Timed { time: now(), value: &ClientFailed { peer, error: failure } });
    } else {
        complain!("{} {peer}: {}", now(), failure.in_one_line());
    }
}

/// Prints a line of a server's output: the client `peer` has left before the end, which is no
/// fault of either.
pub fn client_left(peer: &str, left: &Failure) {
    if style().json {
        json_event(&ClientLeft { peer, left: &left.to_string() });
    } else {
        event(format_args!("{peer}: {left}"));
    }
}

/// Prints a line of a server's to standard error: what is wrong, while it goes on.
pub fn server_warns(text: fmt::Arguments<'_>) {
    if style().json {
        json_complaint(&Timed { time: now(), value: &Warning { warning: text.to_string() } });
    } else {
        complain!("{} {text}", now());
    }
}

/// Prints a warning to standard error: what does not stop the command.
pub fn warn(text: fmt::Arguments<'_>) {
    if style().json {
        json_complaint(&Warning { warning: text.to_string() });
    } else {
        complain!("rddp: {text}");
    }
}

fn drop_unread(text: fmt::Arguments<'_>) {
    if let Err(error) = try_line(text) {
        tracing::info!("writing to standard output: {error}: {text}");
    }
}

/// An object with the version of its form.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Serialize)]
struct Timed<'a, T> {
    time: String,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Serialize)]
struct ClientFailed<'a> {
    peer: &'a str,
    error: &'a Failure,
}

#[derive(Serialize)]
struct ClientLeft<'a> {
    peer: &'a str,
    left: &'a str,
}

#[derive(Serialize)]
struct Warning {
    warning: String,
}

/// Returns the present time in UTC, as RFC 3339 writes it.
fn now() -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

fn try_line(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a line; where nobody reads it, the program ends.
pub fn line(text: fmt::Arguments<'_>) {
    if let Err(error) = try_line(text) {
        if error.kind() == ErrorKind::BrokenPipe {
            std::process::exit(i32::from(FailureKind::NobodyReads.code()));
        }
        complain!("rddp: writing to standard output: {error}");
        std::process::exit(1);
    }
}

/// Prints a line to standard error. A failure to do so cannot be reported anywhere.
pub fn complaint(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints `value` as one line of JSON.
pub fn json(value: &impl Serialize) {
    match to_json(value) {
        Ok(text) => line(format_args!("{text}")),
        // No type that is printed has maps with keys that are not strings.
        Err(error) => complain!("rddp: {error}"),
    }
}

/// Prints `value` as one line of JSON to standard error.
pub fn json_complaint(value: &impl Serialize) {
    match to_json(value) {
        Ok(text) => complain!("{text}"),
        Err(error) => complain!("rddp: {error}"),
    }
}

/// Returns an object as a line of JSON in which characters that a terminal would act on are
/// escaped: `serde_json` escapes only those up to U+001F, and names and reasons come from peers.
pub fn to_json(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(&Versioned { schema: SCHEMA, value })?;
    let mut escaped = String::with_capacity(text.len());
    // Such characters occur only inside strings.
    for c in text.chars() {
        if is_printable(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    Ok(escaped)
}

/// A table: the first column is aligned to the left, the others to the right.
#[derive(Default)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.push(cells.into_iter().map(Into::into).collect());
    }

    /// Prints all rows to standard output.
    pub fn print(&self) {
        self.lines().iter().for_each(|text| say!("{text}"));
    }

    /// Returns the rows as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        let text = |row: &Vec<String>| {
            let mut text = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                text += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            }
            text.trim_end().to_owned()
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_what_a_terminal_would_obey() {
        let text = "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0001} \u{e4} \u{1f600} \\ \"";
        let json = to_json(&Warning { warning: text.to_owned() }).unwrap();
        let escaped = r#""\u001b\u007f\u009b\u202e\udb40\udc01 ä 😀 \\ \"""#;
        assert_eq!(json, format!(r#"{{"schema":1,"warning":{escaped}}}"#));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["warning"], text);
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::default();
        table.row(["op", "MB/s"]);
        table.row(["write", "12345.6"]);
        table.row(["tcp"]);
        assert_eq!(table.lines(), ["op        MB/s", "write  12345.6", "tcp"]);
    }
}
