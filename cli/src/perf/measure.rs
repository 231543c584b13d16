//! Measurements: sessions of one size run slices in turn.

use std::net::SocketAddr;
use std::ops::Add;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use rddp_command::device::By;
use rddp_command::failure::Failure;
use rddp_command::units::micros;
use rddp_load::Extent;

use super::control::Setup;
use super::op::{Level, Op};
use super::options::{Direction, Options};
use super::report::{Interval, Micros, Outcome, Told};
use super::session::{Measured, Session};
use crate::congestion;

/// Length of the longest slice, and the share of the time that a slice takes.
const SLICE: Duration = Duration::from_millis(200);
const SLICES: u32 = 6;

/// Length of the shortest slice.
const MIN_SLICE: Duration = Duration::from_millis(20);

/// Time before the measurement that is not counted: TCP finds its window, and memory gets its
/// pages.
const WARM_UP: Duration = Duration::from_millis(50);

/// Measures everything that `options` names against the server at `addr`. Tells that it is at work
/// between slices, each interval, if there are to be any, and each outcome once all of its size are
/// there.
pub(crate) fn measure(
    addr: SocketAddr,
    options: &Options,
    tell: &mut dyn FnMut(&Told),
) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for &size in &options.sizes {
        for outcome in measure_size(addr, options, size, tell)? {
            tell(&Told::Outcome(Box::new(outcome.clone())));
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

fn measure_size(
    addr: SocketAddr,
    options: &Options,
    size: u32,
    tell: &mut dyn FnMut(&Told),
) -> Result<Vec<Outcome>, Failure> {
    let mut runs = Vec::new();
    for setup in options.setups_of(size) {
        runs.push(Run::open(addr, &setup, options)?);
    }
    let size = Told::AtWork { size };
    tell(&size);
    for run in &mut runs {
        let warm_up = Extent { time: WARM_UP.min(options.duration), messages: options.messages() };
        run.all(|session, _| session.bandwidth(warm_up))?;
    }
    for slice in options.bandwidth_slices() {
        if runs.iter().all(|run| run.is_done(options)) {
            break;
        }
        for run in runs.iter_mut().filter(|run| !run.is_done(options)) {
            run.bandwidth(slice, options)?;
            if options.interval.is_some() {
                tell(&Told::Interval(run.interval()));
            }
        }
        tell(&size);
    }
    if options.direction == Direction::Forward {
        for run in &mut runs {
            run.latency(options)?;
            tell(&size);
        }
    }
    let tcp = runs.iter().find(|run| run.setup().op == Op::Tcp).map(|run| run.octets_per_s(options));
    let outcomes = runs.iter().map(|run| run.outcome(options, tcp)).collect();
    runs.into_iter().flat_map(|run| run.sessions).for_each(|(session, _)| session.close());
    Ok(outcomes)
}

impl Options {
    /// Returns the time that all takes, without startups and warm-ups; `None` where messages are
    /// counted in its place.
    pub(super) fn total_time(&self) -> Option<Duration> {
        let each = if self.iterations.is_none() { Some(self.duration) } else { None };
        each.map(|time| time * (self.sizes.len() * self.ops.len()) as u32)
    }

    /// Returns the limit of messages that a slice has, if there are any left.
    fn messages(&self) -> u64 {
        self.iterations.unwrap_or(u64::MAX)
    }

    /// Returns the lengths of the slices of bandwidth: those that fill the time, or as many as it
    /// takes to send the messages.
    fn bandwidth_slices(&self) -> Box<dyn Iterator<Item = Duration>> {
        let shares = if self.direction == Direction::Forward { 3 } else { 2 };
        let time = self.duration * 2 / shares;
        let slice = self.interval.unwrap_or_else(|| slice_of(time));
        match self.iterations {
            None => Box::new(slices(time, slice.min(time))),
            Some(_) => Box::new(std::iter::repeat(slice)),
        }
    }
}

/// Returns the length of the slices into which `time` is cut.
fn slice_of(time: Duration) -> Duration {
    (time / SLICES).clamp(MIN_SLICE, SLICE)
}

/// Cuts `time` into equal slices.
fn slices(time: Duration, slice: Duration) -> impl Iterator<Item = Duration> {
    let count = time.as_nanos().div_ceil(slice.as_nanos()).max(1);
    (0..count).map(move |_| slice)
}

/// The sessions of one operation and size: one, or one for each direction.
struct Run {
    /// Each with the number of messages that were measured.
    sessions: Vec<(Session, u64)>,
    slices: Vec<Measured>,
    latencies: Latencies,
    /// Datagrams that were lost one at a time.
    lost: u64,
}

impl Run {
    fn open(addr: SocketAddr, setup: &Setup, options: &Options) -> Result<Self, Failure> {
        let directions: &[bool] = match options.direction {
            Direction::Forward => &[false],
            Direction::Reverse => &[true],
            Direction::Both => &[false, true],
        };
        let open = |&reverse| Session::open(addr, &Setup { reverse, ..setup.clone() }, &options.device);
        let sessions = directions.iter().map(open).map(|opened| opened.map(|session| (session, 0)));
        let sessions = sessions.collect::<Result<_, _>>()?;
        Ok(Run { sessions, slices: Vec::new(), latencies: Latencies::new()?, lost: 0 })
    }

    fn setup(&self) -> &Setup {
        self.sessions[0].0.setup()
    }

    fn is_done(&self, options: &Options) -> bool {
        self.sessions.iter().all(|(_, sent)| *sent >= options.messages())
    }

    /// Runs a slice of all sessions at the same time; `run` gets the messages that were measured so
    /// far, too.
    fn all(
        &mut self,
        run: impl Fn(&mut Session, u64) -> Result<Measured, Failure> + Sync,
    ) -> Result<Vec<Measured>, Failure> {
        if let [(session, sent)] = &mut self.sessions[..] {
            return Ok(vec![run(session, *sent)?]);
        }
        thread::scope(|scope| {
            let run = &run;
            let start = |(session, sent): &'_ mut (Session, u64)| run(session, *sent);
            let started: Vec<_> =
                self.sessions.iter_mut().map(|session| scope.spawn(move || start(session))).collect();
            let ended = started.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Failure::failed("a thread that measured has panicked")))
            });
            // All threads have ended by then, whichever failed.
            ended.collect::<Vec<_>>().into_iter().collect()
        })
    }

    fn bandwidth(&mut self, time: Duration, options: &Options) -> Result<(), Failure> {
        let measured = self.all(|session, sent| match options.messages().saturating_sub(sent) {
            // The other direction is slower.
            0 => Ok(Measured::default()),
            messages => session.bandwidth(Extent { time, messages }),
        })?;
        for ((_, sent), measured) in self.sessions.iter_mut().zip(&measured) {
            *sent += measured.messages;
        }
        self.slices.extend(measured.into_iter().reduce(Measured::beside));
        Ok(())
    }

    fn latency(&mut self, options: &Options) -> Result<(), Failure> {
        let (session, _) = &mut self.sessions[0];
        if let Some(iterations) = options.iterations {
            while self.latencies.0.len() < iterations {
                let extent = Extent { time: SLICE, messages: iterations - self.latencies.0.len() };
                self.lost += session.latency(extent, &mut self.latencies)?;
            }
            return Ok(());
        }
        let time = options.duration / 3;
        for slice in slices(time, slice_of(time)) {
            self.lost += session.latency(slice.into(), &mut self.latencies)?;
        }
        Ok(())
    }

    /// Returns the last slice.
    fn interval(&self) -> Interval {
        let (op, size) = (self.setup().op, self.setup().size);
        // The sum of the same numbers in the same order: an interval begins where the last ended.
        // That of no numbers would be -0.0.
        let end = |count: usize| self.slices[..count].iter().fold(0.0, |sum, slice| sum + slice.seconds);
        let count = self.slices.len();
        let (from_s, to_s) = (end(count.saturating_sub(1)), end(count));
        let Measured { messages, octets, seconds, .. } = self.slices.last().copied().unwrap_or_default();
        let bytes_per_s = (octets as f64 / seconds).round();
        Interval { op, size, from_s, to_s, messages, octets, bytes_per_s }
    }

    fn octets_per_s(&self, options: &Options) -> f64 {
        let rate = |slice: &Measured| slice.octets as f64 / slice.seconds;
        match options.iterations {
            None => median(self.slices.iter().map(rate)),
            // The last slice is cut short.
            Some(_) => self.slices.iter().copied().reduce(Measured::before).as_ref().map_or(0.0, rate),
        }
    }

    fn outcome(&self, options: &Options, tcp: Option<f64>) -> Outcome {
        let setup = self.setup();
        let bytes_per_s = self.octets_per_s(options);
        let all = self.slices.iter().copied().reduce(Measured::before).unwrap_or_default();
        let agreed = self.sessions[0].0.agreed();
        let placed = self.sessions.iter().map(|(session, _)| session.placed()).reduce(Add::add);
        let waited = self.sessions.iter().filter_map(|(session, _)| session.waited()).reduce(f64::max);
        let placed = placed.filter(|_| setup.placement != Level::User && setup.op.is_iwarp());
        let mpa = agreed.and_then(|agreed| agreed.mpa.as_ref());
        let by = agreed.map_or_else(|| By::without_rdma(setup.op.is_datagrams()), |agreed| agreed.by.clone());
        Outcome {
            op: setup.op,
            by,
            direction: options.direction,
            size: setup.size,
            qps: setup.qps,
            depth: setup.depth,
            crc: mpa.is_some_and(|mpa| mpa.crc),
            markers: mpa.is_some_and(|mpa| mpa.markers_sent || mpa.markers_received),
            mss: setup.mss,
            congestion: setup.congestion.clone().or_else(congestion::of_host),
            large_fpdus: setup.large_fpdus,
            stable: setup.stable,
            wait: setup.wait,
            batch: setup.messages_a_call(),
            messages: all.messages,
            lost: setup.op.is_datagrams().then_some(all.lost + self.lost),
            bytes_per_s: bytes_per_s.round(),
            msgs_per_s: (bytes_per_s / f64::from(setup.size)).round(),
            lat_us: self.latencies.micros(),
            cpu_s_per_gb: if all.octets == 0 { 0.0 } else { all.cpu_s / (all.octets as f64 / 1e9) },
            waited,
            placement: setup.placement,
            kernel_placed_bytes: placed.map(|placed| placed.octets),
            kernel_placed_behind_bytes: placed.map(|placed| placed.behind),
            kernel_unseen_bytes: placed.map(|placed| placed.unseen),
            kernel_unaligned_segments: placed.map(|placed| placed.unaligned),
            times_tcp: tcp.filter(|tcp| *tcp > 0.0).map(|tcp| bytes_per_s / tcp),
        }
    }
}

