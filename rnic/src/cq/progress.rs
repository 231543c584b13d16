//! Progress of a completion queue's members, made by threads that poll the queue or sleep on it.
//!
//! The sockets of up to [`FEW`](super::FEW) members are in no epoll set: a poll tries them all, and
//! a thread that goes to sleep names them all. With more members the queue has an epoll set, and
//! only the members that are ready are tried.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;

use super::{CqInner, Member};
use crate::deadline::Deadline;
use crate::io::alarm::alarm;
use crate::io::driver::Holder;
use crate::io::lease::Lease;
use crate::io::sleep::Sleep;

/// Waits in a row that read the sockets in vain before one sleeps first.
const VAIN: u32 = 2;

/// Waits that sleep first before one reads the sockets again.
const SLEEPS: u32 = 16;

impl CqInner {
    /// Adds a member. With one more than [`FEW`](super::FEW) the queue begins to use an epoll set.
    pub(crate) fn add_member(&self, token: u64, member: Arc<dyn Member>) -> io::Result<()> {
        let are_few = self.members.lock().insert(token, member);
        if are_few { Ok(()) } else { self.use_epoll() }
    }

    pub(crate) fn remove_member(&self, token: u64) {
        self.members.lock().remove(token);
    }

    pub(super) fn member_count(&self) -> usize {
        self.members.lock().len()
    }

    /// Returns whether the sockets of the members are in an epoll set.
    pub(crate) fn is_by_epoll(&self) -> bool {
        self.ready.is_used()
    }

    /// Puts the sockets of all members into the epoll set, which the queues of a channel share, and
    /// has those of later ones put there.
    pub(crate) fn use_epoll(&self) -> io::Result<()> {
        if self.ready.begin()? {
            return Ok(());
        }
        let of_channel = self.channel.as_ref().map(|channel| channel.live_queues());
        let alone = of_channel.is_none().then_some(self);
        let sharing = || of_channel.iter().flatten().map(|cq| &**cq).chain(alone);
        let entered = sharing().try_for_each(CqInner::enter_members);
        if entered.is_err() {
            // The kernel has no room for another watch: the QP that is being made is refused.
            self.ready.give_up();
        }
        sharing().for_each(|cq| cq.bell.ring());
        entered
    }

    fn enter_members(&self) -> io::Result<()> {
        // A member that connects at this moment sees that the set is used and enters by itself, or
        // is found connected here.
        let members = self.members.lock().all();
        members.iter().try_for_each(|member| member.enter(self))
    }

    /// Watches the socket of a member that has been connected.
    pub(crate) fn admit(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        if self.is_by_epoll() {
            let member = self.members.lock().by_token(token);
            member.map_or(Ok(()), |member| self.ready.add(socket, token, &member))?;
        }
        self.bell.ring();
        Ok(())
    }

    /// Changes the events that the socket of a member is watched for.
    pub(crate) fn set_interest(&self, socket: BorrowedFd<'_>, token: u64, interest: EpollFlags) {
        if self.is_by_epoll() {
            self.ready.set_interest(socket, token, interest);
        }
        // Threads that sleep may have named the events to the kernel: they go to sleep anew.
        self.bell.ring();
    }

    /// Stops watching the socket of a member whose connection is over.
    pub(crate) fn dismiss(&self, socket: BorrowedFd<'_>, token: u64) {
        if self.is_by_epoll() {
            self.ready.remove(socket, token);
        }
        self.bell.ring();
    }

    /// Makes the background thread call the `on_timer` of each member.
    pub(super) fn rouse_members(&self) {
        let now = Instant::now();
        self.members.lock().tokens().for_each(|token| self.driver.at(now, token));
    }

    /// Ends the lease of a program that has polled and now is going to sleep elsewhere.
    pub(crate) fn give_back(&self) {
        self.presence.give_back();
        self.driver.end_of_wait();
    }

    /// Reads the sockets as [`progress`](Self::progress) does. That counts as a look, by which the
    /// background thread knows that the program reads them (see [`io::lease`](crate::io::lease)).
    pub(super) fn look(&self) {
        let _look = self.presence.look();
        self.progress();
        if self.driver.is_at_work() {
            self.give_way();
        }
    }

    /// Returns whether a thread that polls reads the sockets now, and none sleeps on them.
    pub(crate) fn is_polled(&self) -> bool {
        self.presence.is_looked_at()
    }

    /// Offers the processor to the background thread, unless there is a completion: the program may
    /// wait for what that thread is doing for another queue. So does perftest's passive end, which
    /// polls a queue of its own.
    #[cold]
    fn give_way(&self) {
        if self.is_empty() {
            std::thread::yield_now();
        }
    }

