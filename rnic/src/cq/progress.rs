//! Progress on behalf of a completion queue: its members, and who drives them on.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;

use super::{CqInner, Member};
use crate::deadline::Deadline;
use crate::io::bell::Asleep;
use crate::io::driver::Holder;
use crate::io::lease::Lease;
use crate::io::sleep::Sleep;

/// A program that has polled lately, but not for so long, does something else.
const MOMENT: Duration = Duration::from_micros(10);

impl CqInner {
    pub(crate) fn add_member(&self, token: u64, member: Arc<dyn Member>) -> io::Result<()> {
        let are_few = self.members.lock().insert(token, member);
        if are_few { Ok(()) } else { self.use_epoll() }
    }

    pub(crate) fn remove_member(&self, token: u64) {
        self.members.lock().remove(token);
    }

    /// Whether the sockets of its QPs are in its epoll set.
    pub(crate) fn is_by_epoll(&self) -> bool {
        self.by_epoll.load(Ordering::Acquire)
    }

    /// Puts the sockets of all its QPs into the epoll set, now and from now on.
    pub(crate) fn use_epoll(&self) -> io::Result<()> {
        if self.by_epoll.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // One that connects meanwhile has seen the flag, or is found connected here.
        let members = self.members.lock().all();
        if let Err(error) = members.iter().try_for_each(|member| member.enter(self)) {
            // The kernel is out of watches: the QP that is one too many will not be made.
            self.by_epoll.store(false, Ordering::Release);
            return Err(error);
        }
        self.ready.bell.ring();
        Ok(())
    }

    /// One of its QPs has been connected.
    pub(crate) fn admit(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        if self.is_by_epoll() {
            self.ready.add(socket, token)?;
        }
        self.ready.bell.ring();
        Ok(())
    }

    /// What one of its connections waits for has changed.
    pub(crate) fn set_interest(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        if self.is_by_epoll() {
            self.ready.set_interest(socket, token, interest);
        } else {
            self.ready.bell.ring();
        }
    }

    /// A connection of one of its QPs is over.
    pub(crate) fn dismiss(&self, socket: BorrowedFd<'_>) {
        if self.is_by_epoll() {
            self.ready.remove(socket);
        }
        self.ready.bell.ring();
    }

    /// Makes the background thread call each QP's `on_timer`.
    pub(super) fn rouse_members(&self) {
        let now = Instant::now();
        self.members.lock().tokens().for_each(|token| self.driver.at(now, token));
    }

    /// Ends the lease of a program that polled and will not for a while.
    pub(super) fn give_back(&self) {
        self.presence.give_back();
        self.driver.end_of_wait();
    }

    /// Reads the sockets as [`progress`](Self::progress) does, counted as a look, which the
    /// background thread notices.
    pub(super) fn look(&self) {
        let _look = self.presence.look();
        self.progress();
    }

    /// Reads the sockets of this queue's QPs, as far as they have anything.
    pub(crate) fn progress(&self) {
        let few = self.members.lock().few();
        match few {
            Some(list) => list.iter().for_each(|member| member.try_progress()),
            // Nothing ready is no error, and a failing epoll set shows in `wait`.
            None => drop(self.serve_ready(Some(Duration::ZERO), None)),
        }
    }

    /// See [`CompletionQueue::wait`](super::CompletionQueue::wait); `other` is another reason to wake, for which the bell has rung.
    pub(super) fn wait(&self, timeout: Option<Duration>, other: &dyn Fn() -> bool) -> io::Result<bool> {
        let _waiter = Waiter::new(self);
        let deadline = Deadline::after_any(timeout);
        self.progress();
        loop {
            if !self.is_empty() || other() {
                return Ok(true);
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            self.wait_ready(left, other)?;
        }
    }

    /// Sleeps until a socket has something or there is another reason to look, and makes progress.
    fn wait_ready(&self, timeout: Option<Duration>, other: &dyn Fn() -> bool) -> io::Result<()> {
        let asleep = self.ready.bell.fall_asleep();
        if !self.is_empty() || other() {
            return Ok(());
        }
        if self.is_by_epoll() {
            return self.serve_ready(timeout, Some(asleep));
        }
        let mut sleep = Sleep::default();
        self.watch(&mut sleep);
        sleep.wait(&[self.ready.bell.as_fd()], timeout)?;
        drop(asleep);
        self.progress();
        Ok(())
    }

    /// What a thread that sleeps on this queue, of a few members, has to watch.
    pub(crate) fn watch(&self, sleep: &mut Sleep) {
        let few = self.members.lock().few();
        let members = few.iter().flat_map(|list| list.iter());
        for (watched, events) in members.filter_map(|member| member.watch_for()) {
            sleep.add(watched, events);
        }
    }

    fn serve_ready(&self, timeout: Option<Duration>, asleep: Option<Asleep<'_>>) -> io::Result<()> {
        self.ready.wait(timeout, asleep, |token| {
            let member = self.members.lock().by_token(token);
            if let Some(member) = member {
                member.try_progress();
            }
        })
    }
}

impl Holder for CqInner {
    fn lease(&self, turn: u64) -> Lease {
        // The program may have no other processor.
        let mut until = None;
        self.presence.lease(turn, || {
            std::thread::yield_now();
            let now = Instant::now();
            now < *until.get_or_insert(now + MOMENT)
        })
    }

    fn left(&self) -> &Mutex<HashSet<u64>> {
        &self.left
    }
}

/// A thread asleep on a queue.
pub(crate) struct Waiter<'a>(&'a CqInner);

impl<'a> Waiter<'a> {
    pub(crate) fn new(cq: &'a CqInner) -> Self {
        cq.presence.begin_wait();
        Waiter(cq)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.0.presence.end_wait() {
            self.0.driver.end_of_wait();
        }
    }
}
