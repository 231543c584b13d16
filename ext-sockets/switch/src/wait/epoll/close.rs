//! The end of entries: like the kernel's, they end with the last number of a socket, in whatever
//! process.

use std::ffi::c_int;

use libc::EPOLL_CTL_DEL;
use rddp_real::{self as real, Wanted};

use super::interest::entry_of;
use super::pool::{Entry, Key, Pool};
use super::watches::{any, watches};
use crate::socket::{self, Held};
use crate::sys::epoll_pool::{make_pool, pool};
use crate::{process, switch, table};

/// Prepares for the end of `fd`, which is about to be closed; it may not be the last number of its
/// socket.
#[inline]
pub fn closing(fd: c_int) {
    if any() {
        forget_number(fd);
    }
}

#[cold]
fn forget_number(fd: c_int) {
    let here = watches().of(fd);
    if here.is_empty() || !process::owns_table() {
        return;
    }
    let held = socket::hold(fd);
    let mut watches = watches();
    for watch in here {
        watches.remove(watch);
        match (&held, entry_of(&watch), pool()) {
            // The entry ends with the last number of the socket.
            (Some(held), Some(entry), _) if held.cookie() == entry.cookie() => {
                watches.add_orphan(held.cookie(), watch);
            }
            (_, Some(entry), Some(pool)) if !entry.is_shared() => pool.free(watch.key),
            _ => {}
        }
    }
}

/// The state of a socket in other processes, when its last number of this process is about to be
/// closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// No other process.
    Gone,
    /// Another process has it, and the entries live on in that process's sets.
    Held,
    /// This cannot be known, as the socket was never connected.
    Unknown,
}

/// Ends the entries of a socket that no other process needs, when its last number of this process
/// is about to be closed.
pub fn gone(held: &Held, elsewhere: Elsewhere) {
    if !held.is_watched() {
        return;
    }
    let mut watches = watches();
    let orphans = watches.orphans(held.cookie());
    watches.forget_orphans(held.cookie());
    drop(watches);
    let Some(pool) = pool() else { return };
    for watch in orphans {
        let lives = match elsewhere {
            Elsewhere::Gone => false,
            Elsewhere::Held => true,
            Elsewhere::Unknown => entry_of(&watch).is_some_and(Entry::is_shared),
        };
        if !lives {
            pool.free(watch.key);
        }
    }
}

/// Takes `fd` out of the sets. The program closes it, its last number, while the library keeps the
/// socket for a while: no set may report it.
pub fn withdraw(held: &Held, fd: c_int) {
    if !held.is_watched() {
        return;
    }
    for watch in watches().orphans(held.cookie()) {
        if watch.fd == fd && entry_of(&watch).is_some_and(|entry| !entry.is_shared()) {
            let _ = real::control(watch.epoll, EPOLL_CTL_DEL, fd, Wanted { events: 0, data: 0 });
        }
    }
}

/// Notes that `from` has got another number.
#[inline]
pub fn duplicated(from: c_int) {
    if any() {
        share(|fd, epoll| fd == from || epoll == from);
    }
}

/// Prepares for a fork: the child will have the same sets. One that the library does not know yet
/// must lead to the same entries in both processes.
pub fn forking() {
    if table::any() || switch::is_on() {
        make_pool();
    }
    if any() {
        share(|_, _| true);
    }
}

fn share(which: impl Fn(c_int, c_int) -> bool) {
    let watches = watches();
    let those = watches.all().filter(|watch| which(watch.fd, watch.epoll));
    those.filter_map(|watch| entry_of(&watch)).for_each(Entry::set_shared);
}

/// Frees an entry whose place another entry has taken.
pub(super) fn replaced(pool: &Pool, before: Key) {
    if pool.entry(before).is_some_and(|entry| !entry.is_shared()) {
        pool.free(before);
    }
}
