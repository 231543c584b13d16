//! Another host: its port mapper, and whether an iWARP listener answers.

use rddp_rnic::{ConnectError, ConnectOptions, Rnic};

use super::finding::{Finding, Level, Topic};
use super::port_mapper::{self, Answer};
use crate::addr;
use crate::endpoint::{Agreed, Endpoint};
use crate::failure::Failure;

/// Where something listens most likely: rping's port.
const PORT: u16 = 7174;

pub(super) fn look(host: &str) -> Result<Vec<Finding>, Failure> {
    let addr = addr::resolve(host, PORT)?;
    let mapper = match port_mapper::ask(addr) {
        Ok(Answer::Mapped(port)) => format!("port {} is mapped to {port}", addr.port()),
        Ok(Answer::Unknown) => format!("knows of no service at port {}", addr.port()),
        Ok(Answer::None) => "no answer: ports are as they are named".to_owned(),
        Err(error) => format!("cannot be asked: {error}"),
    };
    let end = Endpoint::new(&Rnic::open()?)?;
    let listener = match end.qp.connect(addr, &ConnectOptions::default()) {
        Ok(connected) => {
            end.close();
            Finding::ok(
                Topic::Peer,
                addr.to_string(),
                format!("iWARP: {}", Agreed::from(&connected.negotiated)),
            )
        }
        // A program that does not know us says no: there is one.
        Err(ConnectError::Rejected { .. }) => Finding::ok(
            Topic::Peer,
            addr.to_string(),
            "iWARP; its program wants other private data, and said no",
        ),
        Err(error) => {
            let failure = Failure::connecting(addr, &error, "an iWARP listener");
            let advice = failure.how().unwrap_or("check the address and the port").to_owned();
            Finding::ok(Topic::Peer, addr.to_string(), failure.to_string()).but(Level::Bad, advice)
        }
    };
    Ok(vec![Finding::ok(Topic::Peer, "port mapper", mapper), listener])
}
