//! Sockets that have something to do that no call of the program is at: a startup to go on with, octets to give to TCP.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rddp_real as real;
use rddp_stream::{self as stream, Stream};

use super::framed::{CALLS, Framed};
use crate::socket::{self, Held};
use crate::{table, wait};

/// Sockets that were seen to be unsettled.
pub(super) type Unsettled = VecDeque<Place>;

/// A socket, and the number of it that was used last.
#[derive(Clone, Copy)]
pub(super) struct Place {
    fd: c_int,
    index: NonZeroU32,
}

impl Place {
    /// The socket, by a number of it that is open: this one may have been closed.
    fn framed(self) -> Option<Framed> {
        let held = socket::hold_index(self.index)?;
        let is_its = |fd: &c_int| table::entry(*fd) == Some(self.index);
        let fd = Some(self.fd).filter(is_its).or_else(|| table::within(0, c_int::MAX).find(is_its));
        if fd.is_none() {
            held.set_listed(false);
        }
        let fd = fd.filter(|_| held.state().is_some())?;
        Some(Framed { held, fd })
    }
}

static UNSETTLED: Mutex<Unsettled> = Mutex::new(VecDeque::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many are seen to in one wait: strangers who connect and say nothing make many.
const BUDGET: usize = 16;

pub(super) fn unsettled() -> real::Locked<Unsettled> {
    real::lock(&UNSETTLED)
}

/// Notes that this one is.
#[cold]
pub(super) fn note(held: &Held, fd: c_int) {
    if !held.set_listed(true) {
        put(Place { fd, index: held.index() });
    }
}

fn put(place: Place) {
    let mut unsettled = unsettled();
    unsettled.push_back(place);
    COUNT.store(unsettled.len(), Ordering::Release);
}

fn take() -> Option<Place> {
    let mut unsettled = unsettled();
    let place = unsettled.pop_front();
    COUNT.store(unsettled.len(), Ordering::Release);
    place
}

/// Returns whether there are any.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Takes a step for sockets of this process that have something to do before octets can flow: a
/// thread that sleeps until its peer has answered, or has sent the rest of an FPDU, may be the one
/// that the peer waits for. Returns when to do that again at the latest, if octets of the program's
/// wait for it: TCP would send them, whatever the program sleeps for.
#[inline]
pub(crate) fn progress_other_sockets() -> Option<Duration> {
    match COUNT.load(Ordering::Acquire) {
        0 => None,
        count => see_to(count.min(BUDGET)),
    }
}

/// Sleeps until a call on `fd` that waits for octets, or for a connection, would not; or until
/// nothing waits to go out, so that the call may sleep.
///
/// # Errors
/// `EINTR`: a signal came, and the call is not to be made again.
pub(crate) fn sleep_beside(fd: c_int) -> Result<(), c_int> {
    let before = real::errno();
    let mut result = Ok(());
    while let Some(nap) = progress_other_sockets() {
        match real::sleep_on(fd, libc::POLLIN, nap) {
            Ok(false) => {}
            Err(libc::EINTR) if stream::handlers_restart() => {}
            Err(libc::EINTR) => {
                result = Err(libc::EINTR);
                break;
            }
            Ok(true) | Err(_) => break,
        }
    }
    real::set_errno(before);
    result
}

#[cold]
fn see_to(count: usize) -> Option<Duration> {
    let _no_signals = real::NoSignals::here();
    let mut nap: Option<Duration> = None;
    for place in std::iter::from_fn(take).take(count) {
        let Some(framed) = place.framed() else { continue };
        if framed.step_if_unsettled() {
            nap = [nap, framed.nap()].into_iter().flatten().min();
            put(Place { fd: framed.fd, ..place });
        } else {
            framed.held.set_listed(false);
        }
    }
    nap
}

impl Framed {
    /// Whether it was unsettled. What is wrong with it its own calls are told.
    fn step_if_unsettled(&self) -> bool {
        let (Ok(state), Some(at_work)) = (self.state(), self.held.work_on(self.fd)) else { return false };
        let before = state.condition();
        if before.is_settled() {
            return false;
        }
        Stream::new(self.fd, state, &CALLS).called_by(&at_work).step();
        if self.held.is_watched() && state.condition() != before {
            wait::changed(&self.held, self.fd);
        }
        true
    }

    /// Returns when to take another step, if octets wait for it.
    fn nap(&self) -> Option<Duration> {
        let stream = Stream::new(self.fd, self.held.state()?, &CALLS);
        stream.owes().then(|| stream.recheck())
    }
}
