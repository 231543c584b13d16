//! `rddp perf`: bandwidth, latency and processor time of RDMA operations, and of queue pairs over
//! plain TCP and UDP, beside plain sockets.
//!
//! A client measures against a server. For each operation and size there is a session: a control
//! connection (TCP, JSON) and data connections. Sessions of one size are open at the same time and
//! take turns in short slices, so that a disturbance of the machine affects all of them alike.

mod control;
mod cpu;
mod engine;
mod local;
mod measure;
mod messages;
mod op;
mod options;
mod rdma;
mod report;
mod server;
mod session;
mod spin;
mod tcp;

use clap::{Args, Subcommand};
use rddp_command::failure::{EXIT_CODES, Failure};

pub(crate) use self::control::Setup;
pub(crate) use self::cpu::{has_two_idle, seconds as processor_seconds};
pub(crate) use self::measure::{Latencies, measure};
pub(crate) use self::op::{Op, Wait};
pub(crate) use self::options::{Direction, Options};
use self::options::{LocalArgs, MeasureArgs, ServerArgs};
pub(crate) use self::report::{Micros, Outcome};
pub(crate) use self::server::Server;

/// Port of the server for control and for plain TCP; RDMA uses the port after it.
const PORT: u16 = 7175;

const EXAMPLES: &str = "\
Examples:
  rddp perf local                                  both ends here: tcp, write, send and read, four sizes
  rddp perf local --op tcp,write --size 64..1M     two operations, all powers of two
  rddp perf local --pin                            each end on a processor of its own, for figures that repeat
  rddp perf server                                 on one host, and on another:
  rddp perf client 192.0.2.1 --op tcp,write,read --size 1M --duration 10
  rddp perf client 192.0.2.1 --device rxe0         by an RDMA device of this host; --device there, too
  rddp perf client 192.0.2.1 -s 64K -t 10 -i 1     a line each second and operation
  rddp perf client 192.0.2.1 --op write -n 10000   so many messages, in place of a time
  rddp perf client 192.0.2.1 -R                    the server sends; -b: both do, at the same time
  rddp perf local --op fetch-add,cmp-swap          atomic operations
  rddp perf local --op tcp,qp-raw,qp-record        queue pairs over plain TCP, beside its socket; -6: over IPv6
  rddp perf local --op udp,qp-udp -s 64,1400       the same of UDP, and how many datagrams are lost
  rddp perf local --json | jq '.results[] | [.op, .size, .bytes_per_s]'

What the numbers are:
  bandwidth  median over short slices; the octets count when the other end has all of them
             of udp and qp-udp those that have arrived count, and rows tell of the others
  latency    send, tcp, udp, qp-: half of a round trip of messages of that size, one at a time
             write: the same; each end looks at its memory (--wait poll), or the Write is followed by a Send (event)
             read: from posting one Read until its data is there, which is a whole round trip
             fetch-add, cmp-swap: as read. Not measured with -R and -b
  messages a call
             of short ones both post, or write, many at a time for the bandwidth: as many for tcp as for RDMA;
             udp sends one by each call
  waited     the share of the time for which an end was ready to run and had no processor, of the end where it is
             more; shown above 10 %, where it has spoiled the figures
  x tcp      the bandwidth beside that of plain TCP sockets with the same size, in the same run
  cpu s/GB   processor time of both processes while 10^9 octets were moved; with --wait poll both hardly sleep

Short options are those of perftest and iperf3 where these agree: -s size, -p port, -n, -b. Where they do not:
  -t, -i, -R, -P, -M, -J are iperf3's: seconds (perftest's -t is --depth here, its -D works), interval, reverse,
                connections (perftest's -q is quiet here), segment size, JSON; its -l is -s
  -n, -b        are perftest's: messages (iperf3: octets), both directions (iperf3: --bidir, which works, too)
  -e, -c, -a    are not there: --wait event, rddp perf client, --size 2..8M";

const SERVER: &str = "\
Examples:
  rddp perf server                       for clients on any host
  rddp perf server --bind 10.0.0.1       on one network only; a firewall has to let both ports through
  rddp perf server --port 0 --json       any two ports; says which
  rddp perf server --device soft,rxe0    by software and by a RoCE device at once

A client may make it use processor time and up to 4 GiB of memory: not for networks that are not trusted.";

/// Measure RDMA operations beside a plain TCP socket
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

#[derive(Debug, Subcommand)]
enum PerfCommand {
    /// Wait for clients
    #[command(after_long_help = format!("{SERVER}\n\n{EXIT_CODES}"))]
    Server(ServerArgs),
    /// Measure against a server
    #[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
    Client {
        /// Host and port of rddp perf server
        #[arg(value_name = "HOST[:PORT]")]
        host: String,
        /// The server's port, where HOST names none
        #[arg(short, long, default_value_t = PORT)]
        port: u16,
        #[command(flatten)]
        measure: MeasureArgs,
    },
    /// Measure with both ends here, as two processes
    #[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
    Local(LocalArgs),
}

impl PerfArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            PerfCommand::Server(args) => args.json,
            PerfCommand::Client { measure, .. } | PerfCommand::Local(LocalArgs { measure, .. }) => {
                measure.json
            }
        }
    }
}

pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    match &args.command {
        PerfCommand::Server(args) => server::run(args),
        PerfCommand::Client { host, port, measure } => {
            let mut options = measure.options()?;
            // A name that is wrong here is no affair of the server's.
            options.device.open()?;
            let addr = rddp_command::addr::first(&rddp_command::addr::resolve(host, *port)?, session::find)?;
            options.device = options.device.towards(|| Ok(vec![addr]))?;
            report::print(measure.json, &options, |tell| measure::measure(addr, &options, tell))
        }
        PerfCommand::Local(args) => {
            let options = args.measure.options()?;
            report::print(args.measure.json, &options, |tell| local::run(args, &options, tell))
        }
    }
}
