//! `close`: what is owed to TCP goes out before the last number of the last holder does.

use std::ffi::c_int;
use std::time::Duration;

use super::{linger, store};
use crate::next::CALLS;
use crate::socket::{self, Held};
use crate::stream::{self, State, Stream};
use crate::{next, raw_mode, table, wait};

/// `fd` is about to be closed.
#[inline]
pub fn closing(fd: c_int) {
    wait::closing(fd);
    if let Some(held) = socket::forget_before_close(fd) {
        let before = next::errno();
        last_number(&held, fd);
        next::set_errno(before);
    }
}

#[cold]
fn last_number(held: &Held, fd: c_int) {
    if held.settings().raw {
        raw_mode::closed(held.cookie());
    }
    let Some(state) = held.state() else { return wait::gone(held, false) };
    if stream::is_confined() {
        // It may make none of the calls that follow; its parent sees to them.
        return;
    }
    if !held.is_under(fd) {
        // Closed behind our back, and the number is something else's by now: nothing can be sent any more.
        leave(held, state);
        return;
    }
    let stream = Stream::new(fd, state, &CALLS);
    let owes = stream.owes() && stream.finish(Duration::ZERO) == Ok(false);
    see_callers_off(held, state, fd, owes);
    if owes {
        // It leaves when that is done.
        wait::withdraw(held, fd);
        linger::see_to(held, fd);
    } else {
        leave(held, state);
    }
}

/// Waits for calls that other threads are in: when the number is closed it may be another file's.
fn see_callers_off(held: &Held, state: &State, fd: c_int, owes: bool) {
    if held.other_callers() == 0 {
        return;
    }
    let me = std::process::id();
    let alone = !state.is_held(|pid| pid != me && next::is_alive(pid));
    if alone && !owes {
        // Who sleeps would sleep on, holding a connection that nobody can reach any more.
        next::shut_both(fd);
    }
    let presence = held.presence();
    for _ in 0..LOOKS {
        // Who sleeps asks when it wakes.
        if held.other_callers() <= presence.asleep() {
            break;
        }
        std::thread::sleep(LOOK);
    }
}

/// A call that is awake takes microseconds, but its thread may have to wait for a processor; and it may be this very thread's, which a signal has
/// interrupted.
const LOOK: Duration = Duration::from_micros(50);
const LOOKS: u32 = 4000;

/// Whether another process holds it still.
pub(super) fn leave(held: &Held, state: &State) -> bool {
    state.leave(std::process::id());
    let is_held = state.is_held(next::is_alive);
    wait::gone(held, is_held);
    if !is_held {
        store::leave(held.cookie());
    }
    is_held
}

/// The process is about to exit, which closes all that is open.
pub fn exiting() {
    if !socket::were_any() || stream::is_confined() {
        return;
    }
    let open: Vec<c_int> = table::within(0, c_int::MAX).collect();
    open.into_iter().for_each(closing);
    linger::finish();
    store::leave_all();
}
