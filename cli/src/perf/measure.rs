//! Measurements: sessions of one size run slices in turn.

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::control::Op;
use super::options::Options;
use super::report::{Micros, Outcome};
use super::session::{Session, Slice};
use crate::failure::Failure;
use crate::units::micros;

/// Length of the longest slice, and the share of the time that a slice takes.
const SLICE: Duration = Duration::from_millis(200);
const SLICES: u32 = 6;

/// Length of the shortest slice.
const MIN_SLICE: Duration = Duration::from_millis(20);

/// Time before the measurement that is not counted: TCP finds its window, and memory gets its
/// pages.
const WARM_UP: Duration = Duration::from_millis(50);

/// Measures everything that `options` names against the server at `addr`. Calls `tell` with each
/// outcome once all of its size are there.
pub(crate) fn measure(
    addr: SocketAddr,
    options: &Options,
    tell: &mut dyn FnMut(&Outcome),
) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for &size in &options.sizes {
        let of_size = measure_size(addr, options, size)?;
        of_size.iter().for_each(&mut *tell);
        outcomes.extend(of_size);
    }
    Ok(outcomes)
}

fn measure_size(addr: SocketAddr, options: &Options, size: u32) -> Result<Vec<Outcome>, Failure> {
    let mut runs = Vec::new();
    for setup in options.setups_of(size) {
        runs.push(Run::open(Session::open(addr, &setup)?)?);
    }
    for run in &mut runs {
        run.session.bandwidth(WARM_UP.min(options.duration))?;
    }
    for slice in slices(options.duration * 2 / 3) {
        runs.iter_mut().try_for_each(|run| run.bandwidth(slice))?;
    }
    for slice in slices(options.duration / 3) {
        runs.iter_mut().try_for_each(|run| run.session.latency(slice, &mut run.latencies))?;
    }
    let tcp = runs.iter().find(|run| run.session.setup().op == Op::Tcp).map(Run::octets_per_s);
    let outcomes = runs.iter().map(|run| run.outcome(tcp)).collect();
    runs.into_iter().for_each(|run| run.session.close());
    Ok(outcomes)
}

/// Cuts `time` into equal slices.
fn slices(time: Duration) -> impl Iterator<Item = Duration> {
    let slice = (time / SLICES).clamp(MIN_SLICE, SLICE);
    let count = time.as_nanos().div_ceil(slice.as_nanos()).max(1);
    (0..count).map(move |_| slice)
}

struct Run {
    session: Session,
    slices: Vec<Slice>,
    latencies: Latencies,
}

impl Run {
    fn open(session: Session) -> Result<Self, Failure> {
        Ok(Run { session, slices: Vec::new(), latencies: Latencies::new()? })
    }

    fn bandwidth(&mut self, time: Duration) -> Result<(), Failure> {
        self.slices.push(self.session.bandwidth(time)?);
        Ok(())
    }

    fn octets_per_s(&self) -> f64 {
        median(self.slices.iter().map(|slice| slice.octets as f64 / slice.seconds))
    }

    fn outcome(&self, tcp: Option<f64>) -> Outcome {
        let setup = self.session.setup();
        let bytes_per_s = self.octets_per_s();
        let octets: u64 = self.slices.iter().map(|slice| slice.octets).sum();
        let cpu_s: f64 = self.slices.iter().map(|slice| slice.cpu_s).sum();
        let agreed = self.session.agreed();
        Outcome {
            op: setup.op,
            size: setup.size,
            qps: setup.qps,
            depth: setup.depth,
            crc: agreed.is_some_and(|agreed| agreed.crc),
            markers: agreed.is_some_and(|agreed| agreed.markers_sent || agreed.markers_received),
            wait: setup.wait,
            bytes_per_s: bytes_per_s.round(),
            msgs_per_s: (bytes_per_s / f64::from(setup.size)).round(),
            lat_us: self.latencies.micros(),
            cpu_s_per_gb: if octets == 0 { 0.0 } else { cpu_s / (octets as f64 / 1e9) },
            times_tcp: tcp.filter(|tcp| *tcp > 0.0).map(|tcp| bytes_per_s / tcp),
        }
    }
}

/// Returns the middle value; of an even number the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// Times of single messages.
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Result<Self, Failure> {
        // Nanoseconds, up to a minute.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        histogram.map(Latencies).map_err(|error| Failure::failed(error.to_string()))
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn micros(&self) -> Micros {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        Micros { p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 100.0].into_iter()), 3.0);
        assert_eq!(median([4.0, 1.0, 2.0, 100.0].into_iter()), 3.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn slices_fill_the_time() {
        for millis in [1, 100, 1000, 20_000] {
            let time = Duration::from_millis(millis);
            let total: Duration = slices(time).sum();
            assert!(total >= time && total < time + SLICE, "{millis}");
            assert!(slices(time).all(|slice| slice <= SLICE));
        }
    }
}
