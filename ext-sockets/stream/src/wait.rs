//! Waiting, as the descriptor's settings say: `O_NONBLOCK`, `MSG_DONTWAIT`, `SO_RCVTIMEO`,
//! `SO_SNDTIMEO`, signals.
//!
//! A wait for any octet is the kernel's `recv`, which knows which signal handlers restart it. All
//! other waits are `poll`, and restarted if every handler of the process asks for that
//! (`SA_RESTART`).

use std::ffi::c_short;
use std::sync::atomic::Ordering;

use super::kind::Kind;
use super::patience::Patience;
use super::rx::Hold;
use super::sleepers::Note;
use super::state::Phase;
use super::sys::{handlers_restart, is_confined};
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Waits until octets may be there.
    pub(super) fn wait_to_receive(&self, hold: Hold, patience: &Patience) -> Result<(), Errno> {
        let simple = hold == Hold::Idle && !patience.is_none() && !patience.has_limit() && !is_confined();
        if hold == Hold::Partial
            && let Some(waited) = K::wait_for_rest(self, patience)
        {
            return waited;
        }
        let settled = simple && self.state.condition().is_settled() && self.state.phase() == Phase::Framed;
        if settled && self.kernel.progress_other_sockets().is_none() {
            return self.kernel.await_octet();
        }
        self.wait(libc::POLLIN, patience)
    }

    /// Waits until a send may go on.
    pub(super) fn wait_to_send(&self, patience: &Patience) -> Result<(), Errno> {
        K::wait_to_send(self, patience).unwrap_or_else(|| self.wait(libc::POLLOUT, patience))
    }

    /// Waits until some of what is owed may be sent.
    pub(super) fn wait_for_owed(&self, patience: &Patience) -> Result<(), Errno> {
        self.wait(0, patience)
    }

    fn wait(&self, want: c_short, patience: &Patience) -> Result<(), Errno> {
        if patience.is_none() || self.is_nonblocking()? {
            self.pay_by_the_way();
            return Err(Errno::WOULD_BLOCK);
        }
        self.wait_in_any_case(want, patience)
    }

    /// Waits whatever the descriptor's flags say.
    pub(super) fn wait_in_any_case(&self, want: c_short, patience: &Patience) -> Result<(), Errno> {
        if patience.is_over() {
            return Err(Errno::WOULD_BLOCK);
        }
        let others = self.kernel.progress_other_sockets();
        K::nudge(self);
        let left = [patience.left(), self.deadline(), others].into_iter().flatten().min();
        let events = self.interest(want);
        if events == 0 && !self.owes() && self.deadline().is_none() {
            // Another thread has sent what was owed: nothing would end this sleep.
            return Ok(());
        }
        match self.kernel.poll(events, left) {
            // The kernel never restarts `poll`, nor TCP's calls with a timeout (signal(7)).
            Err(Errno::INTERRUPTED) if !patience.has_limit() && handlers_restart() => Ok(()),
            Err(error) => Err(error),
            Ok(ready) => {
                if ready & libc::POLLOUT != 0 {
                    self.pay_if_owing()?;
                }
                Ok(())
            }
        }
    }

    /// Gives TCP what is owed in calls that find no octets: a program that asks again and again
    /// without waiting makes no others, and the peer may wait for just that. An error is left to
    /// the next call.
    pub(super) fn pay_by_the_way(&self) {
        if let Err(error) = self.pay_if_owing() {
            self.remember(error);
        }
    }

    /// Gives TCP what is owed to it, if anything is.
    pub(super) fn pay_if_owing(&self) -> Result<bool, Errno> {
        if !self.state.flow.owing.load(Ordering::Acquire) {
            return Ok(true);
        }
        K::pay_all(self)
    }
}

impl<K: Kind> Framed<'_, K> {
    /// Waits by edges for what `look` looks for, as the descriptor's flags say. Returns when
    /// something has happened; the caller then tries again.
    ///
    /// `look` is called when no event and no [kick](Base::kick) can be missed any more. It returns
    /// `None` if what the caller waits for is there. Else it returns a [note](Base::note_sleeper),
    /// made before it gave the lock back.
    pub(super) fn wait_by_edges<'n>(
        &self,
        patience: &Patience,
        look: impl FnOnce() -> Result<Option<Note<'n>>, Errno>,
    ) -> Result<(), Errno> {
        if patience.is_none() || self.is_nonblocking()? {
            self.pay_by_the_way();
            return Err(Errno::WOULD_BLOCK);
        }
        self.wait_by_edges_in_any_case(patience, look)
    }

    /// Waits by edges whatever the descriptor's flags say.
    pub(super) fn wait_by_edges_in_any_case<'n>(
        &self,
        patience: &Patience,
        look: impl FnOnce() -> Result<Option<Note<'n>>, Errno>,
    ) -> Result<(), Errno> {
        if patience.is_over() {
            return Err(Errno::WOULD_BLOCK);
        }
        let others = self.kernel.progress_other_sockets();
        let recheck = self.recheck();
        let slept = self.kernel.sleep_by_edges(recheck, || {
            let Some(note) = look()? else { return Ok(None) };
            // Asked after the note: a process that gives up its kicks wakes those noted before.
            let untold = self.state.sleepers.are_not_told().then_some(recheck);
            let longest = [patience.left(), self.deadline(), others, untold].into_iter().flatten().min();
            Ok(Some((note, longest)))
        });
        match slept {
            // The kernel never restarts `epoll_wait` (signal(7)): see `wait_in_any_case`.
            Err(Errno::INTERRUPTED) if !patience.has_limit() && handlers_restart() => Ok(()),
            slept => slept,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::OnceLock;
    use std::time::Duration;

    use super::*;
    use crate::Stream;
    use crate::sys::{Calls, SharedState};
    use crate::{Options, Role};

    static OWING: OnceLock<(TcpStream, SharedState)> = OnceLock::new();

    fn pay() -> Option<Duration> {
        let (tcp, state) = OWING.get().unwrap();
        assert_eq!(Stream::new(tcp.as_raw_fd(), state, &Calls::libc()).unwrap().pay_if_owing(), Ok(true));
        None
    }

    #[test]
    fn a_thread_that_waits_for_octets_others_have_sent_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let state = SharedState::anonymous(&Options::new(Role::Initiator)).unwrap();
        state.set_framed();
        state.startup.may_send.store(true, Ordering::Release);
        let mut tx = state.tx.lock().unwrap();
        assert!(tx.owe(b"the rest of an FPDU"));
        state.note_owed(&tx);
        drop(tx);
        let (tcp, state) = OWING.get_or_init(|| (tcp, state));
        let calls = Calls::libc().with_others(pay);
        let stream = Stream::new(tcp.as_raw_fd(), state, &calls).unwrap();
        assert_eq!(stream.wait_for_owed(&Patience::new(false, None)), Ok(()));
    }
}
