//! `rddp portmap`: the iWARP port mapper, as its server and as a client that asks one.

mod server;

use std::net::IpAddr;

use clap::{ArgGroup, Args};
use rddp_command::addr;
use rddp_command::failure::{EXIT_CODES, Failure};
use rddp_command::out::{self, say};
use rddp_iwarp::port_mapper::PORT;
use rddp_rnic::{MapperAnswer, ask_port_mapper_at};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  rddp portmap 5001=49200 7174=7174       these services are at these ports, others are refused
  rddp portmap --all                      every service is at the port that it is known by
  rddp portmap --ask 192.0.2.1 5001       where is 192.0.2.1's service 5001?

A driver of a hardware RNIC asks the port mapper of a host before it connects there, and waits long
where none answers. Only one port mapper can serve a host: iwpmd, if it runs, has the port already.";

/// Tell RNICs at which TCP ports the iWARP services of this host are, or ask another host
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
#[command(arg_required_else_help = true)]
#[command(group = ArgGroup::new("what").required(true).args(["mappings", "all", "ask"]))]
pub(crate) struct PortmapArgs {
    /// The ports of services, and where they are; other services are refused
    #[arg(value_name = "SERVICE=PORT", value_parser = parse_mapping)]
    mappings: Vec<Mapping>,

    /// Answer that every service is at the port that it is known by
    #[arg(long)]
    all: bool,

    /// Ask the port mapper of a host where a service is
    #[arg(short, long, num_args = 2, value_names = ["HOST", "SERVICE"])]
    ask: Option<Vec<String>>,

    /// Answer on this address of the host only
    #[arg(short, long, value_name = "ADDR", conflicts_with = "ask")]
    bind: Option<IpAddr>,

    /// The UDP port of the port mapper
    #[arg(short, long, default_value_t = PORT)]
    port: u16,

    /// Print the answer (of the server: where it listens, and each question) as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A service's port, and the port that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    service: u16,
    port: u16,
}

fn parse_mapping(text: &str) -> Result<Mapping, String> {
    let parsed = text.split_once('=').and_then(|(service, port)| {
        Some(Mapping { service: service.parse().ok()?, port: port.parse().ok()? })
    });
    parsed.ok_or_else(|| "not two ports, such as 5001=49200".to_owned())
}

pub(crate) fn run(args: &PortmapArgs) -> Result<(), Failure> {
    match args.ask.as_deref() {
        Some([host, service]) => ask(args, host, service),
        _ => server::run(args),
    }
}

/// The answer of a port mapper, as JSON.
#[derive(Serialize)]
struct Asked {
    service: String,
    /// The port mapper has answered.
    answered: bool,
    /// The port to connect to, if there is one.
    port: Option<u16>,
}

fn ask(args: &PortmapArgs, host: &str, service: &str) -> Result<(), Failure> {
    let service = service.parse().map_err(|_| Failure::usage(format!("{service:?} is no port")))?;
    let mut service_addr = addr::resolve(host, service)?[0];
    service_addr.set_port(service);
    let answer = ask_port_mapper_at(service_addr, args.port)
        .map_err(|error| Failure::failed(format!("asking {host}: {error}")))?;
    let port = match answer {
        MapperAnswer::Mapped(port) => Some(port),
        MapperAnswer::Unknown => None,
        MapperAnswer::None => Some(service),
    };
    if args.json {
        let answered = answer != MapperAnswer::None;
        out::json(&Asked { service: service_addr.to_string(), answered, port });
    } else if let MapperAnswer::Mapped(port) = answer {
        say!("{service_addr} is at port {port}");
    }
    match answer {
        MapperAnswer::Mapped(_) => Ok(()),
        MapperAnswer::Unknown => Err(Failure::refused(format!("{host} knows of no service {service}"))),
        MapperAnswer::None => Err(Failure::peer(format!("no port mapper answers at {host}")).remedy(
            "connect to the port as it is named: a host without RNICs of its own needs no port mapper",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_two_ports() {
        assert_eq!(parse_mapping("5001=49200"), Ok(Mapping { service: 5001, port: 49200 }));
        for text in ["5001", "5001=", "=1", "a=b", "1=70000", "1=2=3"] {
            assert!(parse_mapping(text).is_err(), "{text}");
        }
    }
}
