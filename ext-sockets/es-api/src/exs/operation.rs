//! One accepted call, from posting to its event (EX1).

use std::ffi::c_int;
use std::sync::Arc;

use rddp_real::Errno;

use super::event::{RECEIVE_TIMEOUT, SEND_TIMEOUT, number};
use super::queue::Queue;
use super::work::{Outcome, Work};
use crate::as_program::{Loan, Pieces};
use crate::sys::exs::Event;
use crate::threads::Direction;

/// An operation whose event's place is reserved.
pub(super) struct Operation {
    work: Work,
    pub(super) queue: Arc<Queue>,
    pub(super) ahandle: usize,
    moved: usize,
    /// Set by a cancel. The operation ends when it is its turn: EX2 holds for cancelled ones, too.
    pub(super) is_cancelled: bool,
    /// Set if the rest is sent by calls, though it is long enough to be lent.
    pub(super) copies: bool,
}

/// The ways in which an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// The work has ended, with success or an error.
    Of(Result<(), Errno>),
    /// Time was over.
    TooLate,
}

impl Operation {
    pub(super) fn new(work: Work, queue: Arc<Queue>, ahandle: usize) -> Self {
        Operation { work, queue, ahandle, moved: 0, is_cancelled: false, copies: false }
    }

    pub(super) fn direction(&self) -> Direction {
        self.work.direction()
    }

    pub(super) fn is_connect(&self) -> bool {
        matches!(self.work, Work::Connect { .. })
    }

    /// Returns whether nothing of the work has been done.
    pub(super) fn is_untouched(&self) -> bool {
        self.moved == 0
    }

    /// Returns how many octets might be lent to the peer; 0: none.
    pub(super) fn octets_to_lend(&self) -> usize {
        if self.copies { 0 } else { self.octets_left() }
    }

    /// Returns how many octets are left of a send from memory alone.
    pub(super) fn octets_left(&self) -> usize {
        self.work.to_send().map_or(0, Pieces::left)
    }

    pub(super) fn to_lend(&self) -> Option<Loan> {
        self.work.to_send()?.to_lend()
    }

    /// Counts off octets of a send that the socket has accepted; returns how many there were.
    pub(super) fn pass(&mut self, octets: usize) -> usize {
        let count = self.work.pass(octets);
        self.moved += count;
        count
    }

    /// Returns for how many octets that come next a receive has room.
    pub(super) fn room(&self) -> usize {
        if self.is_cancelled { 0 } else { self.work.room() }
    }

    pub(super) fn attempt(&mut self, fd: c_int) -> Outcome {
        if self.is_cancelled {
            return Outcome::Ended(Err(Errno(libc::ECANCELED)));
        }
        self.work.attempt(fd, &mut self.moved)
    }

    /// Gives the event to the queue (EX9).
    pub(super) fn end(self, fd: c_int, end: Conclusion) {
        let (kind, result) = match (end, self.direction()) {
            (Conclusion::Of(result), _) => (self.work.event_type() as c_int, result),
            (Conclusion::TooLate, Direction::Send) => (SEND_TIMEOUT, Err(Errno::TIMED_OUT)),
            (Conclusion::TooLate, Direction::Receive) => (RECEIVE_TIMEOUT, Err(Errno::TIMED_OUT)),
        };
        let errno = number(result);
        let mut event =
            Event { kind, errno, socket: fd, ahandle: self.ahandle, length: self.moved, ..Event::default() };
        self.work.describe(&mut event);
        let queue = self.queue;
        // The memory is the program's again before the event says so (EX3, EX7).
        drop(self.work);
        queue.complete(event);
    }
}
