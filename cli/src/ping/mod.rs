//! `rddp ping`: rping's protocol, so that the other end may be `rping` on a real RDMA device.
//!
//! In a round the client advertises its text, the server Reads it and answers, the client
//! advertises the memory for a copy, and the server Writes the text there and answers; the client
//! then compares. Each Send has 16 octets.

mod advert;
mod client;
mod server;

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::units::parse_seconds;

use crate::device::{Devices, EITHER};

/// The port of rping.
const PORT: u16 = 7174;

/// The size of rping's smallest buffer: its text, a number of ten digits, and NUL.
const MIN_SIZE: usize = 26;

/// The size of rping's largest buffer.
const MAX_SIZE: usize = 65_535;

const EXAMPLES: &str = "\
Examples:
  rddp ping --server                 wait for clients: rddp ping, or rping -c -a THIS_HOST
  rddp ping 192.0.2.1                a round each second until Ctrl-C; the server may be rping -s
  rddp ping 192.0.2.1 --count 1000   1000 rounds back to back
  rddp ping fd77::2 --size 4096      an rping server needs -S 4096 for that
  rddp ping 192.0.2.1 --device rxe0  by an RDMA device of this host; auto: by the one that leads there

A round is four messages of 16 octets, one RDMA Read and one RDMA Write: it takes as long as three round trips.";

/// Ping by RDMA: checks a path, both ends and every octet with rping's protocol
#[derive(Debug, Args)]
#[command(mut_arg("devices", |device| device.help(EITHER)))]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct PingArgs {
    /// The server's name or address
    #[arg(required_unless_present = "server", conflicts_with = "server", value_name = "HOST[:PORT]")]
    host: Option<String>,

    /// Be the server, and answer the pings of others
    #[arg(short, long)]
    server: bool,

    /// Server: listen on this address of the host only
    #[arg(short, long, value_name = "ADDR", requires = "server")]
    bind: Option<IpAddr>,

    /// The port; rping's by default
    #[arg(short, long, default_value_t = PORT)]
    port: u16,

    /// Rounds to make; of a server, clients to serve. 0: until Ctrl-C
    #[arg(short = 'C', short_alias = 'c', long, default_value_t = 0)]
    count: u64,

    /// Octets that are sent each way in a round
    #[arg(short = 'S', long, default_value_t = 64, value_parser = parse_size)]
    size: usize,

    /// Seconds between rounds [default: 1; with --count: 0]
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    interval: Option<Duration>,

    #[command(flatten)]
    device: Devices,

    /// Print the result (of a server: where it listens) as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl PingArgs {
    fn interval(&self) -> Duration {
        self.interval.unwrap_or(Duration::from_secs(u64::from(self.count == 0)))
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = rddp_command::units::parse_octets(text)?;
    usize::try_from(size)
        .ok()
        .filter(|size| (MIN_SIZE..=MAX_SIZE).contains(size))
        .ok_or_else(|| format!("rping's protocol has {MIN_SIZE} to {MAX_SIZE} octets"))
}

pub(crate) fn run(args: &PingArgs) -> Result<(), Failure> {
    match &args.host {
        Some(host) => client::run(host, args),
        None => server::run(args),
    }
}