impl Measured {
    /// Adds a slice that was measured at the same time. Processor time is that of processes, so
    /// each slice has that of both.
    fn beside(self, other: Self) -> Self {
        Measured {
            messages: self.messages + other.messages,
            lost: self.lost + other.lost,
            octets: self.octets + other.octets,
            seconds: self.seconds.max(other.seconds),
            cpu_s: self.cpu_s.max(other.cpu_s),
        }
    }

    /// Adds a slice that came after this one.
    fn before(self, other: Self) -> Self {
        Measured {
            messages: self.messages + other.messages,
            lost: self.lost + other.lost,
            octets: self.octets + other.octets,
            seconds: self.seconds + other.seconds,
            cpu_s: self.cpu_s + other.cpu_s,
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

/// Times of single messages or requests.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Result<Self, Failure> {
        // Nanoseconds, up to a minute.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        histogram.map(Latencies).map_err(|error| Failure::failed(error.to_string()))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the quantiles; `None` if nothing was measured.
    pub(crate) fn micros(&self) -> Option<Micros> {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Micros { p50: at(0.5), p99: at(0.99), p999: at(0.999) })
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
            let total: Duration = slices(time, slice_of(time)).sum();
            assert!(total >= time && total < time + SLICE, "{millis}");
            assert!(slices(time, slice_of(time)).all(|slice| slice <= SLICE));
        }
    }
}
