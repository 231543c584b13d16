//! Outcomes, as a table and as JSON.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rddp_command::device::By;
use rddp_command::failure::Failure;
use rddp_command::out::{self, say};
use rddp_command::units;
use serde::Serialize;

use super::cpu;
use super::op::{Level, Op, Wait};
use super::options::{Direction, Options};

/// Measurements of one operation and size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) op: Op,
    /// The device of this end, and what it speaks: TCP or UDP alone, of operations without RDMA.
    #[serde(flatten)]
    pub(crate) by: By,
    pub(crate) direction: Direction,
    pub(crate) size: u32,
    pub(crate) qps: u16,
    pub(crate) depth: u16,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    /// Settings as they were asked for.
    pub(crate) mss: Option<u16>,
    /// TCP's congestion control at this end.
    pub(crate) congestion: Option<String>,
    pub(crate) large_fpdus: bool,
    pub(crate) stable: bool,
    pub(crate) wait: Wait,
    /// Messages that are posted, or written, by each call for the bandwidth.
    pub(crate) batch: usize,
    /// Messages of the bandwidth, in all directions, that have arrived.
    pub(crate) messages: u64,
    /// Datagrams that have not arrived, those of the latency among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
    pub(crate) bytes_per_s: f64,
    pub(crate) msgs_per_s: f64,
    /// Measured in the forward direction alone.
    pub(crate) lat_us: Option<Micros>,
    pub(crate) cpu_s_per_gb: f64,
    /// Share of the time for which the thread that measures was ready to run without a processor,
    /// at the end where it is more. The library's own thread does not count: two that spin leave it
    /// no processor, and nothing to do.
    pub(crate) waited: Option<f64>,
    pub(crate) placement: Level,
    /// Octets that the kernel has placed and that were right, latency and all; those of them that
    /// it placed while a segment in front was missing; and those of the streams that it has not
    /// seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_placed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_placed_behind_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_unseen_bytes: Option<u64>,
    /// Segments that the kernel left alone, since they are not whole FPDUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_unaligned_segments: Option<u64>,
    /// Bandwidth beside that of plain TCP, if that was measured.
    #[serde(skip)]
    pub(crate) times_tcp: Option<f64>,
}

impl Outcome {
    /// Returns the share of the time spent waiting for a processor, if it has spoiled the figures.
    pub(crate) fn spoiled(&self) -> Option<f64> {
        self.waited.filter(|share| *share > cpu::SPOILED)
    }
}

/// Quantiles of latency.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Micros {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// Bandwidth of one operation and size in one interval. Operations take turns, so times are those
/// that were spent on this one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Interval {
    pub(crate) op: Op,
    pub(crate) size: u32,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) messages: u64,
    pub(crate) octets: u64,
    pub(crate) bytes_per_s: f64,
}

/// A part of the results, told as soon as it is there.
pub(crate) enum Told {
    /// The measurement of this size goes on.
    AtWork {
        size: u32,
    },
    Interval(Interval),
    Outcome(Box<Outcome>),
}

#[derive(Serialize)]
struct OneInterval<'a> {
    interval: &'a Interval,
}

#[derive(Serialize)]
struct Results {
    results: Vec<Outcome>,
}

/// Prints the results of `measure`: one by one, or as JSON at the end, behind the intervals.
pub(super) fn print(
    json: bool,
    options: &Options,
    measure: impl FnOnce(&mut dyn FnMut(&Told)) -> Result<Vec<Outcome>, Failure>,
) -> Result<(), Failure> {
    if json {
        let results = measure(&mut |told| {
            if let Told::Interval(interval) = told {
                out::json(&OneInterval { interval });
            }
        })?;
        out::json(&Results { results });
        return Ok(());
    }
    let (mut last, mut spoiled) = (None, false);
    let progress = Progress::new(options);
    let measured = measure(&mut |told| match told {
        Told::AtWork { size } => progress.at(*size),
        Told::Interval(interval) => progress.aside(|| line(interval)),
        Told::Outcome(outcome) => progress.aside(|| {
            match last {
                _ if out::style().quiet => {}
                None => head(outcome),
                Some(size) if size != outcome.size => say!(),
                Some(_) => {}
            }
            last = Some(outcome.size);
            spoiled |= outcome.spoiled().is_some();
            row(outcome);
        }),
    });
    progress.0.finish_and_clear();
    if spoiled && !out::style().quiet {
        say!();
        say!("Spoiled by load, where a row waited: others had the processors, or there are too few.");
    }
    measured.map(drop)
}

/// A line of progress, shown where standard error is a terminal. It is drawn between slices, so
/// that it takes no time of theirs.
struct Progress(ProgressBar, Instant);

