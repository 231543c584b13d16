//! A socket of ours: the program's settings of it, whatever number of descriptors it is open under.
//!
//! Sockets live in chunks that are never freed and are used again, so an entry of the table always
//! leads to a socket. [`hold`] makes sure that it is the right one, and keeps it so while it is in
//! use.

mod allow;
mod at_work;
pub mod old_sdp;
mod options;
mod saved_options;
mod settings;

use std::ffi::c_int;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use once_cell::race::OnceBox;
use rddp_real as real;
use rddp_stream::{self as stream, Errno};

use crate::sys::held::Uses;
use crate::{exit, process, table};

pub use crate::sys::held::Held;
pub use allow::{Care, care};
pub use options::{
    DDP_CRC, DDP_GATHER, DDP_IRD, DDP_LARGEST_SEND, DDP_MARKERS, DDP_MODE_INFO, DDP_ORD,
    DDP_PEER_PRIVATE_DATA, DDP_PLACEMENT, DDP_PLACEMENT_INFO, DDP_PRIVATE_DATA, DDP_PROGRESS, DDP_ROLE,
    DDP_RTR, DDP_SDP_BCOPY, DDP_SDP_BUFS, DDP_SDP_INFO, DDP_SDP_MODE, DDP_SDP_SINK_THRESHOLD,
    DDP_SDP_SOURCE_THRESHOLD, DDP_STARTUP_TIMEOUT, DDPMODE, SOL_DDP, get, placement_info, sdp_info, set,
};
pub use saved_options::SavedOptions;
pub use settings::{KindId, Mode, Settings, UNTIL_PLAIN};

/// The largest number of sockets that can be ours at a time.
pub const MAX_SOCKETS: usize = CHUNKS * CHUNK;

const CHUNKS: usize = 1024;
const CHUNK: usize = 64;

static SOCKETS: [OnceBox<[Socket; CHUNK]>; CHUNKS] = [const { OnceBox::new() }; CHUNKS];

/// A socket of ours, or a free place for one.
#[derive(Debug)]
pub struct Socket {
    pub(crate) uses: Uses,
    /// The count of numbers of this process that the socket is open under.
    numbers: AtomicU32,
    cookie: AtomicU64,
    /// The count of calls at work on one of the numbers.
    at_work: AtomicU32,
    /// The count of calls that sleep until there is something to do.
    asleep: AtomicU32,
    /// A copy of the settings' mode, for calls from a signal handler that may have interrupted a
    /// holder of the lock.
    mode: AtomicI32,
    /// A copy of the settings' kind, stored before the mode: a reader that sees the mode sees its
    /// kind.
    kind: AtomicU8,
    /// No number of this process leads to the socket any more, though calls on it may go on.
    closed: AtomicBool,
    /// The socket is in an epoll set: see [`wait`](crate::wait).
    watched: AtomicBool,
    /// A set with the socket reports edges (`EPOLLET`).
    edges: AtomicBool,
    /// Octets left of the first FPDU when the program last asked.
    left: AtomicUsize,
    /// The socket is in the list of unsettled ones: see `kinds/unsettled.rs`.
    listed: AtomicBool,
    /// Blocking calls are made by the progress threads: `DDP_PROGRESS`.
    threaded: AtomicBool,
    settings: Mutex<Settings>,
}

impl Socket {
    const fn free() -> Self {
        Socket {
            uses: Uses::none(),
            numbers: AtomicU32::new(0),
            cookie: AtomicU64::new(0),
            at_work: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            mode: AtomicI32::new(Mode::Off as i32),
            kind: AtomicU8::new(KindId::Plain as u8),
            closed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            edges: AtomicBool::new(false),
            left: AtomicUsize::new(0),
            listed: AtomicBool::new(false),
            threaded: AtomicBool::new(false),
            settings: Mutex::new(Settings::DEFAULT),
        }
    }

    /// Returns whether the program's octets go over plain TCP, or will after `connect`. Takes no
    /// lock.
    #[inline]
    pub fn is_still_tcp(&self) -> bool {
        self.mode.load(Ordering::Acquire) <= Mode::Asked as i32
    }

    /// Returns whether DDPMODE was asked for. Takes no lock.
    #[inline]
    pub fn is_in_ddpmode(&self) -> bool {
        self.mode.load(Ordering::Acquire) != Mode::Off as i32
    }

    /// Returns the kind of the socket, now or once it is connected. Takes no lock.
    #[inline]
    pub fn kind(&self) -> KindId {
        KindId::numbered(self.kind.load(Ordering::Relaxed))
    }

