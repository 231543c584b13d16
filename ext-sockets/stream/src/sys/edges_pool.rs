//! Private edge-triggered epoll sets, which threads take for the length of a sleep.
//!
//! A level-triggered wait on a socket that stays readable returns at once for ever. Where octets
//! that are somebody else's wait in front, a thread sleeps on a set of its own that reports what
//! happens and not what holds. A set is taken by one thread at a time; it keeps its registration
//! when it is given back, so that the next sleep on the same socket needs no `epoll_ctl`. Taking
//! one needs no heap and no lock: the call may be one of a signal handler's that interrupted a
//! sleep. The numbers are hidden, high and closed by `exec`. Sets are never shared: of the parent's
//! sets a child of `fork` keeps none, and a child of `vfork`, whose numbers are not its parent's,
//! uses sets that it closes at once.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use libc::epoll_event;

use super::{Calls, Process};
use crate::Errno;

/// The number of sets that are kept for later sleeps.
const KEPT: usize = 64;

/// Set once any set is kept.
static ANY: AtomicBool = AtomicBool::new(false);
static SETS: [KeptSet; KEPT] = [const { KeptSet::empty() }; KEPT];

/// A kept set. Its fields are the taker's alone while it is taken.
struct KeptSet {
    /// The [mark](Taker) of the thread that has the set; 0: nobody has.
    taken: AtomicUsize,
    /// An address in the stack frame that took it.
    frame: AtomicUsize,
    /// The set's number, and one; 0: there is none.
    set: AtomicI32,
    /// The [`Process`] that made the set.
    owner: AtomicU64,
    /// The socket that is registered, by its `SO_COOKIE` and its number; 0: none is.
    cookie: AtomicU64,
    number: AtomicI32,
}

impl KeptSet {
    const fn empty() -> Self {
        Self {
            taken: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
            set: AtomicI32::new(0),
            owner: AtomicU64::new(0),
            cookie: AtomicU64::new(0),
            number: AtomicI32::new(0),
        }
    }

    fn is_free(&self) -> bool {
        self.taken.load(Ordering::Relaxed) == 0
    }

    fn has(&self, cookie: u64, number: RawFd) -> bool {
        self.cookie.load(Ordering::Relaxed) == cookie && self.number.load(Ordering::Relaxed) == number
    }