    /// Has each member that may have something to do make progress.
    pub(crate) fn progress(&self) {
        // The list is shared, so that no lock is held while members are tried: a member that
        // completes something, or leaves the queue, comes back to it.
        match self.few_members() {
            Some(list) => list.iter().for_each(|member| member.try_progress()),
            // A poll has no way to report an error of the epoll set.
            None => drop(self.serve_ready()),
        }
    }

    /// Returns the members, while they are no more than [`FEW`](super::FEW).
    pub(crate) fn few_members(&self) -> Option<Arc<[Arc<dyn Member>]>> {
        self.members.lock().few()
    }

    /// Sleeps until there is a completion, as
    /// [`CompletionQueue::wait_or`](super::CompletionQueue::wait_or) does. Whoever makes `other`
    /// true rings the bell.
    pub(super) fn wait(&self, timeout: Option<Duration>, other: &dyn Fn() -> bool) -> io::Result<bool> {
        // What is in the queue is worked on before the kernel is asked for more. A program that
        // waits and takes nothing reads no socket, so the background thread does.
        if !self.is_empty() || other() {
            return Ok(true);
        }
        let _waiter = Waiter::new(self);
        let deadline = Deadline::after_any(timeout);
        if !self.sleeps_first(timeout) {
            self.look_first();
        }
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

    /// Returns whether a wait is to go to sleep at once: the last ones found nothing when they read
    /// the sockets first, and it would wake by whatever is there. A wait of no time looks at the
    /// sockets and does nothing else, so it does that always; and now and then another one does, to
    /// learn whether something is there again.
    pub(crate) fn sleeps_first(&self, timeout: Option<Duration>) -> bool {
        if timeout.is_some_and(|timeout| timeout.is_zero()) || self.is_by_epoll() {
            return false;
        }
        let vain = self.vain.load(Ordering::Relaxed);
        if !(VAIN..VAIN + SLEEPS).contains(&vain) {
            return false;
        }
        self.vain.store(vain + 1, Ordering::Relaxed);
        let few = self.members.lock().few();
        few.is_some_and(|list| list.iter().all(|member| member.is_idle()))
    }

    /// Reads the sockets at the start of a wait, and notes whether that found something.
    pub(crate) fn look_first(&self) {
        self.progress();
        let vain = self.vain.load(Ordering::Relaxed);
        let vain = if self.is_empty() { vain.min(VAIN - 1) + 1 } else { 0 };
        self.vain.store(vain, Ordering::Relaxed);
    }

    /// Sleeps until a socket is ready or the bell rings, and makes progress.
    fn wait_ready(&self, timeout: Option<Duration>, other: &dyn Fn() -> bool) -> io::Result<()> {
        let alarm = alarm()?;
        // From here on the bell wakes this thread, so that a completion which comes after this look
        // at the queue is not overlooked.
        let asleep = self.bell.await_completion(&alarm);
        if !self.is_empty() || other() {
            return Ok(());
        }
        let mut sleep = Sleep::default();
        self.watch(&mut sleep);
        sleep.wait([alarm.as_fd()], timeout)?;
        drop(asleep);
        self.progress();
        Ok(())
    }

    /// Adds what a thread that sleeps on this queue has to watch.
    pub(crate) fn watch(&self, sleep: &mut Sleep) {
        let few = self.members.lock().few();
        match few {
            Some(list) => {
                let watched = list.iter().filter_map(|member| member.watch_for());
                watched.for_each(|(watched, events)| sleep.add(watched, events));
            }
            None => self.watch_set(sleep),
        }
    }

    /// Adds the epoll set. Before it is used there is none: the bell rings once it is.
    pub(crate) fn watch_set(&self, sleep: &mut Sleep) {
        if self.is_by_epoll() {
            sleep.add(self.ready.clone(), PollFlags::POLLIN);
        }
    }

    /// Has the members make progress that are ready by the epoll set.
    pub(crate) fn serve_ready(&self) -> io::Result<()> {
        if self.is_by_epoll() { self.ready.serve() } else { Ok(()) }
    }
}

impl Holder for CqInner {
    fn lease(&self, turn: u64) -> Lease {
        self.presence.lease(turn, Instant::now())
    }

    fn left(&self) -> &Mutex<HashSet<u64>> {
        &self.left
    }
}

/// A thread that sleeps on a queue, or on its channel. The background thread leaves the queue's
/// sockets alone as long as there is one.
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
