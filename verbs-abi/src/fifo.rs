//! Events that wait for the program, behind a descriptor that is readable while there are any.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use parking_lot::Mutex;
use rddp_rnic::Counter;

use crate::c::cancel::cancellable;
use crate::errors::{Outcome, of_io};

/// A queue whose descriptor belongs to the program: it polls it, and sets or clears `O_NONBLOCK`,
/// by which [`Fifo::pop`] sleeps or not. The program does not read it.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    queue: Mutex<VecDeque<T>>,
    /// Counts the entries of the queue.
    count: Counter,
}

impl<T> Fifo<T> {
    pub(crate) fn new() -> Outcome<Self> {
        let count = Counter::new().map_err(|error| of_io(&error))?;
        make_blocking(count.as_fd())?;
        Ok(Fifo { queue: Mutex::default(), count })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.count.as_fd().as_raw_fd()
    }

    pub(crate) fn push(&self, event: T) {
        let mut queue = self.queue.lock();
        queue.push_back(event);
        self.count.show(queue.len());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Takes all events of which `unwanted` is true.
    pub(crate) fn remove(&self, mut unwanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut queue = self.queue.lock();
        let (out, kept): (VecDeque<T>, VecDeque<T>) = queue.drain(..).partition(|event| unwanted(event));
        *queue = kept;
        self.count.hide(queue.len());
        out.into()
    }

    /// Takes the oldest event; sleeps until there is one, unless the descriptor is non-blocking. A
    /// signal ends the sleep, as it does a `read(2)` of a device of the kernel: see
    /// [`Counter::read`].
    ///
    /// A thread may be cancelled (`pthread_cancel`) while it sleeps, and holds no lock meanwhile.
    pub(crate) fn pop(&self) -> Outcome<T> {
        loop {
            cancellable(|| self.count.read()).map_err(|error| of_io(&error))?;
            let mut queue = self.queue.lock();
            self.count.note_read();
            // There is none if it was removed meanwhile.
            let event = queue.pop_front();
            self.count.hide(queue.len());
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }
}

pub(crate) fn is_nonblocking(fd: BorrowedFd<'_>) -> Outcome<bool> {
    Ok(OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?).contains(OFlag::O_NONBLOCK))
}

/// Makes a descriptor blocking, as programs expect of one that they have not touched.
pub(crate) fn make_blocking(fd: BorrowedFd<'_>) -> Outcome<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK)).map(drop)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable<T>(fifo: &Fifo<T>) -> bool {
        poll(&mut [PollFd::new(fifo.count.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let fifo = Fifo::new().unwrap();
        (0..3).for_each(|n| fifo.push(n));
        assert_eq!((fifo.remove(|n| *n == 1), fifo.pop()), (vec![1], Ok(0)));
        assert!(is_readable(&fifo));
        assert_eq!(fifo.pop(), Ok(2));
        assert!(!is_readable(&fifo));
    }

    #[test]
    fn a_program_decides_whether_an_empty_queue_sleeps() {
        let fifo = Fifo::<u8>::new().unwrap();
        fcntl(fifo.count.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        assert_eq!(fifo.pop(), Err(Errno::EAGAIN));
        make_blocking(fifo.count.as_fd()).unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| fifo.pop());
            fifo.push(7);
            assert_eq!(taken.join().unwrap(), Ok(7));
        });
    }
}
