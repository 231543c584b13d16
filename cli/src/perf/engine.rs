//! The data connections of one end of a session: active or passive, RDMA or plain TCP.
//!
//! The client connects and the server accepts; the client is the active end, which sends or posts,
//! unless the session is in reverse.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rddp_command::endpoint::Agreed;
use rddp_command::failure::Failure;
use rddp_load::Extent;
use rddp_rnic::ConnectRequest;

use super::control::{Buffers, Phase, Placed, Setup};
use super::measure::Latencies;
use super::op::Op;
use super::spin::Wish;
use super::{rdma, tcp};

pub(super) enum Engine {
    Rdma(Rdma),
    Tcp(Tcp),
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
    /// Makes idle connections; `None` if the session is one of plain TCP.
    pub(super) fn new(setup: &Setup, wish: Wish) -> Result<Option<Self>, Failure> {
        Ok(match (setup.op, is_active(setup, wish)) {
            (Op::Tcp, _) => None,
            (_, true) => Some(Rdma::Active(Box::new(rdma::Active::new(setup, wish)?))),
            (_, false) => Some(Rdma::Passive(Box::new(rdma::Passive::new(setup, wish)?))),
        })
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
    pub(super) fn tcp(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        Ok(Engine::Tcp(match is_active(setup, wish) {
            true => Tcp::Active(Box::new(tcp::Active::new(setup, list, wish)?)),
            false => Tcp::Passive(Box::new(tcp::Passive::new(setup, list, wish)?)),
        }))
    }

    /// Runs a slice; returns the number of messages of this end's bandwidth.
    pub(super) fn run(&mut self, slice: Slice<'_>) -> Result<u64, Failure> {
        let Slice { phase, extent, deadline, latencies } = slice;
        match self {
            Engine::Rdma(Rdma::Passive(passive)) => passive.serve(phase, deadline).map(|()| 0),
            Engine::Tcp(Tcp::Passive(passive)) => passive.serve(phase, deadline).map(|()| 0),
            Engine::Rdma(Rdma::Active(active)) => {
                deadline.into_iter().for_each(|deadline| active.end_by(deadline));
                match latencies {
                    None => active.bandwidth(extent),
                    Some(latencies) => active.latency(extent, latencies).map(|()| 0),
                }
            }
            Engine::Tcp(Tcp::Active(active)) => {
                deadline.into_iter().for_each(|deadline| active.end_by(deadline));
                match latencies {
                    None => active.bandwidth(extent),
                    Some(latencies) => active.latency(extent, latencies).map(|()| 0),
                }
            }
        }
    }

    /// Returns what the kernel has placed at this end.
    pub(super) fn placed(&self) -> Placed {
        match self {
            Engine::Rdma(Rdma::Active(active)) => active.placed(),
            Engine::Rdma(Rdma::Passive(passive)) => passive.placed(),
            Engine::Tcp(_) => Placed::default(),
        }
    }

    pub(super) fn close(&self) {
        match self {
            Engine::Rdma(Rdma::Active(active)) => active.close(),
            Engine::Rdma(Rdma::Passive(passive)) => passive.close(),
            Engine::Tcp(_) => {}
        }
    }
}