    /// Locks the settings.
    pub fn settings(&self) -> Locked<'_> {
        let no_signals = real::NoSignals::here();
        let lockable = real::Lockable::here();
        // After a panic each field still makes sense by itself.
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { kind: &self.kind, mode: &self.mode, settings, _lockable: lockable, _no_signals: no_signals }
    }

    /// Returns the kernel's cookie of the socket, which no other socket has.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// Notes the cookie of another file that takes the place of the socket's.
    pub(crate) fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Returns whether this socket is open under `fd`, and not another since. A confined process
    /// cannot ask.
    pub fn is_under(&self, fd: c_int) -> bool {
        stream::is_confined() || real::cookie(fd) == Some(self.cookie())
    }

    /// Returns whether the last number of this process was closed while a call went on.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Notes whether the socket is in the list of unsettled ones; returns the previous value.
    pub fn set_listed(&self, listed: bool) -> bool {
        self.listed.swap(listed, Ordering::AcqRel)
    }

    /// Returns whether blocking calls are made by the progress threads.
    #[inline]
    pub fn is_threaded(&self) -> bool {
        self.threaded.load(Ordering::Relaxed)
    }

    /// Notes whether blocking calls are made by the progress threads.
    pub fn set_threaded(&self, threaded: bool) {
        self.threaded.store(threaded, Ordering::Relaxed);
    }

    /// Returns whether the socket is in an epoll set.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Notes whether the socket is in an epoll set.
    pub fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Release);
    }

    /// Returns whether a set with this socket reports edges.
    #[inline]
    pub fn tells_edges(&self) -> bool {
        self.edges.load(Ordering::Acquire)
    }

    /// Notes that a set with this socket reports edges.
    pub fn set_tells_edges(&self) {
        self.edges.store(true, Ordering::Release);
    }

    /// Notes the octets left of the first FPDU; returns those left when the program last asked.
    pub fn tell_left(&self, left: usize) -> usize {
        self.left.swap(left, Ordering::Relaxed)
    }

    /// Takes back the number that [`expect_number`] has counted; returns whether no number is left.
    pub fn one_less(&self) -> bool {
        let is_last = self.numbers.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last {
            self.closed.store(true, Ordering::Release);
        }
        is_last
    }

    /// Returns whether the socket is open under several numbers of this process.
    pub fn has_other_numbers(&self) -> bool {
        self.numbers.load(Ordering::Relaxed) > 1
    }

    /// Returns whether a thread of this process sleeps in a call on it.
    pub fn has_sleepers(&self) -> bool {
        self.asleep.load(Ordering::SeqCst) > 0
    }
}

/// The locked settings of a socket. Dropping them copies mode and kind to the socket.
#[derive(Debug)]
pub struct Locked<'a> {
    kind: &'a AtomicU8,
    mode: &'a AtomicI32,
    settings: MutexGuard<'a, Settings>,
    _lockable: real::Lockable,
    _no_signals: real::NoSignals,
}

impl Deref for Locked<'_> {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.kind.store(self.settings.kind as u8, Ordering::Relaxed);
        self.mode.store(self.settings.mode as i32, Ordering::Release);
    }
}

/// Returns the socket under `fd`, if it is one of ours.
#[inline]
pub fn hold(fd: c_int) -> Option<Held> {
    table::entry(fd).and_then(|index| hold_entry(fd, index))
}

/// Returns the socket under `fd`; forgets a number under which something else is open by now.
pub fn hold_checked(fd: c_int) -> Option<Held> {
    let held = hold(fd)?;
    if held.is_under(fd) {
        return Some(held);
    }
    forget_stale(fd, &held);
    None
}

#[cold]
fn hold_entry(fd: c_int, index: NonZeroU32) -> Option<Held> {
    let socket = at(index)?;
    if !socket.uses.another() {
        return None;
    }
    let held = Held::of_use(socket, index);
    // The socket may have been closed, and its place used for another, before it was held.
    (table::entry(fd) == Some(index)).then_some(held)
}

/// Returns the socket that [`Held::index`] led to, or another that has taken its place.
pub(crate) fn hold_index(index: NonZeroU32) -> Option<Held> {
    let socket = at(index)?;
    socket.uses.another().then(|| Held::of_use(socket, index))
}

/// Returns whether this process, or one it was forked from, ever had sockets of ours.
pub fn were_any() -> bool {
    SOCKETS[0].get().is_some()
}

/// Makes the socket under `fd` ours.
///
/// # Errors
/// ENOSYS: the kernel has no cookies, or `fd` is no socket. ENOBUFS: too many sockets are ours, or
/// the table is another process's.
pub fn adopt(fd: c_int, settings: Settings) -> Result<Held, Errno> {
    if !process::owns_table() {
        return Err(Errno(libc::ENOBUFS));
    }
    let cookie = real::cookie(fd).ok_or(Errno(libc::ENOSYS))?;
    let (socket, index) = reserve().ok_or(Errno(libc::ENOBUFS))?;
    let held = Held::of_use(socket, index);
    socket.cookie.store(cookie, Ordering::Relaxed);
    socket.closed.store(false, Ordering::Relaxed);
    socket.watched.store(false, Ordering::Relaxed);
    socket.edges.store(false, Ordering::Relaxed);
    socket.left.store(0, Ordering::Relaxed);
    socket.threaded.store(false, Ordering::Relaxed);
    socket.listed.store(false, Ordering::Relaxed);
    socket.numbers.store(0, Ordering::Relaxed);
    *socket.settings() = settings;
    if enter(fd, &held) { Ok(held) } else { Err(Errno(libc::ENOBUFS)) }
}

