//! The kernel's interest: the events that it is asked to watch for.

use std::ffi::{c_int, c_short};
use std::time::Duration;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use rddp_real::{self as real, Errno, Wanted};

use super::pool::{Entry, Key};
use super::watches::{Watch, Watches, any, watches};
use crate::kinds::Ours;
use crate::socket::{self, Held};
use crate::sys::epoll_pool::pool;
use crate::wait::watched::Watched;

/// The events of a set that `poll` has too; the bits above them are flags.
const EVENTS: u32 = 0xffff;
pub(super) const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
pub(super) const EDGES: u32 = libc::EPOLLET as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// Updates the kernel's interest after a change of the state of a socket that is in an epoll set.
pub fn changed(held: &Held, fd: c_int) {
    refresh_all(held, fd, false);
}

/// Asks the kernel once more, so that an event which holds already makes another edge.
pub fn tell_again(held: &Held, fd: c_int) {
    refresh_all(held, fd, true);
}

fn refresh_all(held: &Held, fd: c_int, again: bool) {
    let mut watches = watches();
    let here = watches.of(fd);
    for watch in here {
        refresh(&mut watches, watch, again);
    }
    if held.has_other_numbers() {
        let same =
            |watch: &Watch| watch.fd != fd && entry_of(watch).is_some_and(|it| it.cookie() == held.cookie());
        let elsewhere: Vec<Watch> = watches.all().filter(same).collect();
        for watch in elsewhere {
            refresh(&mut watches, watch, again);
        }
    }
}

/// Updates the kernel's interest after the socket under `fd` has become one of a kind, or plain
/// again. A set may have had it before.
pub fn kind_changed(held: &Held, fd: c_int) {
    if any() && !watches().of(fd).is_empty() {
        held.set_watched(true);
        changed(held, fd);
    }
}

pub(super) fn entry_of(watch: &Watch) -> Option<&'static Entry> {
    pool()?.entry(watch.key)
}

/// Returns the part of these events that `poll` knows.
pub(super) fn of_poll(events: u32) -> c_short {
    (events & EVENTS) as u16 as c_short
}

/// Returns the events to ask the kernel for under this number.
pub(super) fn mask(fd: c_int, wanted: u32) -> u32 {
    let Some(watched) = Watched::of(fd) else { return wanted };
    let want = of_poll(wanted);
    // This comes first: it notes that a startup has begun, and the interest depends on that.
    let deadline = watched.deadline(want);
    let mut events = watched.interest(want);
    if deadline == Some(Duration::ZERO) {
        // There is something to report now. A socket that has ended is writable, so the kernel
        // reports it at once.
        events |= libc::POLLOUT;
    } else if watched.waits_by_edges(want) {
        // With ONESHOT each new look would arm the entry anew, for what still holds: the library
        // disarms it itself when it has told the program.
        let moving = (libc::POLLIN | libc::POLLOUT) as u16;
        return wanted & !(EVENTS | ONESHOT) | EDGES | u32::from(events as u16 | moving);
    }
    wanted & !EVENTS | u32::from(events as u16)
}

/// Makes the kernel watch for the socket's present interest; with `again` also if that is the same,
/// which makes a new edge. Returns whether the kernel was asked.
pub(super) fn refresh(watches: &mut Watches, watch: Watch, again: bool) -> bool {
    let Some(entry) = entry_of(&watch) else {
        watches.remove(watch);
        return false;
    };
    let has_a_time = match socket::hold(watch.fd) {
        Some(held) if held.cookie() == entry.cookie() => {
            if entry.wanted().events & EDGES != 0 {
                held.set_tells_edges();
            }
            let is_unsettled = !held.is_still_tcp() && !Ours::new(held, watch.fd).is_settled();
            watches.set_unsettled(watch, is_unsettled)
        }
        // The number is another socket's by now.
        Some(_) => return false,
        None => watches.set_unsettled(watch, false),
    };
    let wanted = entry.wanted();
    let mut mask = mask(watch.fd, wanted.events);
    if has_a_time && real::has_threads() {
        // A thread that sleeps does not know of this deadline. The socket is writable, which wakes
        // the thread, and it looks.
        mask |= libc::EPOLLOUT as u32;
    }
    let before = entry.asked.load(std::sync::atomic::Ordering::Relaxed);
    if entry.is_disarmed() || before == mask && !again {
        return false;
    }
    entry.asked.store(mask, std::sync::atomic::Ordering::Relaxed);
    ask(watch, mask).is_ok()
}

/// Takes an entry out of its waiting by edges, after an event: it waits as it asked to from then
/// on. Where it is to wait by edges still and the program is `told`, what holds makes one more.
pub(super) fn ends_edges(fd: c_int, epoll: c_int, key: Key, told: bool) {
    let mut watches = watches();
    let watch = watches.of(fd).into_iter().find(|known| known.key == key);
    let watch = watch.unwrap_or_else(|| {
        let watch = Watch { fd, epoll, key };
        watches.insert(watch);
        watch
    });
    refresh(&mut watches, watch, told);
}

fn ask(watch: Watch, mask: u32) -> Result<(), Errno> {
    let Watch { fd, epoll, key } = watch;
    let Key(data) = key;
    let wanted = Wanted { events: mask, data };
    if mask & EXCLUSIVE != 0 {
        // The kernel does not modify an entry with EPOLLEXCLUSIVE.
        real::control(epoll, EPOLL_CTL_DEL, fd, wanted)?;
        return real::control(epoll, EPOLL_CTL_ADD, fd, wanted);
    }
    real::control(epoll, EPOLL_CTL_MOD, fd, wanted)
}
