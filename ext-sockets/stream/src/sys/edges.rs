//! Sleeps on the socket that an event ends, and not a state: see [`EdgeSet`].

use std::ffi::{c_int, c_short};
use std::os::fd::RawFd;
use std::time::Duration;

use libc::{POLLIN, POLLOUT, POLLRDHUP};

use super::{EdgeSet, Kernel, held, is_confined};
use crate::Errno;

/// The events that end a sleep by edges.
const ALL: c_short = POLLIN | POLLOUT | POLLRDHUP;
/// Events that `poll` reports whether it is asked or not, and for ever.
const BROKEN: c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

impl Kernel<'_> {
    /// Sleeps until something happens on the socket, whatever already holds, or for the time that
    /// `look` returns.
    ///
    /// `look` is called when no event can be missed any more. It looks under its lock for what the
    /// caller waits for; if that is there it returns `None`, and there is no sleep. Else it [notes
    /// itself](crate::sleepers::Sleepers) as a sleeper before it gives the lock back, and returns
    /// the note and how long to sleep at most (`None`: without limit).
    ///
    /// A [confined](super::confine) process, and one without a descriptor for a set, sleeps on what
    /// does not hold, and for `recheck` at most.
    ///
    /// # Errors
    /// Those of `look`; `EINTR`; `EBADF` if the number was closed meanwhile.
    pub(crate) fn sleep_by_edges<N>(
        &self,
        recheck: Duration,
        look: impl FnOnce() -> Result<Option<(N, Option<Duration>)>, Errno>,
    ) -> Result<(), Errno> {
        if is_confined() {
            return self.sleep_on_the_rest(recheck, look);
        }
        let cookie = self.cookie()?;
        let set = EdgeSet::take(self.calls, self.fd, cookie);
        let registered = set.and_then(|mut set| set.register(self.fd, cookie, 0).map(|_| set));
        let Ok(mut set) = registered else { return self.sleep_on_the_rest(recheck, look) };
        // What holds now, and what came since the last sleep, is seen by the look.
        set.collect(|_, _| {});
        let Some((_note, longest)) = look()? else { return Ok(()) };
        self.asleep(|| set.sleep(longest)).map(drop)
    }

    /// Sleeps as [`sleep_by_edges`](Self::sleep_by_edges) does, while signals are held back, which
    /// leave it in no way of their own. `look` returns one descriptor more, which ends the sleep
    /// when it is readable. Without one the sleep ends after `recheck`.
    pub(crate) fn sleep_with_signals_held<N>(
        &self,
        recheck: Duration,
        look: impl FnOnce() -> Result<Option<(N, Option<Duration>, Option<RawFd>)>, Errno>,
    ) -> Result<(), Errno> {
        let cookie = self.cookie()?;
        let set = EdgeSet::take(self.calls, self.fd, cookie);
        let registered = set.and_then(|mut set| set.register(self.fd, cookie, 0).map(|_| set));
        let Ok(mut set) = registered else {
            let Some((_note, longest, _)) = look()? else { return Ok(()) };
            let longest = longest.unwrap_or(recheck).min(recheck);
            return Kernel { fd: -1, ..*self }.poll(0, Some(longest)).map(drop);
        };
        set.collect(|_, _| {});
        let Some((_note, longest, also)) = look()? else { return Ok(()) };
        let watched = also.filter(|fd| set.watch(*fd));
        let longest = if watched.is_some() { longest } else { longest.or(Some(recheck)).min(Some(recheck)) };
        held::assert_none();
        let slept = set.sleep(longest);
        watched.into_iter().for_each(|fd| set.unwatch(fd));
        slept.map(drop)
    }

    pub(super) fn sleep_on_the_rest<N>(
        &self,
        recheck: Duration,
        look: impl FnOnce() -> Result<Option<(N, Option<Duration>)>, Errno>,
    ) -> Result<(), Errno> {
        let holds = self.poll(ALL, Some(Duration::ZERO))?;
        let Some((_note, longest)) = look()? else { return Ok(()) };
        let longest = longest.unwrap_or(recheck).min(recheck);
        if holds & BROKEN != 0 {
            // Such a socket ends every sleep at once.
            return Kernel { fd: -1, ..*self }.poll(0, Some(longest)).map(drop);
        }
        self.poll(ALL & !holds, Some(longest)).map(drop)
    }

    /// Wakes every thread, in every process, that sleeps by edges on this socket: sets
    /// `TCP_NOTSENT_LOWAT` to the value that it has, at which the kernel announces room for octets.
    /// Where TCP has no room, they wake when it has. The caller holds the lock under which octets
    /// are given to TCP.
    pub(crate) fn kick(&self) {
        if is_confined() {
            return;
        }
        // Where there is no room, `poll` has the kernel announce it; the option alone would not.
        let has_room = self.poll(POLLOUT, Some(Duration::ZERO)).is_ok_and(|ready| ready & POLLOUT != 0);
        if has_room {
            let lowat = self.option(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
            let _ = self.set(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, lowat.unwrap_or(0) as c_int);
        }
    }
}
