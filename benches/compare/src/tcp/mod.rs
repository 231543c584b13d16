//! Plain TCP streams: what everything is measured against. The same program in DDPMODE, which knows of it only in `mode`.
//!
//! The last octet of a message says whether it ends the slice, and whether it ends a window; nothing follows the last message
//! of either.

mod active;
mod mode;
mod octets;
mod passive;

pub(crate) use self::active::Active;
pub(crate) use self::mode::prepare;
pub(crate) use self::passive::Passive;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::Outcome;
use crate::spec::{Spec, Wait};
use crate::turns::Turns;

const MORE: u8 = 0x5a;
const LAST: u8 = 0xa5;
const ANSWER: u8 = 0xc3;

/// One end of all connections of a lane.
struct Streams {
    spec: Spec,
    list: Vec<TcpStream>,
    turns: Turns,
}

impl Streams {
    fn new(spec: &Spec, list: Vec<TcpStream>) -> Outcome<Self> {
        for stream in &list {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(spec.wait == Wait::Poll || spec.connections > 1)?;
        }
        Ok(Streams { spec: spec.clone(), list, turns: Turns::default() })
    }

    /// Octets that one call received; 0 when there are none yet.
    fn receive(&mut self, at: usize, octets: &mut [u8]) -> Outcome<usize> {
        let result = (&self.list[at]).read(octets);
        self.moved(result)
    }

    fn send(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Outcome<usize> {
        let result = match pieces {
            [one] => (&self.list[at]).write(one),
            many => (&self.list[at]).write_vectored(many),
        };
        self.moved(result)
    }

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

    /// What one call takes of a message from `position` on, out of as many pieces as the spec says.
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

    /// All of a message from `position` on.
    fn send_all(&mut self, at: usize, message: &[u8], mut position: usize) -> Outcome<()> {
        while position < message.len() {
            match self.send_from(at, message, position)? {
                0 => self.idle(PollFlags::POLLOUT)?,
                count => position += count,
            }
        }
        Ok(())
    }

    /// Nothing to do before a stream is ready for `flags`.
    fn idle(&mut self, flags: PollFlags) -> Outcome<()> {
        if self.spec.wait == Wait::Poll {
            return self.turns.spin();
        }
        let active = &self.list[..self.spec.active()];
        let mut fds: Vec<_> = active.iter().map(|stream| PollFd::new(stream.as_fd(), flags)).collect();
        nix::poll::poll(&mut fds, PollTimeout::from(100u8))?;
        self.turns.look()
    }
}
