//! Blocking calls that are made by two threads of the process, as the technical report TR37 has it
//! (`DDP_PROGRESS`): see [`threads`](rddp_es_api::threads).
//!
//! The thread tries the call, without blocking, again and again, while the caller sleeps. This
//! exists to be measured beside calls that make progress themselves.

use std::ffi::{c_int, c_short};
use std::io::{IoSlice, IoSliceMut};

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL};
use rddp_es_api::threads::{Direction, Tried, Waiting, run};
use rddp_real::{self as real, deadline};
use rddp_stream::{Errno, raise_sigpipe};

use super::{Framed, Protocol};

impl<P: Protocol> Framed<P> {
    /// Returns whether the threads make a call with these flags.
    #[inline]
    pub(super) fn is_for_threads(&self, flags: c_int) -> bool {
        self.held.is_threaded() && self.may_be_posted(flags)
    }

    /// Returns whether a call with these flags may wait, and not for all octets: a thread returns
    /// the first that come.
    #[cold]
    fn may_be_posted(&self, flags: c_int) -> bool {
        flags & (MSG_DONTWAIT | MSG_WAITALL) == 0 && !real::is_nonblocking(self.fd)
    }

    pub(super) fn recv_by_thread(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
        let timeout = self.state()?.receive_timeout();
        let attempt = || match self.call(|stream| stream.recv(pieces, flags | MSG_DONTWAIT)) {
            Err(Errno::WOULD_BLOCK) => self.later(libc::POLLIN),
            done => Tried::Done(done),
        };
        run(Direction::Receive, timeout, attempt).unwrap_or_else(Err)
    }

    pub(super) fn send_by_thread(&self, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
        let timeout = self.state()?.send_timeout();
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut list = pieces.to_vec();
        let mut left = &mut list[..];
        let mut done = 0;
        let attempt = || loop {
            match self.call(|stream| stream.send(left, flags | MSG_DONTWAIT | MSG_NOSIGNAL)) {
                Ok(count) => {
                    done += count;
                    IoSlice::advance_slices(&mut left, count);
                    if done == all {
                        return Tried::Done(Ok(all));
                    }
                }
                Err(Errno::WOULD_BLOCK) => return self.later(libc::POLLOUT),
                Err(error) => return Tried::Done(Err(error)),
            }
        };
        match run(Direction::Send, timeout, attempt).unwrap_or_else(Err) {
            Err(error) if done == 0 => {
                if error == Errno::BROKEN_PIPE && flags & MSG_NOSIGNAL == 0 {
                    raise_sigpipe();
                }
                Err(error)
            }
            _ => Ok(done),
        }
    }

    fn later<R>(&self, want: c_short) -> Tried<R> {
        let until = deadline::after(self.deadline_of_stream());
        Tried::Later(Waiting { fd: self.fd, events: want, until })
    }
}
