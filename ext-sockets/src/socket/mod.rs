//! One socket that is ours: what the program asked of it, under however many numbers it is open.
//!
//! Sockets live in chunks that are never freed, and are used again, so that a number's entry always leads to one; [`hold`]
//! makes sure that it is the right one for as long as it is looked at.

mod allow;
mod kept;
mod options;
mod settings;

use std::ffi::c_int;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::race::OnceBox;

use crate::{next, process, table};

pub use allow::{Care, care};
pub use kept::Kept;
pub use options::{
    DDP_CRC, DDP_GATHER, DDP_IRD, DDP_LARGEST_SEND, DDP_MARKERS, DDP_MODE_INFO, DDP_ORD, DDP_PRIVATE_DATA,
    DDP_PROGRESS, DDP_ROLE, DDP_RTR, DDPMODE, SOL_DDP, Value, get, set,
};
pub use settings::{Gather, Mode, Role, Settings};

/// How many sockets can be ours at a time.
pub const MAX_SOCKETS: usize = CHUNKS * CHUNK;

const CHUNKS: usize = 1024;
const CHUNK: usize = 64;

static SOCKETS: [OnceBox<[Socket; CHUNK]>; CHUNKS] = [const { OnceBox::new() }; CHUNKS];

/// See the module.
#[derive(Debug)]
pub struct Socket {
    /// The numbers it is open under and the calls that look at it; 0 when it is free.
    uses: AtomicU32,
    cookie: AtomicU64,
    /// The settings' own, for calls that may come in a signal handler, in the middle of one that holds the lock.
    mode: AtomicI32,
    settings: Mutex<Settings>,
}

impl Socket {
    const fn free() -> Self {
        Socket {
            uses: AtomicU32::new(0),
            cookie: AtomicU64::new(0),
            mode: AtomicI32::new(Mode::Off as i32),
            settings: Mutex::new(Settings::DEFAULT),
        }
    }

    /// Whether its octets go where any socket's go, or will when it is connected. Locks nothing.
    #[inline]
    pub fn is_still_tcp(&self) -> bool {
        self.mode.load(Ordering::Acquire) <= Mode::Asked as i32
    }

    /// Whether DDPMODE was asked for. Locks nothing.
    #[inline]
    pub fn is_in_ddpmode(&self) -> bool {
        self.mode.load(Ordering::Acquire) != Mode::Off as i32
    }

    /// What is known of it.
    pub fn settings(&self) -> Locked<'_> {
        // Whatever panicked, each field makes sense by itself.
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { mode: &self.mode, settings }
    }

    /// Whether it is this socket that is open under `fd`, and not another since.
    pub fn is_under(&self, fd: c_int) -> bool {
        next::cookie(fd) == Some(self.cookie.load(Ordering::Relaxed))
    }

    fn reserve(&self) -> bool {
        self.uses.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn use_again(&self) -> bool {
        self.uses
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |uses| (uses != 0).then(|| uses + 1))
            .is_ok()
    }

    fn release(&self) {
        self.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The settings of a socket, for one to look at and change at a time.
#[derive(Debug)]
pub struct Locked<'a> {
    mode: &'a AtomicI32,
    settings: MutexGuard<'a, Settings>,
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
        self.mode.store(self.settings.mode as i32, Ordering::Release);
    }
}

/// A socket of ours, not used for another while this lives.
#[derive(Debug)]
pub struct Held {
    socket: &'static Socket,
    index: NonZeroU32,
}

impl Deref for Held {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        self.socket
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.socket.release();
    }
}

/// The socket under `fd`, if it is one of ours.
#[inline]
pub fn hold(fd: c_int) -> Option<Held> {
    table::entry(fd).and_then(|index| hold_entry(fd, index))
}

/// The socket under `fd`; a number under which something else is open by now is forgotten.
pub fn hold_checked(fd: c_int) -> Option<Held> {
    let held = hold(fd)?;
    if held.is_under(fd) {
        return Some(held);
    }
    drop(held);
    forget(fd);
    None
}

#[cold]
fn hold_entry(fd: c_int, index: NonZeroU32) -> Option<Held> {
    let socket = at(index)?;
    if !socket.use_again() {
        return None;
    }
    let held = Held { socket, index };
    // It may have been closed, and used for another, before it was held.
    (table::entry(fd) == Some(index)).then_some(held)
}

/// Makes the socket under `fd` ours. `None` when it is no socket, when too many are,
/// or when the table is another process's.
pub fn adopt(fd: c_int, settings: Settings) -> Option<Held> {
    if !process::owns_table() {
        return None;
    }
    let cookie = next::cookie(fd)?;
    let (socket, index) = reserve()?;
    socket.cookie.store(cookie, Ordering::Relaxed);
    *socket.settings() = settings;
    // What the caller holds; the entry has the first use.
    socket.use_again();
    let held = Held { socket, index };
    if !enter(fd, index) {
        socket.release();
        return None;
    }
    Some(held)
}

/// `to` has become another number of `from`.
pub fn share(from: &Held, to: c_int) {
    if !process::owns_table() {
        return;
    }
    if from.socket.use_again() && !enter(to, from.index) {
        from.socket.release();
    }
}

/// Nothing of ours is open under `fd` any more.
#[inline]
pub fn forget(fd: c_int) {
    if table::entry(fd).is_some() && process::owns_table() {
        leave(table::clear(fd));
    }
}

fn enter(fd: c_int, index: NonZeroU32) -> bool {
    match table::set(fd, index) {
        Ok(before) => {
            leave(before);
            true
        }
        Err(table::BeyondTable) => false,
    }
}

fn leave(entry: Option<NonZeroU32>) {
    if let Some(socket) = entry.and_then(at) {
        socket.release();
    }
}

fn at(index: NonZeroU32) -> Option<&'static Socket> {
    let index = index.get() as usize - 1;
    Some(&SOCKETS.get(index / CHUNK)?.get()?[index % CHUNK])
}

fn reserve() -> Option<(&'static Socket, NonZeroU32)> {
    for (number, chunk) in SOCKETS.iter().enumerate() {
        let chunk = chunk.get_or_init(|| Box::new([const { Socket::free() }; CHUNK]));
        if let Some(place) = chunk.iter().position(Socket::reserve) {
            let index = NonZeroU32::MIN.saturating_add((number * CHUNK + place) as u32);
            return Some((&chunk[place], index));
        }
    }
    None
}

#[cfg(test)]
mod tests;
