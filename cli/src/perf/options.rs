//! Options of a measurement, from the command line.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rddp_command::device::Choice;
use rddp_command::failure::Failure;
use rddp_command::units::{parse_octets, parse_seconds};
use serde::Serialize;

use super::control::Setup;
use super::op::{ATOMIC, Level, Op, Wait};
use crate::device::{Device, Devices};

/// Heading of the options that few need, in the help.
const EXPERT: &str = "Expert options";

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Listen on this address of the host only
    #[arg(short, long, short_alias = 'B', value_name = "ADDR")]
    pub(super) bind: Option<IpAddr>,

    /// Port for control and plain TCP; RDMA uses the port after it (0: any two)
    #[arg(short, long, default_value_t = super::PORT)]
    pub(super) port: u16,

    /// Let clients have the kernel place what arrives here (root, and a build with the feature
    /// `kernel`): each loads a program into the kernel, and takes memory that is never swapped
    #[arg(long)]
    pub(super) placement: bool,

    #[command(flatten)]
    pub(super) device: Devices,

    /// Print the addresses it listens on as JSON
    #[arg(long, short_alias = 'J')]
    pub(super) json: bool,

    /// End when standard input ends
    #[arg(long, hide = true)]
    pub(super) until_stdin_ends: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Operations to measure; several take turns
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "tcp,write,send,read",
        value_name = "OP,..."
    )]
    op: Vec<Op>,

    /// Octets of a message: a list (64,4K,1M), powers of two (64..1M), or both
    /// [default: 64,4K,64K,1M; of atomic operations 8; with datagrams 64,1400]
    #[arg(short, long, short_alias = 'l', value_name = "SIZES", value_parser = parse_sizes)]
    size: Option<Sizes>,

    /// Connections at a time
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    qps: u16,

    /// Messages outstanding on each connection (of very long ones fewer: 64 MiB)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: u16,

    /// Seconds for each operation and size: two thirds for bandwidth, one for latency
    #[arg(short = 't', short_alias = 'D', long, default_value = "1.5", value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Duration,

    /// Messages for each operation and size, in place of a time: so many for bandwidth, on all
    /// connections together, and so many one at a time for latency
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,

    /// Print the bandwidth of every so many seconds; operations take turns that long
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_interval)]
    interval: Option<Duration>,

    /// The server sends or posts; bandwidth alone is measured
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,

    /// Both ends send or post at a time, each on connections of its own; bandwidth alone is
    /// measured
    #[arg(short = 'b', long, visible_alias = "bidirectional")]
    bidir: bool,

    /// MPA's CRC over every FPDU
    #[arg(long, default_value = "on", value_enum)]
    crc: Switch,

    /// MPA's markers, both ways
    #[arg(long, default_value = "off", value_enum, help_heading = EXPERT)]
    markers: Switch,

    /// Place Writes before their CRC was checked, as siw does
    #[arg(long, help_heading = EXPERT)]
    place_before_crc: bool,

    /// Limit TCP's segments to this many octets
    #[arg(short = 'M', long, help_heading = EXPERT, value_parser = clap::value_parser!(u16).range(88..=32767))]
    mss: Option<u16>,

    /// TCP's congestion control, at both ends and for plain TCP, too [default: the hosts']
    #[arg(long, value_name = "NAME", value_parser = crate::congestion::parse, help_heading = EXPERT)]
    congestion: Option<String>,

    /// FPDUs longer than TCP's segments, of up to 64,768 octets, for network cards to cut
    /// (against RFC 5044 §4.5, so only if the server agrees)
    #[arg(long, help_heading = EXPERT)]
    large_fpdus: bool,

    /// Send from memory that is registered as stable: Responses are not copied
    #[arg(long, help_heading = EXPERT)]
    stable: bool,

    /// Level at which payload is placed, at both ends (auto and kernel: root, and a build with the
    /// feature `kernel`)
    #[arg(long, default_value = "user", value_enum, help_heading = EXPERT)]
    placement: Level,

    /// Way in which both ends wait: spinning (which gives way when others want to run), or asleep
    /// in the kernel
    #[arg(long, default_value = "poll", value_enum)]
    wait: Wait,

    #[command(flatten)]
    pub(super) device: Device,

    /// Print the results as JSON, with --interval each interval as a line of its own
    #[arg(short = 'J', long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// Keep each end on a processor of its own: spinning ends that move swing between runs
    #[arg(long)]
    pub(super) pin: bool,

    /// Over IPv6
    #[arg(short = '6', long)]
    pub(super) ipv6: bool,

    #[command(flatten)]
    pub(super) measure: MeasureArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// The end that sends or posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// The client.
    Forward,
    /// The server.
    Reverse,
    /// The client and the server, each on connections of its own.
    Both,
}