/// Notes that `to` has become another number of `from`.
pub fn share(from: &Held, to: c_int) {
    if process::owns_table() {
        enter(to, from);
    }
}

/// Notes that `to` has become a number of `from`, whose last number was closed before.
pub fn open_again(from: &Held, to: c_int) {
    if process::owns_table() {
        from.closed.store(false, Ordering::Release);
        if !enter(to, from) {
            from.closed.store(true, Ordering::Release);
        }
    }
}

/// Counts a number that the socket under `fd` is about to get, so that no number closed in the
/// meantime counts as the last. [`Socket::one_less`] must follow, whatever the outcome.
pub fn expect_number(fd: c_int) -> Option<Held> {
    table::entry(fd)?;
    let held = if process::owns_table() { hold(fd)? } else { return None };
    held.numbers.fetch_add(1, Ordering::SeqCst);
    Some(held)
}

/// Forgets `fd`: nothing of ours is open under it any more.
#[inline]
pub fn forget(fd: c_int) {
    if table::entry(fd).is_some() && process::owns_table() {
        release(table::clear(fd));
    }
}

/// Forgets that `fd` was a number of `held`: it is a number of something else by now. If that is
/// another socket of ours, it stays known.
pub fn forget_stale(fd: c_int, held: &Held) {
    if process::owns_table() && table::clear_if(fd, held.index()) {
        release(Some(held.index()));
    }
}

/// Forgets `fd`, which is about to be closed. Returns the socket if that was its last number in
/// this process.
pub fn forget_before_close(fd: c_int) -> Option<Held> {
    table::entry(fd)?;
    if !process::owns_table() {
        return None;
    }
    let held = hold(fd)?;
    if exit::has_begun() {
        // The exit has waited for all calls together.
        release(table::retire(fd));
    } else {
        release(table::clear(fd));
        held.await_calls();
    }
    if held.numbers.load(Ordering::Acquire) > 0 {
        return None;
    }
    held.closed.store(true, Ordering::Release);
    Some(held)
}

/// Calls `look` with each socket of ours, which is held meanwhile.
pub fn for_each(mut look: impl FnMut(&Held)) {
    for (number, chunk) in SOCKETS.iter().enumerate() {
        let Some(chunk) = chunk.get() else { break };
        for (place, socket) in chunk.iter().enumerate() {
            if socket.uses.another() {
                look(&Held::of_use(socket, index_of(number, place)));
            }
        }
    }
}

/// Waits for the calls at work on all sockets of ours that have begun before the exit did. All have
/// one time together: those on a device's sockets do not return any more.
pub fn await_calls() {
    let until = Instant::now() + at_work::LONGEST;
    for_each(|held| held.await_calls_until(until));
}

/// Resets the counts of calls at work on all sockets, in the child of a `fork`.
pub fn none_at_work() {
    SOCKETS.iter().map_while(|chunk| chunk.get()).flatten().for_each(Socket::none_at_work);
}

fn enter(fd: c_int, held: &Held) -> bool {
    let socket = held.socket();
    socket.uses.another();
    socket.numbers.fetch_add(1, Ordering::AcqRel);
    match table::set(fd, held.index()) {
        Ok(before) => {
            release(before);
            true
        }
        Err(table::BeyondTable) => {
            release(Some(held.index()));
            false
        }
    }
}

fn release(entry: Option<NonZeroU32>) {
    if let Some((socket, index)) = entry.and_then(|index| Some((at(index)?, index))) {
        socket.numbers.fetch_sub(1, Ordering::AcqRel);
        drop(Held::of_use(socket, index));
    }
}

fn at(index: NonZeroU32) -> Option<&'static Socket> {
    let index = index.get() as usize - 1;
    Some(&SOCKETS.get(index / CHUNK)?.get()?[index % CHUNK])
}

/// The first chunk that may have a free place.
static FREE_FROM: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn is_free(index: NonZeroU32) {
    FREE_FROM.fetch_min((index.get() as usize - 1) / CHUNK, Ordering::Relaxed);
}

fn reserve() -> Option<(&'static Socket, NonZeroU32)> {
    for (number, chunk) in SOCKETS.iter().enumerate().skip(FREE_FROM.load(Ordering::Relaxed)) {
        let chunk = chunk.get_or_init(|| Box::new([const { Socket::free() }; CHUNK]));
        if let Some(place) = chunk.iter().position(|socket| socket.uses.first()) {
            FREE_FROM.store(number, Ordering::Relaxed);
            return Some((&chunk[place], index_of(number, place)));
        }
    }
    None
}

fn index_of(number: usize, place: usize) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add((number * CHUNK + place) as u32)
}

#[cfg(test)]
mod tests;
