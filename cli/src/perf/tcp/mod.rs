//! Plain TCP sockets to compare with: the same messages, the same batches, the same ways to wait.
//!
//! The loops are those of `rddp_load::stream`. An end that sleeps with one socket uses it blocking;
//! with several it sleeps in poll(2); an end that spins uses non-blocking sockets.

mod active;
mod passive;

pub(super) use self::active::{Active, connect};
pub(super) use self::passive::Passive;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_load::stream::{Ready, Streams};
use socket2::SockRef;

use super::control::Setup;
use super::op::Wait;
use super::spin::{CHECK_EVERY, Spin, Wish};

/// Limit on the octets that one call receives, of messages that are shorter.
const CHUNK: usize = 256 * 1024;

/// One end of all connections.
struct Sockets {
    setup: Setup,
    list: Vec<TcpStream>,
    spin: Spin,
    /// Number of turns of a passive end.
    turns: u64,
}

impl Sockets {
    fn new(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        for socket in &list {
            set_up(socket, setup).map_err(|error| lost(&error))?;
        }
        Ok(Sockets { setup: setup.clone(), list, spin: Spin::new(wish), turns: 0 })
    }
}

fn blocks(setup: &Setup) -> bool {
    setup.wait == Wait::Event && setup.qps == 1
}

fn set_up(socket: &TcpStream, setup: &Setup) -> io::Result<()> {
    if let Some(name) = &setup.congestion {
        SockRef::from(socket).set_tcp_congestion(name.as_bytes())?;
    }
    socket.set_nodelay(true)?;
    socket.set_nonblocking(!blocks(setup))?;
    // A blocking call returns after this time, as if there were nothing.
    let patience = Some(Duration::from_millis(100));
    socket.set_read_timeout(patience)?;
    socket.set_write_timeout(patience)
}

impl Streams for Sockets {
    type Failure = Failure;

    fn send(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Result<usize, Failure> {
        let result = match pieces {
            [one] => (&self.list[at]).write(one),
            many => (&self.list[at]).write_vectored(many),
        };
        self.moved(result)
    }

    fn receive(&mut self, at: usize, octets: &mut [u8]) -> Result<usize, Failure> {
        let result = (&self.list[at]).read(octets);
        self.moved(result)
    }

    fn idle(&mut self, ready: Ready, waits: impl Fn(usize) -> bool) -> Result<(), Failure> {
        signals::check()?;
        let spins = match self.setup.wait {
            Wait::Poll => self.spin.turn()?,
            Wait::Event => self.spin.check().map(|()| false)?,
        };
        if !spins && !blocks(&self.setup) {
            let flags = match ready {
                Ready::Receive => PollFlags::POLLIN,
                Ready::Send => PollFlags::POLLOUT,
            };
            let waiting = self.list.iter().enumerate().filter(|(at, _)| waits(*at));
            let mut fds: Vec<_> = waiting.map(|(_, socket)| PollFd::new(socket.as_fd(), flags)).collect();
            // A poll that fails has not slept.
            let _ = nix::poll::poll(&mut fds, PollTimeout::from(100u8));
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        self.turns += 1;
        if self.turns.is_multiple_of(CHECK_EVERY) { self.spin.check() } else { Ok(()) }
    }
}

impl Sockets {
    /// Returns the octets that a call moved; 0 if it would have blocked.
    fn moved(&mut self, result: io::Result<usize>) -> Result<usize, Failure> {
        use ErrorKind::{Interrupted, TimedOut, WouldBlock};
        match result {
            Ok(0) => Err(Failure::peer("the other end closed a data connection")),
            Ok(count) => {
                self.spin.reset();
                Ok(count)
            }
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => Ok(0),
            Err(error) => Err(lost(&error)),
        }
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure::peer(format!("a data connection: {error}"))
}
