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
mod requests;

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
    /// Ends of the pieces of a message.
    cuts: Vec<usize>,
    list: Vec<TcpStream>,
    turns: Turns,
}

impl Lane {
    fn new(spec: &Spec, list: Vec<TcpStream>) -> Outcome<Self> {
        for stream in &list {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(spec.wait == Wait::Poll || spec.connections > 1)?;
        }
        Ok(Lane { spec: spec.clone(), cuts: spec.cuts(), list, turns: Turns::default() })
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

/// Returns the pieces of the end of a message, whose pieces end at `cuts`.
fn split<'a>(cuts: &'a [usize], tail: &'a [u8]) -> impl Iterator<Item = IoSlice<'a>> {
    let begin = cuts.last().map_or(0, |len| len.saturating_sub(tail.len()));
    let mut at = begin;
    cuts.iter().filter(move |&&end| end > begin).map(move |&end| {
        let piece = &tail[at - begin..end - begin];
        at = end;
        IoSlice::new(piece)
    })
}

/// Returns the octets that the messages of all sizes have with their headers.
fn len_of(spec: &Spec) -> usize {
    spec.sizes().iter().map(|size| spec.header + size).sum()
}

/// Returns the result of a thread.
fn joined<T>(result: std::thread::Result<Outcome<T>>) -> Outcome<T> {
    result.map_err(|_| "a thread has panicked")?
}

impl Streams for Lane {
    type Failure = Fault;

    /// Sends by one call the ends of messages, out of the pieces that messages lie in.
    fn send(&mut self, at: usize, messages: &[IoSlice<'_>]) -> Outcome<usize> {
        let result = match (messages, &self.cuts[..]) {
            ([one], [_]) => (&self.list[at]).write(one),
            _ => {
                let pieces: Vec<_> = messages.iter().flat_map(|message| split(&self.cuts, message)).collect();
                (&self.list[at]).write_vectored(&pieces)
            }
        };
        self.moved(result)
    }

    fn receive(&mut self, at: usize, octets: &mut [u8]) -> Outcome<usize> {
        let result = (&self.list[at]).read(octets);
        self.moved(result)
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