/// Message sizes, in the order in which they are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sizes(Vec<u32>);

/// Everything that a measurement depends on.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ops: Vec<Op>,
    pub(crate) sizes: Vec<u32>,
    pub(crate) duration: Duration,
    /// Number of messages in place of the time.
    pub(crate) iterations: Option<u64>,
    /// Length of the intervals that are told.
    pub(crate) interval: Option<Duration>,
    pub(crate) direction: Direction,
    /// The device of this end.
    pub(crate) device: Choice,
    /// The settings of each session; its operation and size are replaced.
    pub(crate) setup: Setup,
}

impl MeasureArgs {
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let mut ops = Vec::new();
        for op in &self.op {
            if !ops.contains(op) {
                ops.push(*op);
            }
        }
        let setup = Setup {
            qps: self.qps,
            depth: self.depth,
            crc: self.crc == Switch::On,
            markers: self.markers == Switch::On,
            place_before_crc: self.place_before_crc,
            mss: self.mss,
            congestion: self.congestion.clone(),
            large_fpdus: self.large_fpdus,
            stable: self.stable,
            placement: self.placement,
            wait: self.wait,
            ..Setup::default()
        };
        let direction = match (self.reverse, self.bidir) {
            (true, _) => Direction::Reverse,
            (false, true) => Direction::Both,
            (false, false) => Direction::Forward,
        };
        let (sizes, duration) = (self.sizes(&ops), self.duration);
        let (iterations, interval) = (self.iterations, self.interval);
        let device = self.device.choice();
        let options = Options { ops, sizes, duration, iterations, interval, direction, device, setup };
        if self.duration.is_zero() {
            return Err(Failure::usage("--duration 0 measures nothing"));
        }
        if self.iterations.is_some_and(|count| count < u64::from(self.qps)) {
            return Err(Failure::usage("-n is less than the number of connections (--qps)"));
        }
        options.setups().try_for_each(|setup| setup.check().map_err(Failure::usage))?;
        Ok(options)
    }
}

impl MeasureArgs {
    fn sizes(&self, ops: &[Op]) -> Vec<u32> {
        match &self.size {
            Some(Sizes(sizes)) => sizes.clone(),
            None if ops.iter().any(|op| op.is_atomic()) => vec![ATOMIC],
            None if ops.iter().any(|op| op.is_datagrams()) => vec![64, 1400],
            None => vec![64, 4 << 10, 64 << 10, 1 << 20],
        }
    }
}

impl Options {
    /// Returns the settings of the sessions of one size.
    pub(super) fn setups_of(&self, size: u32) -> impl Iterator<Item = Setup> + '_ {
        self.ops.iter().map(move |&op| {
            // Without iWARP there are no FPDUs that could be placed.
            let placement = if op.is_iwarp() { self.setup.placement } else { Level::User };
            Setup { op, size, placement, ..self.setup.clone() }
        })
    }

    fn setups(&self) -> impl Iterator<Item = Setup> + '_ {
        self.sizes.iter().flat_map(|&size| self.setups_of(size))
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(60);
    parse_seconds(text)
        .ok()
        .filter(|time| range.contains(time))
        .ok_or_else(|| format!("{text:?} is no interval: write 0.01 to 60 (seconds)"))
}

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => sizes.push(parse_size(part)?),
            Some((from, to)) => {
                let (from, to) = (parse_size(from)?, parse_size(to)?);
                if from > to {
                    return Err(format!("{part}: the sizes go up"));
                }
                let doubled = std::iter::successors(Some(from), |size| size.checked_mul(2));
                sizes.extend(doubled.take_while(|&size| size <= to));
            }
        }
    }
    Ok(Sizes(sizes))
}

fn parse_size(text: &str) -> Result<u32, String> {
    let size = parse_octets(text)?;
    match u32::try_from(size) {
        Ok(size @ 1..) => Ok(size),
        _ => Err(format!("a message of {size} octets: 1 octet to 4G - 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_and_sweeps() {
        for (text, sizes) in [
            ("64", vec![64]),
            ("64,4K,64K", vec![64, 4096, 65_536]),
            ("64..512", vec![64, 128, 256, 512]),
            ("1..5", vec![1, 2, 4]),
            ("100..400,1M", vec![100, 200, 400, 1 << 20]),
            ("2G..4294967295", vec![1 << 31]),
        ] {
            assert_eq!(parse_sizes(text), Ok(Sizes(sizes)), "{text}");
        }
        for text in ["", "0", "64,", "512..64", "4G", "64..", "a..b"] {
            assert!(parse_sizes(text).is_err(), "{text}");
        }
    }
}
