//! `rddp demo`: two processes do every RDMA operation over loopback, compare every octet, and
//! measure.
//!
//! | file | what |
//! |---|---|
//! | `script` | the messages between the two processes, and the octets that they use |
//! | `active`, `checks` | the process that makes the requests: its connection, and each check |
//! | `passive` | the process that answers, and checks its own memory |
//! | `report` | the tables |

mod active;
mod checks;
pub(crate) mod passive;
mod report;
mod script;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use rddp_command::device::{By, Choice, own_address};
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::units::parse_seconds;
use serde::{Deserialize, Serialize};

use self::checks::Checks;
use crate::child::Child;
use crate::device::Device;
use crate::perf::{self, Direction, Op, Options, Outcome, Setup, Wait};

const EXAMPLES: &str = "\
What it does:
  1. starts a second process, connects over loopback, and does every kind of Send, RDMA Writes and Reads of up to
     1 MiB, atomics, and invalidation; each process compares every octet of its memory with what it should be
  2. does the same with MPA's markers both ways
  3. measures Writes and Sends beside a plain TCP socket, in short slices by turns

Examples:
  rddp demo
  rddp demo --device rxe0      by an RDMA device of this host, as far as it has the operations
  rddp demo --json | jq .passed";

/// Do RDMA between two processes over loopback, compare every octet, and measure it
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows more")]
pub(crate) struct DemoArgs {
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Seconds of measuring, for each of three operations and two sizes; 0: only check
    #[arg(long, value_name = "SECONDS", default_value = "1.2", value_parser = parse_seconds)]
    duration: Duration,

    #[command(flatten)]
    device: Device,
}

/// The addresses on which the passive process listens: for the checks, and for the measurement.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    demo: SocketAddr,
    perf: SocketAddr,
}

/// Sizes of messages: one to measure latency with, one to measure bandwidth with.
const SMALL: u32 = 64;
const LARGE: u32 = 1 << 20;

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    // Both ends are here, where no device of the host is on the way.
    let rnic = args.device.choice().towards(|| Ok(Vec::new()))?.open()?;
    // The other process would fail by that, too, and this one then once more.
    own_address(&rnic, false)?;
    let device = Choice::Named(rnic.device().to_owned());
    let (mut child, listening): (Child, Listening) =
        Child::start(&["demo-passive", "--device", rnic.device()])?;
    report::begin(args.json, &By::of(&rnic), listening.demo);
    // Devices of the host have no markers.
    let markers: &[bool] = if By::of(&rnic).is_host() { &[false] } else { &[false, true] };
    let columns = markers.iter().map(|markers| checks::run(&rnic, listening.demo, *markers));
    let columns: Vec<_> = columns.collect::<Result<_, _>>()?;
    report::checks(args.json, &columns);
    let measured = if args.duration.is_zero() || !columns.iter().all(Checks::passed) {
        Ok(Vec::new())
    } else {
        report::measuring(args.json);
        measure(listening.perf, args.duration, device)
    };
    // The passive process reports by its exit code whether its own memory was as it should be.
    let untouched = child.end().is_some_and(|status| status.success());
    let outcomes = measured?;
    report::end(args.json, &columns, untouched, &outcomes);
    verdict(&columns, untouched)
}

fn verdict(columns: &[Checks], untouched: bool) -> Result<(), Failure> {
    if !columns.iter().all(Checks::passed) {
        return Err(Failure::mismatch("some checks failed; the table shows which"));
    }
    if !untouched {
        return Err(Failure::mismatch(
            "the passive process failed, or found a write to memory that it had revoked",
        ));
    }
    Ok(())
}

fn measure(addr: SocketAddr, duration: Duration, device: Choice) -> Result<Vec<Outcome>, Failure> {
    // An end that spins keeps the other from running unless each has a processor.
    let wait = if perf::has_two_idle() { Wait::Poll } else { Wait::Event };
    let options = Options {
        ops: vec![Op::Tcp, Op::Write, Op::Send],
        sizes: vec![SMALL, LARGE],
        duration,
        iterations: None,
        interval: None,
        direction: Direction::Forward,
        device,
        setup: Setup { wait, ..Setup::default() },
    };
    perf::measure(addr, &options, &mut |_| {})
}