impl Progress {
    fn new(options: &Options) -> Self {
        let (bar, style) = match options.total_time() {
            _ if out::style().quiet => (ProgressBar::hidden(), ""),
            None => (ProgressBar::no_length(), "{msg} {spinner} {elapsed}"),
            Some(time) => (ProgressBar::new(millis(time)), "{msg} {wide_bar} {percent:>3}% {eta:>4}"),
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Progress(bar, Instant::now())
    }

    fn at(&self, size: u32) {
        let Progress(bar, begun) = self;
        bar.set_message(format!("messages of {}", units::octets(u64::from(size))));
        bar.set_position(millis(begun.elapsed()).min(bar.length().unwrap_or(u64::MAX)));
    }

    /// Prints something in its place.
    fn aside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn line(interval: &Interval) {
    let Interval { op, size, from_s, to_s, messages, bytes_per_s, .. } = interval;
    let (name, octets) = (op.name(), units::octets(u64::from(*size)));
    let rate = units::rate(*bytes_per_s);
    say!("{name:<9} {octets:>6} {from_s:>8.2} - {to_s:.2} s  {rate}, {messages} messages");
}

fn head(outcome: &Outcome) {
    let wait = match outcome.wait {
        Wait::Poll => "spinning",
        Wait::Event => "asleep between events",
    };
    let to = match outcome.direction {
        Direction::Forward => "",
        Direction::Reverse => ", from the server",
        Direction::Both => ", and as many the other way",
    };
    let Outcome { qps, depth, .. } = outcome;
    say!("{qps} connection(s){to}, {depth} messages on their way on each, both ends {wait}");
    let asked = [
        outcome.mss.map(|mss| format!("segments of at most {mss} octets")),
        outcome.large_fpdus.then(|| "large FPDUs".to_owned()),
        outcome.stable.then(|| "stable memory".to_owned()),
    ];
    let asked: Vec<_> = asked.into_iter().flatten().collect();
    if !asked.is_empty() {
        say!("asked for: {}", asked.join(", "));
    }
    say!();
    say!(
        "{:<9} {:>6} {:>9} {:>7} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9}  crc  markers",
        "op",
        "octets",
        "MB/s",
        "Gbit/s",
        "kmsg/s",
        "x tcp",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "cpu s/GB"
    );
}

fn row(outcome: &Outcome) {
    let on = |on: bool| if on { "on" } else { "off" };
    let by = outcome.by.is_host().then(|| format!("by {}", outcome.by));
    let (crc, markers) = match outcome.op.is_iwarp() && by.is_none() {
        true => (on(outcome.crc), on(outcome.markers)),
        false => ("", ""),
    };
    let times_tcp = outcome.times_tcp.map_or_else(|| "-".into(), |times| format!("{times:.2}"));
    let quantiles =
        outcome.lat_us.map(|Micros { p50, p99, p999 }| [p50, p99, p999].map(|us| format!("{us:.1}")));
    let [p50, p99, p999] = quantiles.unwrap_or_else(|| ["-", "-", "-"].map(str::to_owned));
    let row = format!(
        "{:<9} {:>6} {:>9.1} {:>7.2} {:>9.1} {times_tcp:>7} {p50:>9} {p99:>9} {p999:>9} {:>9.3}  {crc:<3}  {markers}",
        outcome.op.name(),
        units::octets(u64::from(outcome.size)),
        outcome.bytes_per_s / 1e6,
        units::gigabits(outcome.bytes_per_s),
        outcome.msgs_per_s / 1e3,
        outcome.cpu_s_per_gb,
    );
    let batch =
        (outcome.op == Op::Tcp && outcome.batch > 1).then(|| format!("{} messages a call", outcome.batch));
    let spoiled = outcome.spoiled().map(|share| format!("waited {:.0} % for a processor", share * 100.0));
    let lost = outcome.lost.filter(|lost| *lost > 0).map(|lost| {
        let share = lost as f64 / (lost + outcome.messages) as f64;
        format!("{lost} lost ({:.1} %)", share * 100.0)
    });
    let notes: Vec<_> = batch.into_iter().chain(by).chain(lost).chain(spoiled).collect();
    say!("{}", format!("{row:<103}  {}", notes.join(", ")).trim_end());
    if let (Some(octets), Some(behind)) = (outcome.kernel_placed_bytes, outcome.kernel_placed_behind_bytes) {
        let [octets, behind] = [octets, behind].map(units::about);
        say!("          placed by the kernel: {octets}; behind a missing segment: {behind}");
        if let Some(unseen) = outcome.kernel_unseen_bytes.filter(|unseen| *unseen > 0) {
            say!("          by interfaces that it does not see: {}", units::about(unseen));
        }
        if let Some(unaligned) = outcome.kernel_unaligned_segments.filter(|unaligned| *unaligned > 0) {
            say!("          segments that are not whole FPDUs, and left alone: {unaligned}");
        }
    }
}
