//! Unsettled sockets: they have something to do that no call of the program does, such as going on
//! with a startup, or giving octets to TCP.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rddp_real as real;
use rddp_stream::{self as stream, Errno};

use super::kind::Ours;
use crate::socket::{self, Held};
use crate::table;

/// The sockets that were found unsettled.
pub(super) type Unsettled = VecDeque<UnsettledSocket>;

/// A socket, and the number of it that was used last.
#[derive(Clone, Copy)]
pub(super) struct UnsettledSocket {
    fd: c_int,
    index: NonZeroU32,
}

impl UnsettledSocket {
    /// Returns the socket by a number of it that is open: the one listed may have been closed.
    fn ours(self) -> Option<Ours> {
        let held = socket::hold_index(self.index)?;
        let is_its = |fd: &c_int| table::entry(*fd) == Some(self.index);
        let fd = Some(self.fd).filter(is_its).or_else(|| table::within(0, c_int::MAX).find(is_its));
        if fd.is_none() {
            held.set_listed(false);
        }
        Some(Ours::new(held, fd?))
    }
}

static UNSETTLED: Mutex<Unsettled> = Mutex::new(VecDeque::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The largest number of sockets that one wait takes steps for: clients that connect and send
/// nothing make many.
const BUDGET: usize = 16;

pub(super) fn unsettled() -> real::Locked<Unsettled> {
    real::lock(&UNSETTLED)
}

/// Lists this socket as unsettled.
#[cold]
pub(super) fn add(held: &Held, fd: c_int) {
    if !held.set_listed(true) {
        put(UnsettledSocket { fd, index: held.index() });
    }
}

fn put(socket: UnsettledSocket) {
    let mut unsettled = unsettled();
    unsettled.push_back(socket);
    COUNT.store(unsettled.len(), Ordering::Release);
}

fn take() -> Option<UnsettledSocket> {
    let mut unsettled = unsettled();
    let socket = unsettled.pop_front();
    COUNT.store(unsettled.len(), Ordering::Release);
    socket
}

/// Returns whether any socket is unsettled.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Takes a step for the unsettled sockets of this process. A thread that sleeps until its peer has
/// answered, or has sent the rest of an FPDU, may be the one that this peer waits for. Returns when
/// to do so again at the latest, if octets of the program's wait for it: TCP would send them,
/// whatever the program sleeps for.
#[inline]
pub(crate) fn progress_other_sockets() -> Option<Duration> {
    match COUNT.load(Ordering::Acquire) {
        0 => None,
        count => see_to(count.min(BUDGET)),
    }
}

/// Sleeps until a call on `fd` that waits for octets, or for a connection, would not block, or
/// until no unsettled socket has octets to send, so that the call itself may sleep.
///
/// # Errors
/// EINTR: a signal came, and the call must not be restarted.
pub(crate) fn sleep_beside(fd: c_int) -> Result<(), Errno> {
    while let Some(nap) = progress_other_sockets() {
        match real::sleep_on(fd, libc::POLLIN, nap) {
            Ok(false) => {}
            Err(Errno::INTERRUPTED) if stream::handlers_restart() => {}
            Err(Errno::INTERRUPTED) => return Err(Errno::INTERRUPTED),
            Ok(true) | Err(_) => break,
        }
    }
    Ok(())
}

#[cold]
fn see_to(count: usize) -> Option<Duration> {
    let _no_signals = real::NoSignals::here();
    let mut nap: Option<Duration> = None;
    for socket in std::iter::from_fn(take).take(count) {
        let Some(ours) = socket.ours() else { continue };
        if ours.step() {
            nap = [nap, ours.nap()].into_iter().flatten().min();
            put(UnsettledSocket { fd: ours.fd(), ..socket });
        } else {
            ours.held().set_listed(false);
        }
    }
    nap
}