    fn take(&self, taker: &Taker) -> bool {
        let taken = self.taken.compare_exchange(0, taker.mark, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.frame.store(taker.frame, Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self) {
        self.taken.store(0, Ordering::Release);
    }

    /// Returns the set's number, if this process made it.
    fn set_of(&self, me: Process) -> Option<RawFd> {
        let set = self.set.load(Ordering::Relaxed);
        (set > 0 && self.owner.load(Ordering::Relaxed) == me.word()).then(|| set - 1)
    }

    fn note(&self, set: RawFd, owner: Process, cookie: u64, number: RawFd) {
        self.set.store(set + 1, Ordering::Relaxed);
        self.owner.store(owner.word(), Ordering::Relaxed);
        self.cookie.store(cookie, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
    }

    fn note_nothing(&self) {
        self.set.store(0, Ordering::Relaxed);
        self.cookie.store(0, Ordering::Relaxed);
    }
}

thread_local! {
    /// The place that this thread took last. Its address is the mark of the thread.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// The thread that takes a set, and where on its stack it is.
struct Taker {
    mark: usize,
    frame: usize,
    last: usize,
}

impl Taker {
    #[inline(never)] // so that a caller further out has a higher frame
    fn here() -> Self {
        let on_stack = 0u8;
        let (mark, last) = LAST.with(|last| (ptr::from_ref(last).addr(), last.get()));
        Self { mark, frame: (&raw const on_stack).addr(), last: last % KEPT }
    }

    /// Takes a free place: the one that has this socket registered, if there is one.
    fn take(&self, cookie: u64, number: RawFd) -> Option<usize> {
        let is_its = |at: &usize| SETS[*at].is_free() && SETS[*at].has(cookie, number);
        let is_unused = |at: &usize| SETS[*at].is_free() && SETS[*at].cookie.load(Ordering::Relaxed) == 0;
        let is_free = |at: &usize| SETS[*at].is_free();
        let found = Some(self.last).filter(is_its).or_else(|| (0..KEPT).find(is_its));
        let found = found.or_else(|| (0..KEPT).find(is_unused)).or_else(|| (0..KEPT).find(is_free));
        found.filter(|at| SETS[*at].take(self)).or_else(|| self.left_behind())
    }

    /// Returns a place that this thread took in a stack frame that is gone: a signal handler has
    /// left the sleep by `siglongjmp`. On a stack of the handler's own that cannot be told.
    #[cold]
    fn left_behind(&self) -> Option<usize> {
        let is_gone = |kept: &KeptSet| {
            // A call that a handler has interrupted is further out by the kernel's frame at least.
            kept.taken.load(Ordering::Relaxed) == self.mark
                && kept.frame.load(Ordering::Relaxed) <= self.frame
        };
        let at = SETS.iter().position(is_gone).filter(|_| !is_on_other_stack())?;
        SETS[at].frame.store(self.frame, Ordering::Relaxed);
        // Nobody's: the set is closed, whatever is registered there.
        SETS[at].owner.store(0, Ordering::Relaxed);
        Some(at)
    }
}

/// Returns whether the calling thread runs on the alternate stack of its signal handlers.
fn is_on_other_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the call fills the structure, of which zeros are a value too, and changes nothing.
    let stack = unsafe {
        libc::sigaltstack(ptr::null(), stack.as_mut_ptr());
        stack.assume_init()
    };
    stack.ss_flags & libc::SS_ONSTACK != 0
}

/// An edge-triggered epoll set of the calling thread's own, until dropped.
///
/// `poll` and `select` find its [number](Self::number) readable while it has an edge that was not
/// [collected](Self::collect).
#[derive(Debug)]
pub struct EdgeSet {
    set: RawFd,
    calls: Calls,
    /// The place that it is given back to.
    place: Option<usize>,
    owner: Process,
    /// The one socket that is registered, with the tag 0.
    only: Option<(u64, RawFd)>,
    /// Set if another one is registered: such a set is closed when it is given back.
    has_others: bool,
    /// Set if the number turned out not to be this set's any more.
    is_lost: bool,
}

impl EdgeSet {
    /// Takes a set: the one in which the socket `fd` with this `SO_COOKIE` is registered already,
    /// if there is such a one.
    ///
    /// # Errors
    /// That of `epoll_create1`; `EMFILE` where no high number is left; `EOPNOTSUPP` in a
    /// [confined](super::confine) process.
    pub fn take(calls: &Calls, fd: RawFd, cookie: u64) -> Result<Self, Errno> {
        if super::is_confined() {
            return Err(Errno::UNSUPPORTED);
        }
        let owner = Process::me();
        // The memory of a child of `vfork` is its parent's, and its numbers are not.
        let is_own = owner.pid() == std::process::id();
        let taken = if is_own { Taker::here().take(cookie, fd) } else { None };
        let mut this = Self {
            set: -1,
            calls: *calls,
            place: taken,
            owner,
            only: None,
            has_others: false,
            is_lost: false,
        };
        let Some(at) = taken else {
            this.set = this.new_set()?;
            return Ok(this);
        };
        LAST.set(at);
        this.set = this.kept(&SETS[at], fd, cookie)?;
        Ok(this)
    }

    /// Returns the set of a place, emptied but for this socket; or a new one.
    fn kept(&mut self, kept: &KeptSet, fd: RawFd, cookie: u64) -> Result<RawFd, Errno> {
        match kept.set_of(self.owner) {
            Some(set) if kept.has(cookie, fd) => {
                self.only = Some((cookie, fd));
                return Ok(set);
            }
            Some(set) if kept.cookie.load(Ordering::Relaxed) == 0 || self.removes(kept, set) => {
                return Ok(set);
            }
            Some(set) => self.close(set),
            // The parent's: the number is a copy, and the set goes on without it.
            None if kept.set.load(Ordering::Relaxed) > 0 => {
                self.close(kept.set.load(Ordering::Relaxed) - 1);
            }
            None => {}
        }
        kept.note_nothing();
        let set = self.new_set()?;
        // For a thread that finds it left behind.
        kept.note(set, self.owner, 0, -1);
        Ok(set)
    }

    /// Takes out what a kept set has. Returns whether that is certain: it is only by the number
    /// that it was added under, and if that still is the same socket's.
    fn removes(&self, kept: &KeptSet, set: RawFd) -> bool {
        let number = kept.number.load(Ordering::Relaxed);
        let is_its = self.calls.cookie(number) == Ok(kept.cookie.load(Ordering::Relaxed));
        is_its && self.control(set, libc::EPOLL_CTL_DEL, number, 0, 0).is_ok()
    }

    /// Makes a set under a high number: a program may count on getting the lowest free one.
    fn new_set(&self) -> Result<RawFd, Errno> {
        // SAFETY: takes an integer.
        let low = unsafe { (self.calls.0.epoll.create1)(libc::EPOLL_CLOEXEC) };
        if low < 0 {
            return Err(Errno::last());
        }
        // SAFETY: `F_DUPFD_CLOEXEC` takes an integer.
        let duplicate = |from: &usize| unsafe { (self.calls.0.fcntl)(low, libc::F_DUPFD_CLOEXEC, *from) };
        let high = HIGH.iter().map(duplicate).find(|number| *number >= 0);
        // SAFETY: the number was made above and is used nowhere else.
        unsafe { (self.calls.0.own.close)(low) };
        let high = high.ok_or(Errno(libc::EMFILE))?;
        (self.calls.0.own.hide)(high);
        Ok(high)
    }

    fn close(&self, set: RawFd) {
        (self.calls.0.own.show)(set);
        // SAFETY: the number is that of a set of ours, which nothing else uses any more.
        unsafe { (self.calls.0.own.close)(set) };
    }

    /// Returns the number of the set.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.set
    }

    /// Registers the socket `fd` with this `SO_COOKIE` for edges of octets, room and the peer's
    /// end, with a `tag` of the caller's. Returns whether it was not registered yet: what holds now
    /// is an edge then.
    ///
    /// # Errors
    /// That of `epoll_ctl`.
    pub fn register(&mut self, fd: RawFd, cookie: u64, tag: u32) -> Result<bool, Errno> {
        let is_only = self.only == Some((cookie, fd));
        if is_only && tag == 0 {
            return Ok(false);
        }
        let is_empty = self.only.is_none() && !self.has_others;
        match self.control(self.set, libc::EPOLL_CTL_ADD, fd, EDGES, tag) {
            // The program has closed the set's number, and perhaps opened something of its own
            // under it.
            Err(Errno::NO_DESCRIPTOR | Errno::INVALID) if is_empty && self.calls.cookie(fd) == Ok(cookie) => {
                (self.calls.0.own.show)(self.set);
                self.set = self.new_set()?;
                if let Some(at) = self.place {
                    SETS[at].note(self.set, self.owner, 0, -1);
                }
                self.control(self.set, libc::EPOLL_CTL_ADD, fd, EDGES, tag)?;
            }
            Err(Errno(libc::EEXIST)) => self.control(self.set, libc::EPOLL_CTL_MOD, fd, EDGES, tag)?,
            added => added?,
        }
        if is_empty && tag == 0 {
            self.only = Some((cookie, fd));
        } else {
            self.has_others = true;
        }
        Ok(true)
    }

    /// Has sleeps end while `fd`, a descriptor of ours, is readable, until [`unwatch`]. Returns
    /// whether it does.
    ///
    /// [`unwatch`]: Self::unwatch
    pub(super) fn watch(&self, fd: RawFd) -> bool {
        self.control(self.set, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, 0).is_ok()
    }

    /// Ends what [`watch`](Self::watch) began.
    pub(super) fn unwatch(&self, fd: RawFd) {
        let _ = self.control(self.set, libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, set: RawFd, operation: c_int, fd: RawFd, events: u32, tag: u32) -> Result<(), Errno> {
        let mut event = epoll_event { events, u64: u64::from(ours()) << 32 | u64::from(tag) };
        // SAFETY: the event lives until the call returns, and the kernel only reads it.
        let done = unsafe { (self.calls.0.epoll.ctl)(set, operation, fd, &raw mut event) };
        if done == 0 { Ok(()) } else { Err(Errno::last()) }
    }

    /// Takes the edges that the set has, without waiting: calls `each` with the tag and the events,
    /// as `poll` numbers them.
    pub fn collect(&mut self, mut each: impl FnMut(u32, i16)) {
        while let Ok(count @ 1..) = self.take_events(0, &mut each) {
            if count < ROOM {
                break;
            }
        }
    }

    /// Sleeps until there is an edge, or for `timeout`; takes the edges.
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> Result<i16, Errno> {
        let mut all = 0;
        self.take_events(milliseconds(timeout), &mut |_, events| all |= events)?;
        Ok(all)
    }

    fn take_events(&mut self, timeout: c_int, each: &mut dyn FnMut(u32, i16)) -> Result<usize, Errno> {
        let mut events = [epoll_event { events: 0, u64: 0 }; ROOM];
        // SAFETY: `events` has a place for each of the `ROOM` events that the kernel may write.
        let count =
            unsafe { (self.calls.0.epoll.wait)(self.set, events.as_mut_ptr(), ROOM as c_int, timeout) };
        let Ok(count) = usize::try_from(count) else {
            let error = Errno::last();
            // A program that closes every number by other ways has closed this one.
            self.is_lost |= error != Errno::INTERRUPTED;
            // The caller looks, and sleeps in a new set.
            return if error == Errno::INTERRUPTED { Err(error) } else { Ok(0) };
        };
        for event in &events[..count] {
            let data = event.u64;
            if (data >> 32) as u32 == ours() {
                each(data as u32, event.events as i16);
            } else {
                // Another set, the program's, stands under this number.
                self.is_lost = true;
            }
        }
        Ok(count)
    }
}

impl Drop for EdgeSet {
    fn drop(&mut self) {
        if self.owner != Process::me() {
            // A handler of this thread forked, and this is the child: the place is not its own.
            return;
        }
        let Some(kept) = self.place.map(|at| &SETS[at]) else {
            if self.set >= 0 {
                self.close(self.set);
            }
            return;
        };
        if self.is_lost {
            (self.calls.0.own.show)(self.set);
            kept.note_nothing();
        } else if self.has_others {
            self.close(self.set);
            kept.note_nothing();
        } else if self.set >= 0 {
            let (cookie, number) = self.only.unwrap_or((0, -1));
            kept.note(self.set, self.owner, cookie, number);
            ANY.store(true, Ordering::Relaxed);
        }
        kept.give_back();
    }
}

/// Ends the registrations of a socket under `fd`, a number that is about to be closed: an entry of
/// a set lives as long as the socket has any number in any process.
pub fn forget_edges_of(calls: &Calls, fd: RawFd) {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    let taker = Taker::here();
    let has_it = |kept: &&KeptSet| {
        kept.cookie.load(Ordering::Relaxed) != 0 && kept.number.load(Ordering::Relaxed) == fd
    };
    for kept in SETS.iter().filter(has_it) {
        if kept.take(&taker) {
            if let Some(set) = kept.set_of(Process::me())
                && kept.number.load(Ordering::Relaxed) == fd
            {
                let mut event = epoll_event { events: 0, u64: 0 };
                // SAFETY: the event lives until the call returns. If the set has no such entry any
                // more, nothing happens.
                unsafe { (calls.0.epoll.ctl)(set, libc::EPOLL_CTL_DEL, fd, &raw mut event) };
                kept.cookie.store(0, Ordering::Relaxed);
            }
            kept.give_back();
        }
    }
}

/// Closes the copies of the parent's sets, in the child of a `fork`, where no other thread is.
pub fn forget_inherited_sets(calls: &Calls) {
    let me = Process::me();
    for kept in &SETS {
        let set = kept.set.load(Ordering::Relaxed);
        if set > 0 && kept.owner.load(Ordering::Relaxed) != me.word() {
            (calls.0.own.show)(set - 1);
            // SAFETY: the number is a copy of that of the parent's set, which nothing here uses.
            unsafe { (calls.0.own.close)(set - 1) };
            kept.note_nothing();
        }
        if set > 0 {
            kept.give_back();
        }
    }
}

/// Returns the upper half of the data of our entries, by which those of a foreign set are known.
fn ours() -> u32 {
    (SETS.as_ptr().addr() >> 4) as u32 | 1
}

fn milliseconds(span: Option<Duration>) -> c_int {
    // Rounded up, or a sleep would end before its time, again and again.
    let whole = |span: Duration| span.as_nanos().div_ceil(1_000_000);
    span.map_or(-1, |span| c_int::try_from(whole(span)).unwrap_or(c_int::MAX))
}

/// Events that each registered socket is asked for.
const EDGES: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// Room for the events of one call.
const ROOM: usize = 8;
/// The numbers from which on a set's is looked for.
pub(super) const HIGH: [usize; 3] = [libc::FD_SETSIZE, 900, 200];
