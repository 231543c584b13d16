//! Sockets that have something to do that no call of the program is at: a startup to go on with, octets to give to TCP.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Framed;
use crate::next::{self, CALLS};
use crate::socket::Held;
use crate::stream::Stream;
use crate::wait;

/// Numbers of sockets that were seen to be unsettled.
pub(super) type Unsettled = VecDeque<c_int>;

static UNSETTLED: Mutex<Unsettled> = Mutex::new(VecDeque::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many are seen to in one wait: strangers who connect and say nothing make many.
const BUDGET: usize = 16;

pub(super) fn unsettled() -> next::Locked<Unsettled> {
    next::lock(&UNSETTLED)
}

/// Notes that this one is.
#[cold]
pub(super) fn note(held: &Held, fd: c_int) {
    if !held.set_listed(true) {
        put(fd);
    }
}

fn put(fd: c_int) {
    let mut unsettled = unsettled();
    unsettled.push_back(fd);
    COUNT.store(unsettled.len(), Ordering::Release);
}

fn take() -> Option<c_int> {
    let mut unsettled = unsettled();
    let fd = unsettled.pop_front();
    COUNT.store(unsettled.len(), Ordering::Release);
    fd
}

/// Whether there are any.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Takes a step for sockets of this process that have something to do before octets can flow: a thread that sleeps until its peer
/// has answered, or has sent the rest of an FPDU, may be the one that the peer waits for.
#[inline]
pub(crate) fn see_to_others() {
    let count = COUNT.load(Ordering::Acquire);
    if count > 0 {
        see_to(count.min(BUDGET));
    }
}

#[cold]
fn see_to(count: usize) {
    let _no_signals = next::NoSignals::here();
    for fd in std::iter::from_fn(take).take(count) {
        let Ok(Some(framed)) = super::of(fd) else { continue };
        if framed.step_if_unsettled() {
            put(fd);
        } else {
            framed.held.set_listed(false);
        }
    }
}

impl Framed {
    /// Whether it was unsettled. What is wrong with it its own calls are told.
    fn step_if_unsettled(&self) -> bool {
        let (Ok(state), Some(at_work)) = (self.state(), self.held.work_on(self.fd)) else { return false };
        let before = state.mood();
        if before.is_settled() {
            return false;
        }
        Stream::new(self.fd, state, &CALLS).called_by(&at_work).step();
        if self.held.is_watched() && state.mood() != before {
            wait::changed(&self.held, self.fd);
        }
        true
    }
}
