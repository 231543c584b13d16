//! Plain UDP sockets to compare with: one call for each message, and the same ways to wait.
//!
//! An end that sleeps with one socket, and has one message at a time, uses it blocking; otherwise
//! it sleeps in poll(2).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_load::FILL;

use super::{Link, exchange_ports, local, lost};
use crate::perf::control::{Phase, Setup};
use crate::perf::op::Wait;
use crate::perf::spin::{Spin, Wish};

/// Messages that are taken from a socket in a turn.
const TURN: u64 = 64;

/// Time after which a call that blocks returns, so that the other end's number is looked for.
const BLOCKED: Duration = Duration::from_millis(20);

pub(super) struct Sockets {
    setup: Setup,
    /// Each with the other end's address.
    list: Vec<(UdpSocket, SocketAddr)>,
    beside: TcpStream,
    /// The number that arrives, as far as it has come.
    number: Vec<u8>,
    spin: Spin,
    phase: Phase,
    message: Vec<u8>,
    room: Vec<u8>,
    arrived: u64,
    /// A socket had no room for a message.
    blocked: bool,
}

impl Sockets {
    pub(super) fn new(setup: &Setup, beside: TcpStream, wish: Wish) -> Result<Self, Failure> {
        let addr = local(&beside)?;
        let list: Result<Vec<_>, _> = (0..setup.qps).map(|_| UdpSocket::bind(addr)).collect();
        let list = list.map_err(|error| Failure::failed(format!("a UDP socket: {error}")))?;
        let ports: Result<Vec<u16>, _> = list.iter().map(|own| Ok(own.local_addr()?.port())).collect();
        let (beside, peers) = exchange_ports(beside, &ports.map_err(|error: io::Error| lost(&error))?)?;
        beside.set_nonblocking(true).map_err(|error| lost(&error))?;
        for socket in &list {
            let set_up = socket.set_nonblocking(true);
            set_up.and_then(|()| socket.set_read_timeout(Some(BLOCKED))).map_err(|error| lost(&error))?;
        }
        Ok(Sockets {
            setup: setup.clone(),
            list: list.into_iter().zip(peers).collect(),
            beside,
            number: Vec::new(),
            spin: Spin::new(wish),
            phase: Phase::Bandwidth,
            message: vec![FILL; setup.size()],
            room: vec![FILL; setup.size()],
            arrived: 0,
            blocked: false,
        })
    }

    fn blocks(&self) -> bool {
        self.setup.wait == Wait::Event && self.phase == Phase::Latency
    }

    /// Sends one message; returns whether it has gone.
    fn send_at(&mut self, at: usize) -> Result<bool, Failure> {
        let (socket, to) = &self.list[at];
        match socket.send_to(&self.message, to) {
            Ok(_) => Ok(true),
            Err(error) if is_moment(&error) => Ok(false),
            Err(error) => Err(lost(&error)),
        }
    }
}

impl Link for Sockets {
    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        // One that does not change its ways is slower, and nothing else.
        let _ = self.list[0].0.set_nonblocking(!self.blocks());
    }

    fn send(&mut self, most: u64) -> Result<u64, Failure> {
        let mut sent = 0;
        self.blocked = false;
        for at in 0..self.list.len() {
            for _ in 0..self.setup.batch() {
                if sent == most {
                    return Ok(sent);
                }
                if !self.send_at(at)? {
                    self.blocked = true;
                    break;
                }
                sent += 1;
            }
        }
        if sent > 0 {
            self.spin.reset();
        }
        Ok(sent)
    }

    fn send_one(&mut self) -> Result<(), Failure> {
        self.send_at(0).map(drop)
    }

    fn poll(&mut self) -> Result<bool, Failure> {
        let before = self.arrived;
        let (sockets, most) = match self.phase {
            Phase::Latency => (1, 1),
            Phase::Bandwidth => (self.list.len(), TURN),
        };
        for (socket, _) in &self.list[..sockets] {
            for _ in 0..most {
                match socket.recv(&mut self.room) {
                    Ok(_) => self.arrived += 1,
                    Err(error) if is_moment(&error) => break,
                    Err(error) => return Err(lost(&error)),
                }
            }
        }
        if self.arrived != before {
            self.spin.reset();
        }
        Ok(self.arrived != before)
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn has_sent(&self) -> bool {
        true
    }

    fn tell(&mut self, number: u64) -> Result<(), Failure> {
        // There is always room: the other end answers each number with one.
        (&self.beside).write_all(&number.to_be_bytes()).map_err(|error| lost(&error))
    }

    fn told(&mut self) -> Result<Option<u64>, Failure> {
        let mut octets = [0; 8];
        match (&self.beside).read(&mut octets[self.number.len()..]) {
            Ok(0) => return Err(Failure::peer("the other end closed a data connection")),
            Ok(count) => {
                let have = self.number.len();
                self.number.extend_from_slice(&octets[have..have + count]);
            }
            Err(error) if is_moment(&error) => {}
            Err(error) => return Err(lost(&error)),
        }
        let Ok(number) = <[u8; 8]>::try_from(&self.number[..]) else { return Ok(None) };
        self.number.clear();
        self.spin.reset();
        Ok(Some(u64::from_be_bytes(number)))
    }

    fn idle(&mut self, most: Duration) -> Result<(), Failure> {
        signals::check()?;
        let spins = match self.setup.wait {
            Wait::Poll => self.spin.turn()?,
            Wait::Event => self.spin.check().map(|()| false)?,
        };
        if spins || self.blocks() {
            return Ok(());
        }
        let room = if self.blocked { PollFlags::POLLOUT } else { PollFlags::empty() };
        let sockets =
            self.list.iter().map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLIN | room));
        let beside = PollFd::new(self.beside.as_fd(), PollFlags::POLLIN);
        let mut fds: Vec<_> = sockets.chain([beside]).collect();
        // A poll that fails has not slept.
        let _ = nix::poll::poll(&mut fds, PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO));
        Ok(())
    }

    fn spin(&mut self) -> &mut Spin {
        &mut self.spin
    }

    fn close(&self) {}
}

/// Returns whether an error only says that there is nothing now, or tells of an earlier datagram.
fn is_moment(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionRefused | Interrupted | TimedOut | WouldBlock)
}
