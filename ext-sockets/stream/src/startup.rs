//! From TCP to FPDUs: the Request and the Reply (RFC 5044 §7.1, RFC 6581), exchanged by the first
//! call that needs them.
//!
//! `accept` does nothing of it, and `connect` only sends the Request: a server may accept and hand
//! the socket to another process, and one thread may connect to its own listener. Nothing is taken
//! out of the kernel before it is known to be a startup frame, so that a plain peer's octets are
//! there for a plain call.
//!
//! Every call that touches the socket makes progress with it: a socket call, a wait, a `fork`, and
//! the thread that serves closed sockets. The socket is left alone before `TCP_INFO` says that TCP
//! is connected, so that the program itself gets the error of a failed connect. Whether a frame is
//! good, and what it comes to, is decided by [`Handshake`].

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rddp_mpa::{Frame, MpaError, StartupError};
use rddp_octets::{Afterwards, Agreed, Asked, Handshake, Progress, Refused};

use super::base::Base;
use super::ended::{Ended, Why};
use super::kind::Kind;
use super::options::{Options, Plain, PrivateData, Role};
use super::owed::owe_fpdu;
use super::state::{Phase, Rx};
use super::sys::{Direction, Guard, Kernel, Tcp};
use super::{Errno, Framed};

impl<K: Kind> Framed<'_, K> {
    /// Does what can be done of the startup without waiting. `true`: FPDUs may flow.
    pub(super) fn establish(&self) -> Result<bool, Errno> {
        match self.state.phase() {
            Phase::Framed => return Ok(true),
            Phase::Plain => return Err(Errno::PLAIN),
            Phase::Ended => return Err(self.ended_errno()),
            Phase::Starting if !self.is_connected() => return Ok(false),
            Phase::Starting => {}
        }
        let mut rx = self.lock_rx()?;
        // Another thread may have come first.
        match self.state.phase() {
            Phase::Starting => {}
            _ => {
                drop(rx);
                return self.establish();
            }
        }
        self.state.startup.note_beginning();
        let done = self.shake_hands(&mut rx).map_err(|error| self.lost(error))?;
        if done { Ok(true) } else { self.check_time() }
    }

    /// Notes that this end may send, and sends what has waited for that.
    pub(super) fn may_send_now(&self, rx: &mut Guard<'_, Rx>) {
        if self.state.may_send() {
            return;
        }
        self.state.startup.may_send.store(true, Ordering::Release);
        // Under the lock, so that a call that could not send a moment ago has noted what it kept.
        let paid = self.lock_tx().and_then(|mut tx| {
            self.shut_what_was_shut_early(K::RECEIVES_WHEN_SHUT);
            K::pay_locked(self, rx, &mut tx)
        });
        if let Err(error) = paid {
            self.remember(error);
        }
    }

    /// Ends a startup that takes too long (RFC 5044 §7.1.2 r10).
    fn check_time(&self) -> Result<bool, Errno> {
        if self.startup_left() != Some(Duration::ZERO) {
            return Ok(false);
        }
        let options = self.state.options();
        if options.role == Role::Responder && options.plain == Plain::Allowed {
            return self.become_plain();
        }
        Err(self.give_up(Why::NoAnswer, Errno::TIMED_OUT, MpaError::Startup))
    }

    fn become_plain(&self) -> Result<bool, Errno> {
        self.kernel.wake_at(1)?;
        if !self.send_early_plain(K::RECEIVES_WHEN_SHUT)? {
            return Ok(false);
        }
        Err(Errno::PLAIN)
    }

    /// Exchanges the startup frames, as far as that goes now.
    fn shake_hands(&self, rx: &mut Guard<'_, Rx>) -> Result<bool, Errno> {
        let options = self.state.options();
        let Some(mut handshake) = self.handshake(rx, &options)? else { return Ok(false) };
        let mut frame = [0; Frame::MAX_LEN];
        let progress = match self.look_at_frame(rx, &mut frame)? {
            Seen::Octets(have) => handshake.step(&frame[..have]),
            Seen::Nothing => return Ok(false),
            Seen::End(have) => handshake.closed(&frame[..have]),
        };
        match progress {
            Progress::Need { total } => self.wake_at(rx, total).map(|()| false),
            Progress::Asked(asked) => self.answer(rx, &options, &asked),
            Progress::Accepted { agreed, private_data, used } => {
                rx.moving(|rx| {
                    self.drop_front(used)?;
                    K::take_answer(self, rx, private_data)?;
                    self.settle(rx, &agreed, private_data)?;
                    self.be_ready_to_receive(rx, &agreed)
                })?;
                Ok(true)
            }
            Progress::Rejected { afterwards, private_data, used } => rx.moving(|rx| {
                self.drop_front(used)?;
                note_private_data(rx, private_data);
                self.end_rejected(rx, afterwards)
            }),
            Progress::Plain => {
                rx.window.wake_at = 1;
                self.become_plain()
            }
            Progress::Refused(refused) => Err(self.refuse(rx, &refused)),
        }
    }

    /// Returns the startup, of which an initiator's Request is sent: `None` while TCP has not taken
    /// all of that.
    fn handshake(&self, rx: &mut Guard<'_, Rx>, options: &Options) -> Result<Option<Handshake>, Errno> {
        let asked = options.handshake(K::HAS_MESSAGES, K::MOST_READS);
        if options.role == Role::Initiator {
            let data = K::data_to_request(self, rx, options)?;
            let handshake = Handshake::initiator(asked, data.as_ref()).map_err(|_| Errno::INVALID)?;
            return Ok(self.send_frame(handshake.request())?.then_some(handshake));
        }
        if self.lock_tx()?.greeted {
            // Nor all of a Reply that rejects.
            return self.become_plain().map(|_| None);
        }
        Ok(Some(Handshake::responder(asked)))
    }

    /// Ends the startup behind a Reply that rejects.
    fn end_rejected(&self, rx: &mut Guard<'_, Rx>, afterwards: Afterwards) -> Result<bool, Errno> {
        match afterwards {
            Afterwards::Plain => return self.become_plain(),
            Afterwards::Fin => drop(self.kernel.shut(Direction::Send)),
            Afterwards::Open => {}
        }
        self.wake_at(rx, 1)?;
        self.state.end.set(Ended::new(Why::Rejected, Errno::REFUSED));
        Err(Errno::REFUSED)
    }

    fn answer(&self, rx: &mut Guard<'_, Rx>, options: &Options, asked: &Asked<'_>) -> Result<bool, Errno> {
        let Some(data) = K::data_to_reply(self, rx, options, asked.private_data()) else {
            return self.reject(rx, asked);
        };
        let (reply, agreed) = asked.accept(data.as_ref()).map_err(|_| Errno::INVALID)?;
        rx.moving(|rx| {
            self.drop_front(asked.used)?;
            self.settle(rx, &agreed, asked.private_data())?;
            self.state.set_framed();
            self.send_frame(&reply)
        })?;
        Ok(true)
    }

    /// Answers a Request of an end that speaks another format.
    fn reject(&self, rx: &mut Guard<'_, Rx>, asked: &Asked<'_>) -> Result<bool, Errno> {
        let (reply, afterwards) = asked.reject().map_err(|_| Errno::INVALID)?;
        note_private_data(rx, asked.private_data());
        rx.moving(|rx| {
            self.drop_front(asked.used)?;
            self.wake_at(rx, 1)?;
            self.send_frame(&reply)?;
            if afterwards == Afterwards::Plain {
                return self.become_plain();
            }
            self.state.end.set(Ended::new(K::REJECTS, Errno::PROTOCOL));
            Err(Errno::PROTOCOL)
        })
    }

    /// Sends this end's startup frame, once. `false`: TCP has not taken all of it.
    fn send_frame(&self, frame: &[u8]) -> Result<bool, Errno> {
        let mut tx = self.lock_tx()?;
        if !tx.greeted {
            self.kernel.no_delay()?;
            tx.greeted = tx.owe(frame);
        }
        K::pay(self, &mut tx)
    }

    /// Sends the initiator's first FPDU. Where there is none, the first message of SDP does the
    /// same.
    fn be_ready_to_receive(&self, rx: &mut Guard<'_, Rx>, agreed: &Agreed) -> Result<(), Errno> {
        let mut tx = self.lock_tx()?;
        if let Some(first) = &agreed.first
            && !owe_fpdu(&mut tx, &first.header, first.payload())
        {
            return Err(Errno::NO_BUFFERS);
        }
        K::begins(rx, agreed);
        // The lock is held, so no other FPDU can come first.
        self.state.startup.may_send.store(true, Ordering::Release);
        self.state.set_framed();
        self.shut_what_was_shut_early(K::RECEIVES_WHEN_SHUT);
        K::pay_locked(self, rx, &mut tx).map(drop)
    }
}

