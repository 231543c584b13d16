//! Outcomes, as a table and as JSON.

use serde::Serialize;

use super::control::{Op, Wait};
use crate::failure::Failure;
use crate::out::{self, say};
use crate::units;

/// Measurements of one operation and size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) op: Op,
    pub(crate) size: u32,
    pub(crate) qps: u16,
    pub(crate) depth: u16,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    pub(crate) wait: Wait,
    pub(crate) bytes_per_s: f64,
    pub(crate) msgs_per_s: f64,
    pub(crate) lat_us: Micros,
    pub(crate) cpu_s_per_gb: f64,
    /// Bandwidth beside that of plain TCP, if that was measured.
    #[serde(skip)]
    pub(crate) times_tcp: Option<f64>,
}

/// Quantiles of latency.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Micros {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

#[derive(Serialize)]
struct Results {
    results: Vec<Outcome>,
}

/// Prints the results of `measure`: one by one, or as JSON at the end.
pub(super) fn print(
    json: bool,
    measure: impl FnOnce(&mut dyn FnMut(&Outcome)) -> Result<Vec<Outcome>, Failure>,
) -> Result<(), Failure> {
    if json {
        let results = measure(&mut |_| {})?;
        out::json(&Results { results });
        return Ok(());
    }
    let mut last = None;
    measure(&mut |outcome| {
        match last {
            None => head(outcome),
            Some(size) if size != outcome.size => say!(),
            Some(_) => {}
        }
        last = Some(outcome.size);
        row(outcome);
    })
    .map(drop)
}

fn head(outcome: &Outcome) {
    let wait = match outcome.wait {
        Wait::Poll => "spinning",
        Wait::Event => "asleep between events",
    };
    say!("{} connection(s), {} messages on their way on each, both ends {wait}", outcome.qps, outcome.depth);
    say!();
    say!(
        "{:<6} {:>6} {:>9} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9}  crc  markers",
        "op",
        "octets",
        "MB/s",
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
    let (crc, markers) = match outcome.op {
        Op::Tcp => ("", ""),
        _ => (on(outcome.crc), on(outcome.markers)),
    };
    let times_tcp = outcome.times_tcp.map_or_else(|| "-".into(), |times| format!("{times:.2}"));
    let Micros { p50, p99, p999 } = outcome.lat_us;
    let row = format!(
        "{:<6} {:>6} {:>9.1} {:>9.1} {times_tcp:>7} {p50:>9.1} {p99:>9.1} {p999:>9.1} {:>9.3}  {crc:<3}  {markers}",
        outcome.op.name(),
        units::octets(u64::from(outcome.size)),
        outcome.bytes_per_s / 1e6,
        outcome.msgs_per_s / 1e3,
        outcome.cpu_s_per_gb,
    );
    say!("{}", row.trim_end());
}
