//! The active end, which measures.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rddp_command::failure::Failure;
use rddp_load::Extent;
use rddp_load::stream::{MORE, Sender};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Sockets, lost};
use crate::perf::control::{Channel, Request, Setup};
use crate::perf::measure::Latencies;
use crate::perf::spin::Wish;

pub(in crate::perf) struct Active {
    sockets: Sockets,
    load: Sender,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Active {
    pub(in crate::perf) fn new(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        let sockets = Sockets::new(setup, list, wish)?;
        let (message, answer) = (vec![MORE; setup.size()], vec![0; setup.size()]);
        let load = Sender::new(sockets.list.len(), setup.batch());
        Ok(Active { sockets, load, message, answer })
    }

    /// Limits the slice that begins, where a client has asked for it.
    pub(in crate::perf) fn end_by(&mut self, deadline: Instant) {
        self.sockets.spin.serve_until(deadline);
    }

    /// Writes within the limits, then the last message; returns the number of messages that the
    /// other end gets.
    pub(in crate::perf) fn bandwidth(&mut self, extent: Extent) -> Result<u64, Failure> {
        self.sockets.spin.reset();
        self.load.bandwidth(&mut self.sockets, &mut self.message, extent)
    }

    /// Measures one message at a time there and back, within the limits.
    pub(in crate::perf) fn latency(
        &mut self,
        extent: Extent,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        self.sockets.spin.reset();
        self.load.latency(&mut self.sockets, &mut self.message, &mut self.answer, extent, |time| {
            latencies.record(time / 2);
        })
    }
}

/// Connects all connections.
pub(in crate::perf) fn connect(
    setup: &Setup,
    addr: SocketAddr,
    session: u64,
) -> Result<Vec<TcpStream>, Failure> {
    let lanes = 0..setup.streams();
    let list = lanes.map(|lane| {
        let mut channel = Channel::new(connect_one(addr, setup.mss).map_err(|error| lost(&error))?)?;
        channel.send(&Request::Data { session, lane })?;
        Ok(channel.into_stream())
    });
    list.collect()
}

fn connect_one(addr: SocketAddr, mss: Option<u16>) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(mss) = mss {
        socket.set_tcp_mss(u32::from(mss))?;
    }
    socket.connect_timeout(&SockAddr::from(addr), Duration::from_secs(5))?;
    Ok(socket.into())
}
