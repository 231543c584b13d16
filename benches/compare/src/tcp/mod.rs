//! Plain TCP streams, against which everything is measured. The same code measures streams in
//! DDPMODE and by SDP; only `mode` tells them apart.
//!
//! The loops are those of `rddp_load::stream`. A last octet of [`ANSWER`] says that the message
//! ends a window: its sender sends no more until the message is answered.

mod active;
mod copies;
mod mode;
mod octets;
mod passive;

pub(crate) use self::active::Active;
pub(crate) use self::copies::Copies;
pub(crate) use self::mode::prepare;
pub(crate) use self::passive::Passive;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rddp_load::stream::{Ready, Streams};

use crate::spec::{Spec, Wait};
use crate::turns::Turns;
use crate::{Fault, Outcome};

/// Last octet of a message that ends a window.
const ANSWER: u8 = 0xc3;

/// One end of the connections that were opened for one [`Spec`].
struct Lane {
    spec: Spec,
    list: Vec<TcpStream>,
    turns: Turns,
}

impl Lane {
    fn new(spec: &Spec, list: Vec<TcpStream>) -> Outcome<Self> {
        for stream in &list {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(spec.wait == Wait::Poll || spec.connections > 1)?;
        }
        Ok(Lane { spec: spec.clone(), list, turns: Turns::default() })
    }

    /// Handles the result of a read or write: a socket that is not ready moves no octets, and an
    /// end of the stream is a failure.
    fn moved(&mut self, result: io::Result<usize>) -> Outcome<usize> {
        match result {
            Ok(0) => Err("the other end has closed a stream".into()),
            Ok(count) => {
                self.turns.reset();
                Ok(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the result of a thread.
fn joined<T>(result: std::thread::Result<Outcome<T>>) -> Outcome<T> {
    result.map_err(|_| "a thread has panicked")?
}

impl Streams for Lane {
    type Failure = Fault;

    fn send(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Outcome<usize> {
        let result = match pieces {
            [one] => (&self.list[at]).write(one),
            many => (&self.list[at]).write_vectored(many),
        };
        self.moved(result)
    }

    fn receive(&mut self, at: usize, octets: &mut [u8]) -> Outcome<usize> {
        let result = (&self.list[at]).read(octets);
        self.moved(result)
    }

    /// Sends a message by one call, out of as many pieces as the spec says.
    fn send_from(&mut self, at: usize, message: &[u8], position: usize) -> Outcome<usize> {
        if self.spec.pieces == 1 {
            return self.send(at, &[IoSlice::new(&message[position..])]);
        }
        let piece = message.len().div_ceil(self.spec.pieces);
        let (first, rest) = message.split_at(position.next_multiple_of(piece).min(message.len()));
        let pieces = std::iter::once(&first[position..]).chain(rest.chunks(piece));
        let pieces: Vec<_> = pieces.filter(|piece| !piece.is_empty()).map(IoSlice::new).collect();
        self.send(at, &pieces)
    }

    fn idle(&mut self, ready: Ready, waits: impl Fn(usize) -> bool) -> Outcome<()> {
        if self.spec.wait == Wait::Poll {
            return self.turns.spin();
        }
        let flags = match ready {
            Ready::Receive => PollFlags::POLLIN,
            Ready::Send => PollFlags::POLLOUT,
        };
        let active = self.list[..self.spec.active()].iter().enumerate().filter(|(at, _)| waits(*at));
        let mut fds: Vec<_> = active.map(|(_, stream)| PollFd::new(stream.as_fd(), flags)).collect();
        nix::poll::poll(&mut fds, PollTimeout::from(100u8))?;
        self.turns.check()
    }
}
