//! What a capture sees of a connection (`RDDP_CAPTURE`).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use rddp_capture::Direction;

use super::Kernel;
use crate::Errno;

impl Kernel<'_> {
    /// Records octets that TCP has taken.
    #[cold]
    pub(super) fn capture_sent(&self, pieces: &[IoSlice<'_>], sent: Result<usize, Errno>) {
        if let Ok(count) = sent {
            rddp_capture::record(self.borrowed(), Direction::Sent, pieces, count);
        }
    }

    /// Records octets that were taken off the receive queue, or its end.
    #[cold]
    pub(super) fn capture_taken(&self, pieces: &[IoSliceMut<'_>], taken: Result<usize, Errno>) {
        let Ok(count) = taken else { return };
        // SAFETY: both are `iovec` in their form, and nothing is written through these.
        let pieces = unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast(), pieces.len()) };
        rddp_capture::record(self.borrowed(), Direction::Received, pieces, count);
    }

    /// Takes octets that nobody wants off the queue: a capture wants them.
    #[cold]
    pub(super) fn take_nowhere(&self, count: usize) -> Result<usize, Errno> {
        let mut nowhere = [0; 4096];
        let mut done = 0;
        while done < count {
            let room = nowhere.len().min(count - done);
            match self.take(&mut [IoSliceMut::new(&mut nowhere[..room])]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Records the end of what this end sends.
    #[cold]
    pub(super) fn capture_end(&self) {
        rddp_capture::ended(self.borrowed(), Direction::Sent);
    }

    fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is the caller's descriptor for the time of the call; where the program
        // closes it meanwhile, the calls on it fail, and on another socket they name that one's
        // addresses.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}
