//! Another host: its port mapper, and whether an iWARP listener answers.

use std::net::SocketAddr;

use rddp_command::addr;
use rddp_command::endpoint::{Agreed, Endpoint};
use rddp_command::failure::{Failure, readable};
use rddp_rnic::{ConnectError, ConnectOptions, MapperAnswer, Rnic, ask_port_mapper};

use super::finding::{Finding, Level, Topic};

/// The port that is tried when none is named: rping's, on which a listener is most likely.
const PORT: u16 = 7174;

/// The beginning of a finding that there is a listener.
const IWARP: &str = "iWARP";

pub(super) fn inspect(host: &str) -> Result<Vec<Finding>, Failure> {
    let addrs = addr::resolve(host, PORT)?;
    let found: Result<Vec<_>, Failure> = addrs.into_iter().map(look_at).collect();
    let mut findings: Vec<Finding> = found?.into_iter().flatten().collect();
    // A name may have several addresses: any of them will do.
    if findings.iter().any(|finding| finding.value.starts_with(IWARP)) {
        for finding in findings.iter_mut().filter(|finding| finding.level == Level::Bad) {
            finding.level = Level::Warn;
        }
    }
    Ok(findings)
}

fn look_at(addr: SocketAddr) -> Result<[Finding; 2], Failure> {
    let mapper = match ask_port_mapper(addr) {
        Ok(MapperAnswer::Mapped(port)) => format!("port {} is mapped to {port}", addr.port()),
        Ok(MapperAnswer::Unknown) => format!("knows of no service at port {}", addr.port()),
        Ok(MapperAnswer::None) => "no answer: ports are as they are named".to_owned(),
        Err(error) => format!("cannot be asked: {error}"),
    };
    let rnic = Rnic::open()?;
    let end = Endpoint::new(&rnic)?;
    let listener = match end.qp.connect(addr, &ConnectOptions::default()) {
        Ok(connected) => {
            end.close();
            Finding::ok(Topic::Peer, addr.to_string(), format!("{IWARP}: {}", Agreed::of(&rnic, &connected)))
        }
        // A rejection also shows that a listener is there: its program does not know this client.
        Err(ConnectError::Rejected { private_data }) => {
            Finding::ok(Topic::Peer, addr.to_string(), rejected(&private_data))
        }
        Err(error) => {
            let failure = Failure::connecting(addr, &error, "an iWARP listener");
            let advice = failure.how().unwrap_or("check the address and the port").to_owned();
            Finding::ok(Topic::Peer, addr.to_string(), failure.to_string()).but(Level::Bad, advice)
        }
    };
    Ok([Finding::ok(Topic::Peer, "port mapper", mapper), listener])
}

/// Returns the finding about a listener whose program rejected the connection; it may say why.
fn rejected(private_data: &[u8]) -> String {
    match readable(private_data) {
        Some(reason) => format!("{IWARP}; its program rejected the connection: {reason}"),
        None => {
            format!("{IWARP}; its program rejected the connection, since it expects other private data")
        }
    }
}
