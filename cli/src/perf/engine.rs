//! The data connections of one end of a session: active or passive, over iWARP or another wire.
//!
//! The client connects and the server accepts; the client is the active end, which sends or posts,
//! unless the session is in reverse.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rddp_command::endpoint::Agreed;
use rddp_command::failure::Failure;
use rddp_load::Extent;
use rddp_rnic::{ConnectRequest, Rnic};

use super::control::{Buffers, Phase, Placed, Sent, Setup};
use super::measure::Latencies;
use super::op::Op;
use super::spin::Wish;
use super::{messages, rdma, tcp};

pub(super) enum Engine {
    Rdma(Rdma),
    Tcp(Tcp),
    Messages(Messages),
}

/// The data connections of an RDMA session.
pub(super) enum Rdma {
    Active(Box<rdma::Active>),
    Passive(Box<rdma::Passive>),
}

/// The data connections of a session over plain TCP.
pub(super) enum Tcp {
    Active(Box<tcp::Active>),
    Passive(Box<tcp::Passive>),
}

/// The data connections of a session over other wires.
pub(super) enum Messages {
    Active(messages::Active),
    Passive(messages::Passive),
}

/// A slice to run.
pub(super) struct Slice<'a> {
    pub(super) phase: Phase,
    pub(super) extent: Extent,
    /// Time at which a server gives up.
    pub(super) deadline: Option<Instant>,
    /// The times of single messages; a server keeps none.
    pub(super) latencies: Option<&'a mut Latencies>,
}

/// Returns whether the end on whose `wish` this is measured is the active one.
fn is_active(setup: &Setup, wish: Wish) -> bool {
    setup.reverse == (wish == Wish::Clients)
}

impl Rdma {
    /// Makes idle connections of a session by RDMA.
    pub(super) fn new(setup: &Setup, rnic: &Rnic, wish: Wish) -> Result<Self, Failure> {
        Ok(match is_active(setup, wish) {
            true => Rdma::Active(Box::new(rdma::Active::new(setup, rnic, wish)?)),
            false => Rdma::Passive(Box::new(rdma::Passive::new(setup, rnic, wish)?)),
        })
    }

    /// Has slices end, and credits come, by Sends.
    pub(super) fn use_sends(&mut self) {
        match self {
            Rdma::Active(active) => active.use_sends(),
            Rdma::Passive(passive) => passive.use_sends(),
        }
    }

    /// Returns the memory that the other end may use.
    pub(super) fn buffers(&self) -> Vec<Buffers> {
        match self {
            Rdma::Active(active) => active.buffers(),
            Rdma::Passive(passive) => passive.buffers(),
        }
    }

    pub(super) fn connect(&self, addr: SocketAddr, session: u64) -> Result<Agreed, Failure> {
        match self {
            Rdma::Active(active) => active.connect(addr, session),
            Rdma::Passive(passive) => passive.connect(addr, session),
        }
    }

    pub(super) fn accept(&self, number: u16, request: ConnectRequest) -> Result<(), Failure> {
        match self {
            Rdma::Active(active) => active.accept(number, request),
            Rdma::Passive(passive) => passive.accept(number, request),
        }
    }

    /// Takes the other end's memory.
    pub(super) fn aim(&mut self, theirs: &[Buffers]) -> Result<(), Failure> {
        match self {
            Rdma::Active(active) => active.aim(theirs),
            Rdma::Passive(passive) => passive.aim(theirs),
        }
    }
}

impl Engine {
    /// Prepares connections of a session that is not one of iWARP, over which nothing has been sent
    /// but who they are.
    pub(super) fn over(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        Ok(match (setup.op, is_active(setup, wish)) {
            (Op::Tcp, true) => Engine::Tcp(Tcp::Active(Box::new(tcp::Active::new(setup, list, wish)?))),
            (Op::Tcp, false) => Engine::Tcp(Tcp::Passive(Box::new(tcp::Passive::new(setup, list, wish)?))),
            (_, true) => Engine::Messages(Messages::Active(messages::Active::new(setup, list, wish)?)),
            (_, false) => Engine::Messages(Messages::Passive(messages::Passive::new(setup, list, wish)?)),
        })
    }

    /// Runs a slice; returns the messages of this end.
    pub(super) fn run(&mut self, slice: Slice<'_>) -> Result<Sent, Failure> {
        let arrived = |messages| Sent { messages, lost: 0 };
        let Slice { phase, extent, deadline, latencies } = slice;
        match self {
            Engine::Rdma(Rdma::Passive(passive)) => passive.serve(phase, deadline).map(|()| arrived(0)),
            Engine::Tcp(Tcp::Passive(passive)) => passive.serve(phase, deadline).map(|()| arrived(0)),
            Engine::Rdma(Rdma::Active(active)) => {
                deadline.into_iter().for_each(|deadline| active.end_by(deadline));
                match latencies {
                    None => active.bandwidth(extent).map(arrived),
                    Some(latencies) => active.latency(extent, latencies).map(|()| arrived(0)),
                }
            }
            Engine::Messages(Messages::Passive(passive)) => {
                passive.serve(phase, deadline).map(|()| arrived(0))
            }
            Engine::Messages(Messages::Active(active)) => {
                deadline.into_iter().for_each(|deadline| active.end_by(deadline));
                match latencies {
                    None => active.bandwidth(extent),
                    Some(latencies) => active.latency(extent, latencies),
                }
            }
            Engine::Tcp(Tcp::Active(active)) => {
                deadline.into_iter().for_each(|deadline| active.end_by(deadline));
                match latencies {
                    None => active.bandwidth(extent).map(arrived),
                    Some(latencies) => active.latency(extent, latencies).map(|()| arrived(0)),
                }
            }
        }
    }

    /// Returns what the kernel has placed at this end.
    pub(super) fn placed(&self) -> Placed {
        match self {
            Engine::Rdma(Rdma::Active(active)) => active.placed(),
            Engine::Rdma(Rdma::Passive(passive)) => passive.placed(),
            Engine::Tcp(_) | Engine::Messages(_) => Placed::default(),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Engine::Rdma(Rdma::Active(active)) => active.close(),
            Engine::Rdma(Rdma::Passive(passive)) => passive.close(),
            Engine::Messages(Messages::Active(active)) => active.close(),
            Engine::Messages(Messages::Passive(passive)) => passive.close(),
            Engine::Tcp(_) => {}
        }
    }
}