impl Base<'_> {
    /// Returns whether the peer does not speak MPA, and so is to be connected to anew in plain TCP
    /// where that is allowed.
    #[must_use]
    pub fn is_peer_plain(&self) -> bool {
        let is_plain = |why| matches!(why, Why::NotMpa | Why::NoAnswer | Why::Closed);
        self.state.ended().is_some_and(|end| is_plain(end.why))
    }

    /// Ends the startup because of a reset. TCP reports it once, and after that the end of the
    /// peer's octets, which must not count as another end.
    fn lost(&self, error: Errno) -> Errno {
        match error {
            Errno::RESET => self.state.end.set(Ended::new(Why::NotMpa, error)),
            // Behind the peer's FIN a reset is told so.
            Errno::BROKEN_PIPE => self.state.end.set(Ended::new(self.why_closed(), error)),
            _ => {}
        }
        error
    }

    /// Returns the reason of an end by the peer's FIN before its frame has come: it is an end in
    /// order where no octet of the program is lost.
    fn why_closed(&self) -> Why {
        let loses = self.lock_tx().is_ok_and(|tx| !tx.early().is_empty());
        if loses { Why::NotMpa } else { Why::Closed }
    }

    /// Returns whether the peer has closed in order before its frame had come. As over TCP that is
    /// the end of its octets, and no error.
    pub(super) fn is_closed_at_once(&self) -> bool {
        self.state.ended().is_some_and(|end| end.why == Why::Closed)
    }

    /// Returns whether TCP is connected, or was. Until then no call of ours touches the socket: its
    /// error is for the program to fetch.
    pub(super) fn is_connected(&self) -> bool {
        let connected = &self.state.startup.connected;
        if !connected.load(Ordering::Relaxed) && self.kernel.tcp() == Tcp::Connected {
            connected.store(true, Ordering::Relaxed);
        }
        connected.load(Ordering::Relaxed)
    }

    /// Returns TCP's answer to a `call` of the program that moves nothing. `None`: there is a
    /// connection, or there will be, and the call waits.
    pub(super) fn unconnected(
        &self,
        call: impl FnOnce(&Kernel<'_>) -> Result<usize, Errno>,
    ) -> Option<Result<usize, Errno>> {
        let closed =
            !self.state.startup.connected.load(Ordering::Relaxed) && self.kernel.tcp() == Tcp::Closed;
        closed.then(|| call(&self.kernel)).filter(|answer| *answer != Err(Errno::WOULD_BLOCK))
    }

    pub(super) fn ended_errno(&self) -> Errno {
        self.state.ended().map_or(Errno::ABORTED, |end| end.errno)
    }

    /// Returns how long the startup may still take; `None` before it has begun.
    pub(super) fn startup_left(&self) -> Option<Duration> {
        self.state.startup.age().map(|age| self.startup_limit().saturating_sub(age))
    }

    fn startup_limit(&self) -> Duration {
        let options = self.state.options();
        match (options.role, options.plain) {
            (Role::Responder, Plain::Allowed) => options.plain_after,
            _ => options.startup_timeout,
        }
    }

    fn refuse(&self, rx: &mut Guard<'_, Rx>, refused: &Refused) -> Errno {
        let Refused { error, terminate } = refused;
        if let Some((terminate, framing)) = terminate {
            return self.give_up_politely(rx, terminate, *framing);
        }
        let (why, errno) = match error {
            StartupError::Closed { have: 0, .. } => (self.why_closed(), Errno::RESET),
            _ if error.is_foreign() => (Why::NotMpa, Errno::PROTOCOL),
            _ => (Why::Startup, Errno::PROTOCOL),
        };
        self.give_up(why, errno, error.code())
    }

    /// Looks at the octets of the peer's frame that have come.
    fn look_at_frame(&self, rx: &mut Rx, frame: &mut [u8]) -> Result<Seen, Errno> {
        let have = match self.kernel.peek(&mut [IoSliceMut::new(frame)]) {
            Ok(0) => return Ok(Seen::End(0)),
            Err(Errno::WOULD_BLOCK) => return Ok(Seen::Nothing),
            other => other?,
        };
        // After a wait for the rest the same octets are there: it will not come.
        let waited = rx.window.wake_at as usize > have;
        if waited && self.kernel.poll(libc::POLLRDHUP, Some(Duration::ZERO))? != 0 {
            return Ok(Seen::End(have));
        }
        Ok(Seen::Octets(have))
    }

    /// Stores the values that both ends have agreed on.
    fn settle(&self, rx: &mut Guard<'_, Rx>, agreed: &Agreed, peer_data: &[u8]) -> Result<(), Errno> {
        note_private_data(rx, peer_data);
        (rx.terms, rx.at) = (agreed.terms, agreed.at);
        let mut tx = self.lock_tx()?;
        tx.out = agreed.outgoing;
        drop(tx);
        self.wake_at(rx, 1)?;
        rx.window.narrow = self.kernel.widen(WINDOW)? < NARROW;
        Ok(())
    }

    /// Tells TCP of a direction that the program closed before the startup was over. The caller
    /// holds the lock. `receives_when_shut`: TCP goes on to receive.
    pub(super) fn shut_what_was_shut_early(&self, receives_when_shut: bool) {
        if self.state.flow.shut_receive.load(Ordering::Acquire) && !receives_when_shut {
            let _ = self.kernel.shut(Direction::Receive);
        }
    }

    /// Returns how long the startup may still take, if it is under way.
    #[must_use]
    pub fn startup_time(&self) -> Option<Duration> {
        self.state.startup.note_beginning();
        self.startup_left().filter(|_| self.state.phase() == Phase::Starting)
    }

    #[allow(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over lifetimes"
    )]
    pub(super) fn glance_unconnected(&self) -> Option<Result<usize, Errno>> {
        self.unconnected(|kernel| kernel.glance())
    }
}

enum Seen {
    Octets(usize),
    Nothing,
    /// The peer has closed after so many octets.
    End(usize),
}

fn note_private_data(rx: &mut Rx, data: &[u8]) {
    rx.peer.data = PrivateData::cut(data);
    rx.peer.data_known = true;
}

/// A window of which an FPDU is at most an eighth.
const WINDOW: u32 = 512 * 1024;
/// A receive buffer (of which about half is window) in which an FPDU may be a quarter or more.
const NARROW: usize = WINDOW as usize;
