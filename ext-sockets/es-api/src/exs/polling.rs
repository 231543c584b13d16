//! `exs_poll`: posts one event when any of some descriptors is ready.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use libc::pollfd;
use rddp_real::Errno;

use super::event::{EventType, number};
use super::polled::Polled;
use super::queue::Queue;
use crate::as_program::{self, PollPlaces, would_block};
use crate::progress::Progress;
use crate::sys::exs::Event;
use crate::threads::{self, Direction, Task, Waits};

/// A poll that was accepted.
pub(super) struct Polling {
    id: u64,
    fds: Vec<pollfd>,
    ahandle: usize,
    queue: Arc<Queue>,
    /// Places for the answers; `None` once the poll has ended.
    places: Mutex<Option<PollPlaces>>,
    polled: Polled,
    me: Weak<Polling>,
}

impl Polling {
    /// Makes a poll whose event's place is reserved.
    pub(super) fn new(places: PollPlaces, queue: Arc<Queue>, ahandle: usize) -> Arc<Self> {
        Arc::new_cyclic(|me| Polling {
            id: threads::next_id(),
            fds: places.copy(),
            ahandle,
            queue,
            places: Mutex::new(Some(places)),
            polled: Polled::default(),
            me: me.clone(),
        })
    }

    /// Polls once, and lets the queue or the threads go on if nothing is ready. `false`: the poll
    /// has ended.
    pub(super) fn begin(&self) -> Result<bool, Errno> {
        let Some(me) = self.me.upgrade() else { return Ok(false) };
        let task: Arc<dyn Task> = me;
        match self.queue.progress() {
            Progress::Threads => threads::post(Direction::Receive, &task).map(|()| true),
            Progress::Caller => {
                let goes_on = self.advance();
                if goes_on {
                    self.queue.watch(Direction::Receive, &task);
                }
                Ok(goes_on)
            }
        }
    }

    pub(super) fn concerns(&self, fd: c_int) -> bool {
        self.fds.iter().any(|one| one.fd == fd)
    }

    pub(super) fn ahandle(&self) -> usize {
        self.ahandle
    }

    fn has_ended(&self) -> bool {
        self.places().is_none()
    }

    /// Returns whether the poll has ended and no thread has its descriptors in a `poll`.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() && !self.polled.is_polled()
    }

    /// Waits, after the poll has ended, until no thread has its descriptors in a `poll`. The caller
    /// has nudged the threads.
    pub(super) fn wait_until_unpolled(&self) {
        self.polled.wait();
    }

    fn places(&self) -> MutexGuard<'_, Option<PollPlaces>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back a poll that was not accepted after all; `false` when it has ended already.
    pub(super) fn withdraw(&self) -> bool {
        self.places().take().is_some()
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = c_int> {
        self.fds.iter().map(|one| one.fd)
    }

    /// Ends the poll with its event; `false` when it has ended already.
    pub(super) fn end(&self, result: Result<(), Errno>, answers: &[pollfd]) -> bool {
        let Some(mut places) = self.places().take() else { return false };
        places.answer(answers);
        let ready = answers.iter().filter(|answer| answer.revents != 0).count();
        self.queue.unwatch(self.id);
        if self.polled.is_polled() {
            self.queue.wake_waiters();
        }
        self.queue.complete(Event {
            kind: EventType::Poll as c_int,
            errno: number(result),
            socket: self.fd(),
            ahandle: self.ahandle,
            at: places.start().expose_provenance(),
            length: ready,
            ..Event::default()
        });
        true
    }
}

impl Task for Polling {
    fn id(&self) -> u64 {
        self.id
    }

    fn fd(&self) -> c_int {
        self.fds.first().map_or(-1, |first| first.fd)
    }

    fn advance(&self) -> bool {
        if self.has_ended() {
            return false;
        }
        let mut answers = self.fds.clone();
        match as_program::poll(&mut answers, Some(Duration::ZERO)) {
            Ok(0) => return true,
            Err(errno) if would_block(errno) => return true,
            Ok(_) => self.end(Ok(()), &answers),
            Err(errno) => self.end(Err(errno), &[]),
        };
        false
    }

    fn waits_for(&self, waits: &mut Waits) -> bool {
        let places = self.places();
        if places.is_none() {
            return false;
        }
        self.polled.begin();
        self.fds.iter().for_each(|one| waits.add(one.fd, one.events));
        true
    }

    fn waited(&self) {
        self.polled.end();
    }

    fn abandon(&self, errno: Errno) {
        self.end(Err(errno), &[]);
    }
}
