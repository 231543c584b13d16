//! `rddp gateway`: plain hosts reach programs behind RDMA devices, for the crate `rddp_gateway`.

mod places;
mod report;

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rddp_command::failure::{EXIT_CODES, Failure, MORE_FILES, is_out_of_files};
use rddp_command::places::Places;
use rddp_command::signals;
use rddp_command::units::parse_octets;
use rddp_gateway::{Options, Route};
use rddp_policy::Network;
use rddp_verbs_device::{Device, DeviceError, Listener};

use self::places::Place;
use self::report::Report;
use crate::stat::parse_interval;

const EXAMPLES: &str = "\
Examples:
  rddp gateway --listen mlx5_0/192.0.2.1:7174 --to plain1:7174     rping -c by mlx5_0, to rddp ping --server on plain1
  rddp gateway --listen 0.0.0.0:7471 --to mlx5_0/192.0.2.1:7471    plain hosts reach a server behind mlx5_0
  rddp gateway --listen [::]:7471 --to mlx5_0/192.0.2.1:7471 --allow 198.51.100.0/24 --json

One of the two is a device's: its name stands in front of the address. It runs best on the host that has the device,
beside the server. A connection of TCP is one queue pair; Sends go both ways, and Writes, Reads and atomics from the
plain host, with the keys that the device's host has given out, which checks them. What the device's host begins on
plain memory is not possible. There is no authentication: see docs/gateway.md for what goes through, and what does not.

A Send of the device's host completes when the gateway has it, and not when the plain host has.";

/// Let plain hosts reach programs behind an RDMA device, and these reach plain hosts
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(crate) struct GatewayArgs {
    /// Listen here, by TCP or by a device; with the --to behind it, repeatable
    #[arg(long, required = true, value_name = "[DEV/]ADDR:PORT", value_parser = places::parse_listen)]
    listen: Vec<Place<SocketAddr>>,

    /// The host behind the gateway, by a device or by TCP
    #[arg(long, required = true, value_name = "[DEV/]HOST:PORT", value_parser = places::parse_to)]
    to: Vec<Place<String>>,

    /// Peers that may come, as an address or a network (192.0.2.0/24); repeatable [default: all]
    #[arg(long, value_name = "NET", value_parser = parse_network)]
    allow: Vec<Network>,

    /// Octets of the longest Send, of either side
    #[arg(long, default_value = "64K", value_name = "OCTETS", value_parser = parse_message)]
    max_message: usize,

    /// Connections at a time; half of them (rounded up) from one address, or one IPv6 network
    #[arg(long, default_value = "256", value_name = "COUNT", value_parser = parse_pairs)]
    max_pairs: NonZeroUsize,

    /// Print the counters of connections that move something, each time after so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_interval)]
    interval: Option<Duration>,

    /// Print the addresses, and each connection with its counters, as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Octets of the longest Send that may be asked for.
const MOST_OCTETS: usize = 16 << 20;

fn parse_message(text: &str) -> Result<usize, String> {
    let octets = usize::try_from(parse_octets(text)?).ok();
    let octets = octets.filter(|octets| (1..=MOST_OCTETS).contains(octets));
    octets.ok_or_else(|| "a Send has from 1 octet to 16 MiB".to_owned())
}

fn parse_pairs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "a number of connections, at least 1".to_owned())
}

fn parse_network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|_| "not an address, or a network such as 192.0.2.0/24".to_owned())
}

impl GatewayArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if self.listen.len() != self.to.len() {
            let (listen, to) = (self.listen.len(), self.to.len());
            return Err(Failure::usage(format!("{listen} times --listen and {to} times --to"))
                .remedy("each --listen has its --to behind it"));
        }
        let pairs = self.listen.iter().zip(&self.to);
        let routes = pairs.map(|(from, to)| route(from, to)).collect::<Result<Vec<_>, _>>()?;
        let options =
            Options { max_message: self.max_message, interval: self.interval, ..Options::default() };
        let report = Report::new(self.json);
        for route in &routes {
            report.listening(route);
        }
        report.begins(self.max_pairs.get(), &options);
        let places = Arc::new(Places::new(self.max_pairs.get(), None));
        let admit = |peer: Option<SocketAddr>| {
            let peer = peer.map(|peer| peer.ip());
            let is_allowed = self.allow.is_empty()
                || peer.is_some_and(|peer| self.allow.iter().any(|network| network.holds(peer)));
            if !is_allowed {
                return Err("it is not among those of --allow".to_owned());
            }
            places.take(peer).ok_or_else(|| "there are too many connections (--max-pairs)".to_owned())
        };
        rddp_gateway::run(&routes, &options, admit, |event| report.tell(event), signals::stopped).map_err(
            |error| {
                let failure = Failure::failed(error.cause());
                match error.remedy() {
                    Some(remedy) => failure.remedy(remedy),
                    None => failure,
                }
            },
        )
    }
}

/// Opens the listener of one way through the gateway.
fn route(from: &Place<SocketAddr>, to: &Place<String>) -> Result<Route, Failure> {
    match (&from.device, &to.device) {
        (None, Some(name)) => {
            let device = Device::named(name).map_err(|error| device_failure(&error))?;
            let listener = listen(from.address)?;
            Ok(Route::FromPlain { listener, device, to: to.address.clone() })
        }
        (Some(name), None) => {
            let device = Device::named(name);
            let listener = device.and_then(|device| Listener::open(&device, from.address, BACKLOG));
            let listener = listener.map_err(|error| device_failure(&error))?;
            Ok(Route::FromDevice { listener, to: to.address.clone() })
        }
        (None, None) => {
            Err(one_device(from, to, "none of the two is a device's: without one, no gateway is needed"))
        }
        (Some(_), Some(_)) => Err(one_device(from, to, "both are a device's, which need no gateway")),
    }
}

/// Requests of peers that a device keeps for its listener.
const BACKLOG: i32 = 128;

fn one_device(from: &Place<SocketAddr>, to: &Place<String>, what: &str) -> Failure {
    Failure::usage(format!("--listen {from} --to {to}: {what}"))
        .remedy("name the device in front of one of them: --to DEV/HOST:PORT (`rdma link` shows the names)")
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address);
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| {
        let failure = Failure::failed(format!("listening on {address}: {error}"));
        if is_out_of_files(&error) { failure.remedy(MORE_FILES) } else { failure.remedy(ANOTHER) }
    })
}

const ANOTHER: &str = "name an address of this host, and a port that nothing else has (and from 1024 on)";

/// Returns the failure of a device of this host.
fn device_failure(error: &DeviceError) -> Failure {
    let failure = Failure::of_device("", error);
    match error {
        DeviceError::NoDevice { there, .. } if there.is_empty() => {
            failure.remedy("run the gateway on the host that has the RDMA device")
        }
        DeviceError::NoDevice { .. } => {
            failure.remedy("name a device of this host in front of the address: DEV/HOST:PORT")
        }
        _ => failure,
    }
}
