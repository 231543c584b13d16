//! The end of a stream as the program asks for it: `shutdown`, and what the last `close` waits for.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::kind::Kind;
use super::patience::Patience;
use super::state::Phase;
use super::sys::Direction;
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Closes directions (`shutdown`). The FIN goes out behind everything that was accepted for
    /// sending: at once, if TCP has room for it, else when a later call finds room.
    ///
    /// # Errors
    /// `EINVAL` for another `how`; else the errno of `shutdown`.
    pub fn shutdown(&self, how: c_int) -> Result<(), Errno> {
        if self.state.phase() == Phase::Plain {
            return Err(Errno::PLAIN);
        }
        if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
            return Err(Errno::INVALID);
        }
        if let Some(done) = K::shutdown(self, how) {
            return done;
        }
        if self.state.phase() == Phase::Starting && !self.is_connected() {
            return self.kernel.shut(match how {
                libc::SHUT_RD => Direction::Receive,
                libc::SHUT_WR => Direction::Send,
                _ => Direction::Both,
            });
        }
        if how != libc::SHUT_WR {
            self.shut_receive()?;
        }
        if how != libc::SHUT_RD {
            self.state.flow.shut_send.store(true, Ordering::Release);
            let mut tx = self.lock_tx()?;
            tx.fin_due = true;
            K::pay(self, &mut tx)?;
        }
        Ok(())
    }

    /// Closes the receiving direction. TCP is told when the startup is over: before, the closed
    /// direction would look like the peer's end.
    fn shut_receive(&self) -> Result<(), Errno> {
        self.state.flow.shut_receive.store(true, Ordering::Release);
        // Under the lock, so that the thread that ends the startup sees either this note or the
        // open direction.
        let _tx = self.lock_tx();
        if self.is_shut_early() { Ok(()) } else { self.kernel.shut(Direction::Receive) }
    }

    /// Returns whether the program has closed the receiving direction and TCP is not told yet.
    pub(super) fn is_shut_early(&self) -> bool {
        self.state.flow.shut_receive.load(Ordering::Acquire)
            && match self.state.phase() {
                Phase::Starting => true,
                Phase::Framed => !self.state.may_send() || K::RECEIVES_WHEN_SHUT,
                Phase::Plain | Phase::Ended => false,
            }
    }

    /// Returns whether closing the socket now would lose something that can still be sent: octets
    /// owed to TCP, the end, this end's answer to a Request, or its RTR. A frame of the peer that
    /// meets a closed socket is answered by a reset.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        K::is_unfinished(self).unwrap_or_else(|| {
            self.owes()
                || match self.state.phase() {
                    Phase::Starting => self.is_connected(),
                    Phase::Framed => !self.state.may_send(),
                    Phase::Plain | Phase::Ended => false,
                }
        })
    }

    /// Does what can be done without waiting for a stream that [is
    /// unfinished](Self::is_unfinished). `true`: that was all, or no more can be done.
    #[must_use]
    pub fn finishes(&self) -> bool {
        K::finishes(self).unwrap_or_else(|| self.pays())
    }

    /// Does what can be done without waiting for what is owed. `true`: that was all, or no more can
    /// be done.
    pub(super) fn pays(&self) -> bool {
        let paid = self.establish().and_then(|up| {
            if up {
                self.has_leave_to_send()?;
            }
            self.pay_if_owing()
        });
        match paid {
            // The Terminate of a stream that has ended may still be owed.
            Err(_) if self.state.phase() == Phase::Ended => self.pay_if_owing() != Ok(false),
            Err(error) => {
                self.remember(error);
                true
            }
            Ok(_) => K::is_paid(self).unwrap_or_else(|| !self.is_unfinished()),
        }
    }

    /// Does what can be done for a stream that [is unfinished](Self::is_unfinished), waiting up to
    /// `timeout` or until a signal comes. Returns whether that was all.
    #[must_use]
    pub fn finish(&self, timeout: Duration) -> bool {
        let patience = Patience::new(false, Some(timeout));
        while !self.finishes() {
            if self.wait_to_pay(&patience).is_err() {
                return false;
            }
        }
        true
    }
}
