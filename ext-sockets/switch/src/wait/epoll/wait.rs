//! `epoll_wait`, `epoll_pwait`, `epoll_pwait2`.

use std::ffi::c_int;
use std::time::Duration;

use libc::epoll_event;
use rddp_real as real;
use rddp_stream::{Errno, Patience};

use super::interest::{ONESHOT, of_poll, refresh};
use super::pool::{Entry, Key, Pool};
use super::watches::{Watch, any_unsettled, watches};
use crate::sys::epoll_pool::pool;
use crate::wait::watched::Watched;
use crate::{kinds, socket, table};

/// Waits until the set `epoll` has an event for the program, or `timeout` is over. Returns the
/// number of events.
///
/// `sleep` makes the kernel's call, for at most the given time; the events it returns are
/// translated in place.
///
/// # Errors
/// [`Errno::PLAIN`]: no set has anything of ours, and nothing has been done. Otherwise the error of
/// `sleep`.
pub fn wait<'a>(
    epoll: c_int,
    timeout: Option<Duration>,
    mut sleep: impl FnMut(Option<Duration>) -> Result<&'a mut [epoll_event], Errno>,
) -> Result<usize, Errno> {
    if pool().is_none() && kinds::progress_other_sockets().is_none() {
        return Err(Errno::PLAIN);
    }
    let patience = Patience::new(false, timeout);
    let mut once_more = true;
    let mut no_signals = no_signals();
    loop {
        let nap = [kinds::progress_other_sockets(), patience.left(), deadline()].into_iter().flatten().min();
        drop(no_signals);
        let events = sleep(nap)?;
        let is_ours = |event: &epoll_event| pool().is_some_and(|pool| pool.is_key(event.u64));
        no_signals = (events.is_empty() || events.iter().any(is_ours)).then(self::no_signals).flatten();
        let is_over = patience.is_over();
        let count = events.len();
        let told = given_late(epoll, events);
        if told > 0 {
            return Ok(told);
        }
        let something_new = count > 0 || step();
        if is_over && !(something_new && once_more) {
            return Ok(0);
        }
        // A new interest may bring an event at once.
        once_more = !is_over;
    }
}

/// Blocks signals if there are unsettled sockets: their steps take several locks.
fn no_signals() -> Option<real::NoSignals> {
    (kinds::any_unsettled() || any_unsettled()).then(real::NoSignals::here)
}

/// Returns whether any set may have an entry of ours.
#[inline]
pub fn has_entries() -> bool {
    pool().is_some()
}

/// Translates the events of a call that began to sleep before there were entries, which another
/// thread may have made since. Returns the number of events that are left for the program.
pub fn given_late(epoll: c_int, events: &mut [epoll_event]) -> usize {
    pool().map_or(events.len(), |pool| translate(pool, epoll, events))
}

/// Returns how long to sleep at most, for the sake of unsettled sockets, and updates the kernel's
/// interest in them.
fn deadline() -> Option<Duration> {
    if !any_unsettled() {
        return None;
    }
    let mut watches = watches();
    let all = watches.unsettled();
    all.into_iter()
        .filter_map(|watch| {
            refresh(&mut watches, watch, false);
            Watched::of(watch.fd)?.deadline(0)
        })
        .min()
}

/// Takes a step for each unsettled socket. Returns whether the kernel's interest has changed.
fn step() -> bool {
    if !any_unsettled() {
        return false;
    }
    let all = watches().unsettled();
    let mut something_new = false;
    for watch in all {
        let Some(entry) = super::interest::entry_of(&watch) else { continue };
        let before = entry.asked.load(std::sync::atomic::Ordering::Relaxed);
        if let Some(watched) = Watched::of(watch.fd) {
            let _ = watched.current(0, of_poll(entry.wanted().events));
        }
        refresh(&mut watches(), watch, false);
        something_new |= entry.asked.load(std::sync::atomic::Ordering::Relaxed) != before;
    }
    something_new
}

/// Translates events in place, and drops those that do not concern the program. Returns how many
/// are left.
fn translate(pool: &Pool, epoll: c_int, events: &mut [epoll_event]) -> usize {
    let mut told = 0;
    for at in 0..events.len() {
        let event = events[at];
        let translated = if pool.is_key(event.u64) { of_entry(pool, epoll, event) } else { Some(event) };
        if let Some(event) = translated {
            events[told] = event;
            told += 1;
        }
    }
    told
}

/// Translates an event of ours; `None` if it does not concern the program.
fn of_entry(pool: &Pool, epoll: c_int, event: epoll_event) -> Option<epoll_event> {
    let key = Key(event.u64);
    // If the key has no entry, it was deleted after the kernel reported the event.
    let entry = pool.entry(key)?;
    let wanted = entry.wanted();
    let once = wanted.events & ONESHOT != 0;
    if once && entry.waits_by_edges() {
        return of_once_by_edges(entry, epoll, key, event);
    }
    // This precedes any change of the socket's state, which could arm the entry again.
    entry.set_disarmed(once);
    let number = number(entry);
    let revents = number.and_then(|fd| current(fd, event.events, wanted.events)).unwrap_or(event.events);
    if revents != 0 {
        if let Some(fd) = number.filter(|_| entry.waits_by_edges()) {
            super::interest::ends_edges(fd, epoll, key, true);
        }
        return Some(epoll_event { events: revents, u64: wanted.data });
    }
    entry.set_disarmed(false);
    if let Some(fd) = number {
        let mut watches = watches();
        let watch = Watch { fd, epoll, key };
        let here = watches.of(fd).into_iter().find(|known| known.key == key);
        let watch = here.unwrap_or_else(|| {
            watches.insert(watch);
            watch
        });
        refresh(&mut watches, watch, once);
    }
    None
}

/// Translates an edge of an entry with `EPOLLONESHOT`, which the kernel does not disarm: of the
/// threads that meet one, only the first tells the program.
fn of_once_by_edges(entry: &Entry, epoll: c_int, key: Key, event: epoll_event) -> Option<epoll_event> {
    let wanted = entry.wanted();
    if entry.is_disarmed() {
        return None;
    }
    let number = number(entry);
    let revents = number.and_then(|fd| current(fd, event.events, wanted.events)).unwrap_or(event.events);
    if revents != 0 {
        return entry.disarms().then_some(epoll_event { events: revents, u64: wanted.data });
    }
    if let Some(fd) = number {
        super::interest::ends_edges(fd, epoll, key, false);
    }
    None
}

fn current(fd: c_int, ready: u32, wanted: u32) -> Option<u32> {
    let revents = Watched::of(fd)?.current(of_poll(ready), of_poll(wanted))?;
    Some(u32::from(revents as u16))
}

/// Returns a number under which this process has the socket of an entry.
fn number(entry: &Entry) -> Option<c_int> {
    let (fd, cookie) = (entry.fd(), entry.cookie());
    let is_its = |fd: &c_int| socket::hold(*fd).is_some_and(|held| held.cookie() == cookie);
    if is_its(&fd) {
        return Some(fd);
    }
    if cookie == 0 || real::cookie(fd) == Some(cookie) {
        return None;
    }
    table::within(0, c_int::MAX).find(is_its)
}
