//! `rddp stat --top`: the busiest connections, live.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use rddp_command::failure::Failure;
use rddp_command::out::{Table, say};
use rddp_command::signals;
use rddp_stat::{Counter, Counts};

use super::line::{address, name};
use super::process::Process;
use super::sample::{Joined, Sample};
use super::{StatArgs, text};

/// Time between two looks where the user names none.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Draws the table after each interval, until it is enough.
pub(super) fn run(args: &StatArgs, first: Sample, interval: Duration) -> Result<(), Failure> {
    let mut before = first;
    let screen = Screen::open();
    let mut due = Instant::now();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        due += interval;
        signals::sleep(due.saturating_duration_since(Instant::now()))?;
        let now = Sample::take(&args.pids)?;
        screen.draw(&lines(&before, &now));
        before = now;
    }
    Ok(())
}

/// One line of the table, and what it is sorted by.
struct Row {
    octets: u64,
    cells: Vec<String>,
}

/// Returns the lines of the table: sums first, then connections, those with the most octets first.
fn lines(before: &Sample, now: &Sample) -> Vec<String> {
    let seconds = now.seconds_since(before);
    let mut sum = Counts::default();
    let mut rows: Vec<Row> = now
        .connections()
        .map(|(process, joined)| {
            let then = before.same(process.pid, &joined.rddp).map(|one| one.counts).unwrap_or_default();
            let since = joined.rddp.counts.since(&then);
            sum.add(&since);
            Row { octets: octets(&since), cells: cells(process, joined, &since, seconds) }
        })
        .collect();
    most_first(&mut rows);
    let [out, in_] =
        [Counter::OctetsSent, Counter::OctetsReceived].map(|of| text::megabytes(&sum, of, seconds));
    let mut lines = vec![
        format!(
            "rddp: {} processes, {} connections, {out} MB/s out, {in_} MB/s in",
            now.processes.len(),
            rows.len()
        ),
        String::new(),
    ];
    let mut table = Table::default();
    table.row([
        "connection",
        "peer",
        "state",
        "out MB/s",
        "in MB/s",
        "msgs/s",
        "rtt ms",
        "retrans",
        "process",
    ]);
    rows.into_iter().for_each(|row| table.row(row.cells));
    lines.extend(table.lines());
    lines
}

fn most_first(rows: &mut [Row]) {
    rows.sort_by_key(|row| std::cmp::Reverse(row.octets));
}

fn octets(since: &Counts) -> u64 {
    since.of(Counter::OctetsSent).saturating_add(since.of(Counter::OctetsReceived))
}

fn cells(process: &Process, joined: &Joined, since: &Counts, seconds: f64) -> Vec<String> {
    const MESSAGES: [Counter; 6] = [
        Counter::SendsSent,
        Counter::WritesSent,
        Counter::ReadsSent,
        Counter::SendsReceived,
        Counter::WritesReceived,
        Counter::ReadsReceived,
    ];
    let messages: f64 = MESSAGES.iter().map(|counter| since.of(*counter) as f64).sum();
    let (identity, tcp) = (&joined.rddp.identity, joined.tcp.as_ref());
    vec![
        format!("{} {}", name(identity), address(identity.local)),
        address(identity.peer),
        joined.rddp.phase.to_string(),
        text::megabytes(since, Counter::OctetsSent, seconds),
        text::megabytes(since, Counter::OctetsReceived, seconds),
        format!("{:.0}", messages / seconds),
        tcp.map_or_else(|| "-".into(), |tcp| format!("{:.3}", f64::from(tcp.rtt_us) / 1e3)),
        tcp.map_or_else(|| "-".into(), |tcp| tcp.retrans.to_string()),
        format!("{} {}", process.pid, process.command),
    ]
}

/// A terminal that is drawn anew each time, or an output that takes line after line.
struct Screen {
    is_terminal: bool,
}

impl Screen {
    /// Takes the terminal's other screen, if the output is one.
    fn open() -> Self {
        let screen = Screen { is_terminal: stdout().is_terminal() };
        screen.control("\x1b[?1049h\x1b[?25l");
        screen
    }

    fn draw(&self, lines: &[String]) {
        if !self.is_terminal {
            lines.iter().for_each(|line| say!("{line}"));
            say!();
            return;
        }
        let (rows, columns) = size();
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(rows.saturating_sub(1)) {
            text.extend(line.chars().take(columns));
            text.push_str("\x1b[K\r\n");
        }
        text.push_str("\x1b[J");
        self.control(&text);
    }

    /// Writes what only a terminal is told. One that is gone ends the command by its signal.
    fn control(&self, text: &str) {
        if self.is_terminal {
            let mut out = stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.control("\x1b[?25h\x1b[?1049l");
    }
}

/// Returns rows and columns of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_the_most_octets_come_first() {
        let mut rows: Vec<Row> = [2, 9, 4].map(|octets| Row { octets, cells: Vec::new() }).into();
        most_first(&mut rows);
        assert!(rows.iter().map(|row| row.octets).eq([9, 4, 2]));
    }
}
