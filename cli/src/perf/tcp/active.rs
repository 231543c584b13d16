//! The end that measures.

use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{LAST, MORE, Sockets, lost};
use crate::failure::Failure;
use crate::perf::control::{Channel, Request, Setup};
use crate::perf::measure::Latencies;
use crate::perf::spin::Wish;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub(in crate::perf) struct Active {
    sockets: Sockets,
    message: Vec<u8>,
    /// How much of the present message each socket has taken.
    positions: Vec<usize>,
    answer: Vec<u8>,
}

impl Active {
    /// Connects all.
    pub(in crate::perf) fn connect(setup: &Setup, addr: SocketAddr, session: u64) -> Result<Self, Failure> {
        let mut list = Vec::new();
        for lane in 0..setup.qps {
            let mut channel = Channel::new(connect(addr, setup.mss).map_err(|error| lost(&error))?)?;
            channel.send(&Request::Data { session, lane })?;
            list.push(channel.into_stream());
        }
        let sockets = Sockets::new(setup, list, Wish::Own)?;
        let (message, answer) = (vec![MORE; setup.size()], vec![0; setup.size()]);
        Ok(Active { positions: vec![0; sockets.list.len()], sockets, message, answer })
    }

    /// Writes for `time`, then the last message; how many messages the other end will have.
    pub(in crate::perf) fn bandwidth(&mut self, time: Duration) -> Result<u64, Failure> {
        let end = Instant::now() + time;
        let (size, batch) = (self.message.len(), self.sockets.setup.batch());
        let mut octets = 0;
        while Instant::now() < end {
            let mut progress = 0;
            for at in 0..self.positions.len() {
                let mut pieces = vec![IoSlice::new(&self.message); batch];
                pieces[0] = IoSlice::new(&self.message[self.positions[at]..]);
                let count = self.sockets.send_vectored(at, &pieces)?;
                self.positions[at] = (self.positions[at] + count) % size;
                progress += count;
            }
            if progress == 0 {
                self.sockets.idle(PollFlags::POLLOUT, |_| true)?;
            }
            octets += progress as u64;
        }
        octets += self.finish()?;
        Ok(octets / size as u64)
    }

    /// The rest of each message that was begun, and the last one.
    fn finish(&mut self) -> Result<u64, Failure> {
        let mut octets = 0;
        for at in 0..self.sockets.list.len() {
            let position = std::mem::take(&mut self.positions[at]);
            if position > 0 {
                self.send_all(at, position)?;
                octets += (self.message.len() - position) as u64;
            }
        }
        self.mark(LAST);
        for at in 0..self.sockets.list.len() {
            self.send_all(at, 0)?;
            octets += self.message.len() as u64;
        }
        self.mark(MORE);
        Ok(octets)
    }

    fn mark(&mut self, mark: u8) {
        if let Some(last) = self.message.last_mut() {
            *last = mark;
        }
    }

    /// All of the message from `position` on.
    fn send_all(&mut self, at: usize, mut position: usize) -> Result<(), Failure> {
        let mut deadline = None;
        while position < self.message.len() {
            match self.sockets.send(at, &self.message[position..])? {
                0 => self.wait(PollFlags::POLLOUT, &mut deadline)?,
                count => (position, deadline) = (position + count, None),
            }
        }
        Ok(())
    }

    /// One message at a time there and back, for `time`.
    pub(in crate::perf) fn latency(
        &mut self,
        time: Duration,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        let mut begun = Instant::now();
        let end = begun + time;
        while begun < end {
            self.send_all(0, 0)?;
            self.receive_answer()?;
            let now = Instant::now();
            latencies.record((now - begun) / 2);
            begun = now;
        }
        self.finish().map(drop)
    }

    fn receive_answer(&mut self) -> Result<(), Failure> {
        let (mut have, mut deadline) = (0, None);
        while have < self.answer.len() {
            match self.sockets.receive(0, &mut self.answer[have..])? {
                0 => self.wait(PollFlags::POLLIN, &mut deadline)?,
                count => (have, deadline) = (have + count, None),
            }
        }
        Ok(())
    }

    fn wait(&mut self, flags: PollFlags, deadline: &mut Option<Instant>) -> Result<(), Failure> {
        self.sockets.idle(flags, |_| true)?;
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        if Instant::now() <= deadline {
            return Ok(());
        }
        Err(Failure::peer("the server has stopped answering on the data connections"))
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
