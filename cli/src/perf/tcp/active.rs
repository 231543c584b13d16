//! The active end, which measures.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rddp_load::stream::{MORE, Sender};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Sockets, lost};
use crate::failure::Failure;
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
    /// Connects all connections.
    pub(in crate::perf) fn connect(setup: &Setup, addr: SocketAddr, session: u64) -> Result<Self, Failure> {
        let mut list = Vec::new();
        for lane in 0..setup.qps {
            let mut channel = Channel::new(connect(addr, setup.mss).map_err(|error| lost(&error))?)?;
            channel.send(&Request::Data { session, lane })?;
            list.push(channel.into_stream());
        }
        let sockets = Sockets::new(setup, list, Wish::Own)?;
        let (message, answer) = (vec![MORE; setup.size()], vec![0; setup.size()]);
        let load = Sender::new(sockets.list.len(), setup.batch());
        Ok(Active { sockets, load, message, answer })
    }

    /// Writes for `time`, then the last message; returns the number of messages that the other end
    /// gets.
    pub(in crate::perf) fn bandwidth(&mut self, time: Duration) -> Result<u64, Failure> {
        self.sockets.spin.reset();
        self.load.bandwidth(&mut self.sockets, &mut self.message, time)
    }

    /// Measures one message at a time there and back, for `time`.
    pub(in crate::perf) fn latency(
        &mut self,
        time: Duration,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        self.sockets.spin.reset();
        self.load.latency(&mut self.sockets, &mut self.message, &mut self.answer, time, |time| {
            latencies.record(time / 2);
        })
    }
}

fn connect(addr: SocketAddr, mss: Option<u16>) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(mss) = mss {
        socket.set_tcp_mss(u32::from(mss))?;
    }
    socket.connect_timeout(&SockAddr::from(addr), Duration::from_secs(5))?;
    Ok(socket.into())
}
