//! `epoll_ctl`.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use rddp_real::{self as real, Wanted};
use rddp_stream::Errno;

use super::interest::{self, entry_of, refresh};
use super::pool::{Key, Pool};
use super::watches::{Watch, any, watches};
use super::{close, sets};
use crate::sys::epoll_pool::{make_pool, pool};
use crate::{socket, switch, table};

/// Returns whether [`control`] must be asked.
#[inline]
pub fn is_concerned() -> bool {
    table::any() || switch::is_on() || pool().is_some()
}

/// Makes `epoll_ctl`.
///
/// # Errors
/// [`Errno::PLAIN`]: the set and the descriptor are for the kernel alone. Otherwise the kernel's
/// error.
pub fn control(epoll: c_int, operation: c_int, fd: c_int, wanted: Wanted) -> Result<(), Errno> {
    let _no_signals = any().then(real::NoSignals::here);
    match operation {
        EPOLL_CTL_ADD => add(epoll, fd, wanted),
        EPOLL_CTL_MOD => modify(epoll, fd, wanted),
        EPOLL_CTL_DEL => delete(epoll, fd),
        _ => Err(Errno::PLAIN),
    }
}

fn add(epoll: c_int, fd: c_int, wanted: Wanted) -> Result<(), Errno> {
    let cookie = cookie_to_own(fd, wanted.data).ok_or(Errno::PLAIN)?;
    let pool = make_pool().ok_or(Errno::PLAIN)?;
    put_anew(pool, epoll, fd, cookie, wanted).map(drop)
}

/// Adds a descriptor to a set that does not have it.
pub(super) fn put_anew(
    pool: &Pool,
    epoll: c_int,
    fd: c_int,
    cookie: u64,
    wanted: Wanted,
) -> Result<Watch, Errno> {
    put(pool, Watch { fd, epoll, key: Key(0) }, cookie, wanted, EPOLL_CTL_ADD)
}

/// Returns the cookie of a descriptor that gets an entry of ours: a socket that is ours or may
/// become so, or any file whose data looks like a key.
fn cookie_to_own(fd: c_int, data: u64) -> Option<u64> {
    if let Some(held) = socket::hold_checked(fd) {
        return Some(held.cookie());
    }
    let looks_like_key = pool().is_some_and(|pool| pool.is_key(data));
    // For a socket that is not connected, the policy decides at `connect`.
    let may_be_ours = || switch::is_on() && real::tcp_state(fd) == Some(real::TCP_CLOSE);
    (looks_like_key || may_be_ours()).then(|| real::cookie(fd).unwrap_or(0))
}

/// Puts a new entry into a set: by ADD, or by MOD in place of the present one.
fn put(pool: &Pool, at: Watch, cookie: u64, wanted: Wanted, operation: c_int) -> Result<Watch, Errno> {
    let Watch { fd, epoll, .. } = at;
    let held = socket::hold(fd);
    if let Some(held) = &held {
        held.set_watched(true);
    }
    let (entry, key) = pool.claim(fd, cookie, wanted).ok_or(Errno::PLAIN)?;
    let watch = Watch { key, ..at };
    let mask = interest::mask(fd, wanted.events);
    entry.asked.store(mask, Ordering::Relaxed);
    let mut watches = watches();
    if let Err(errno) = real::control(epoll, operation, fd, Wanted { events: mask, data: key.0 }) {
        pool.free(key);
        return Err(errno);
    }
    if let Some(before) = watches.insert(watch) {
        // The old entry is that of a set which was closed and had this number, or of a socket that
        // was closed without our notice.
        close::replaced(pool, before);
    }
    // The state of the socket may have changed in between.
    refresh(&mut watches, watch, false);
    Ok(watch)
}

fn modify(epoll: c_int, fd: c_int, wanted: Wanted) -> Result<(), Errno> {
    let Some(watch) = locate(epoll, fd) else { return take_over(epoll, fd, wanted) };
    let entry = entry_of(&watch).ok_or(Errno::PLAIN)?;
    let mut watches = watches();
    let (before, was_disarmed) = (entry.wanted(), entry.is_disarmed());
    entry.want(wanted);
    let mask = interest::mask(fd, wanted.events);
    entry.asked.store(mask, Ordering::Relaxed);
    if let Err(errno) = real::control(epoll, EPOLL_CTL_MOD, fd, Wanted { events: mask, data: watch.key.0 }) {
        entry.want(before);
        entry.set_disarmed(was_disarmed);
        return Err(errno);
    }
    refresh(&mut watches, watch, false);
    Ok(())
}

/// Makes an entry for a descriptor that was in the set before it was ours, or whose new data looks
/// like a key.
fn take_over(epoll: c_int, fd: c_int, wanted: Wanted) -> Result<(), Errno> {
    let cookie = cookie_to_own(fd, wanted.data).ok_or(Errno::PLAIN)?;
    let pool = make_pool().ok_or(Errno::PLAIN)?;
    put(pool, Watch { fd, epoll, key: Key(0) }, cookie, wanted, EPOLL_CTL_MOD).map(drop)
}

fn delete(epoll: c_int, fd: c_int) -> Result<(), Errno> {
    let watch = locate(epoll, fd).ok_or(Errno::PLAIN)?;
    let mut watches = watches();
    real::control(epoll, EPOLL_CTL_DEL, fd, Wanted { events: 0, data: 0 })?;
    watches.remove(watch);
    if let Some(pool) = pool() {
        pool.free(watch.key);
    }
    Ok(())
}

/// Returns the entry of ours that a set has for the file open under `fd`.
fn locate(epoll: c_int, fd: c_int) -> Option<Watch> {
    let pool = pool()?;
    let known = if any() { watches().find(fd, epoll) } else { None };
    let held = socket::hold(fd);
    if known.is_none() && held.is_none() {
        return None;
    }
    let cookie = held.map(|held| held.cookie()).or_else(|| real::cookie(fd)).unwrap_or(0);
    let is_its = |watch: &Watch| pool.entry(watch.key).is_some_and(|entry| entry.cookie() == cookie);
    known.filter(is_its).or_else(|| {
        // The set may have another number, or this process may have inherited the entry from its
        // parent.
        let key = Key(sets::data(epoll, fd)?);
        let watch = Watch { fd, epoll, key };
        (pool.is_key(key.0) && is_its(&watch)).then(|| {
            watches().insert(watch);
            watch
        })
    })
}
