//! The shared state of one connection, in memory of all processes that hold the socket.
//!
//! The receiving direction and the sending one have a lock each; a call does the work of its
//! direction. Where both locks are needed the receiving one is taken first. The state has no
//! pointers, and nothing else that only one process could use.
//!
//! `directions` has what is under either lock, `layout` where it lies.

mod directions;
mod flow;
mod holders;
mod layout;
mod startup;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Errno;
use super::ended::{AtomicEnd, Ended, Why};
use super::options::{Asked, Options, PrivateData};
use super::sdp::Part;
use super::sleepers::Sleepers;
use super::sys::{Guarded, held};

use self::directions::{Guess, Kept, Peer, Waiting, Window};
pub(super) use self::directions::{LITTLE, Rx, Tx};
use self::flow::Flow;
use self::holders::Holders;
pub(super) use self::layout::MAGIC;
use self::startup::Startup;

/// The shared state of a stream: see [`SharedState`](super::SharedState).
#[repr(C)]
pub struct State {
    magic: AtomicU64,
    pub(super) holders: Holders,
    pub(super) startup: Startup,
    pub(super) flow: Flow,
    pub(super) end: AtomicEnd,
    /// The sleepers that a change of this state concerns: see [`Sleepers`].
    pub(super) sleepers: Sleepers,
    pub(super) asked: Asked,
    pub(super) rx: Guarded<Rx>,
    pub(super) tx: Guarded<Tx>,
    pub(super) sdp: Part,
}

/// Phases of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The startup frames are not exchanged yet.
    Starting,
    /// FPDUs flow.
    Framed,
    /// The peer does not speak MPA, and that is allowed: plain TCP.
    Plain,
    /// The stream is over: see [`State::ended`].
    Ended,
}

impl State {
    pub(super) fn begin(&mut self, options: &Options) -> Result<(), Errno> {
        self.asked = Asked::of(options);
        self.sdp.begin(&self.asked.format)?;
        self.magic = AtomicU64::new(MAGIC);
        Ok(())
    }

    /// Returns the phase of the stream.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let phase = phase_of(self.startup.phase.load(Ordering::Acquire));
        if self.end.is_set() { Phase::Ended } else { phase }
    }

    /// Returns whether this end may send.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.startup.may_send.load(Ordering::Acquire)
    }

    pub(super) fn set_framed(&self) {
        self.startup.phase.store(FRAMED, Ordering::Release);
    }

    /// Marks the connection as plain TCP: it was made anew, for a peer that does not speak MPA.
    pub fn stay_plain(&self) {
        self.set_plain();
        self.end.clear();
        self.flow.owe_nothing();
    }

    /// Notes that what is owed has changed.
    #[inline]
    pub(super) fn note_owed(&self, tx: &Tx) -> bool {
        let early = !tx.early().is_empty();
        let room = !tx.owed().is_empty() || early && self.may_send();
        self.flow.wants_room.store(room, Ordering::Release);
        self.flow.owing.store(tx.owes() || early, Ordering::Release);
        early
    }

    pub(super) fn set_plain(&self) {
        self.startup.phase.store(PLAIN, Ordering::Release);
    }

    /// Returns the reason why the stream is over, if it is.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.end.load()
    }

    /// Returns the options that the stream was made with.
    #[must_use]
    pub fn options(&self) -> Options {
        self.asked.options()
    }

    /// Notes that TCP is connected, so that it need not be asked.
    pub fn note_connected(&self) {
        self.startup.connected.store(true, Ordering::Relaxed);
    }

    /// Returns how long the startup has gone on; `None` before it has begun.
    #[must_use]
    pub fn startup_age(&self) -> Option<Duration> {
        self.startup.age()
    }

    /// Returns whether something waits to go out.
    pub fn waits(&self) -> bool {
        self.flow.owing.load(Ordering::Acquire)
    }

    /// Returns the error of a failed startup to the first caller; `Ok` to all others, and `None` of
    /// a startup that did not fail. To one that asks whether it is `connected`, a peer that has
    /// left since TCP was is no error yet.
    pub fn take_startup_error(&self, connected: bool) -> Option<Result<(), Errno>> {
        let end = self.end.load().filter(|end| end.why.is_of_startup())?;
        let is_later = end.why == Why::Closed || connected && end.errno == Errno::RESET;
        Some(if !is_later && self.end.first_told() { Err(end.errno) } else { Ok(()) })
    }

    /// Returns, once, an error that a call of ours took out of the kernel and that a call of the
    /// program is to return.
    pub fn take_pending(&self) -> Option<Errno> {
        self.flow.take_pending()
    }

    /// Sets the state back to the beginning: TCP could not connect, and is about to try again.
    pub fn begin_again(&self) {
        self.startup.begin_again();
        self.flow.pending.store(0, Ordering::Relaxed);
        self.end.clear();
        if let Ok(mut tx) = self.tx.lock() {
            (tx.greeted, tx.moving) = (false, false);
            tx.drop_early();
            let owed = tx.owed().len();
            tx.paid(owed);
        }
        self.flow.owe_nothing();
        self.startup.phase.store(STARTING, Ordering::Release);
    }

    /// Returns what readiness depends on besides the kernel's socket: when it changes, so may
    /// [`Stream::interest`](super::Stream::interest).
    #[must_use]
    pub fn condition(&self) -> Condition {
        let (blocked, nudges) = self.sdp.condition();
        Condition {
            phase: self.startup.phase.load(Ordering::Acquire),
            ended: self.end.is_set(),
            may_send: self.may_send(),
            owing: self.flow.owing.load(Ordering::Acquire),
            wants_room: self.flow.wants_room.load(Ordering::Acquire),
            early_full: self.startup.early_full.load(Ordering::Acquire),
            blocked,
            untold: self.sleepers.are_not_told(),
            began: self.startup.has_begun(),
            nudges,
        }
    }

    /// Returns the peer's private data, once its startup frame has come.
    #[must_use]
    pub fn peer_private_data(&self) -> Option<PrivateData> {
        held::begin_call();
        let rx = self.rx.lock().ok()?;
        rx.peer.data_known.then_some(rx.peer.data)
    }
}

/// Everything that a wait depends on besides the kernel's socket: see [`State::condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    phase: u32,
    ended: bool,
    may_send: bool,
    owing: bool,
    wants_room: bool,
    early_full: bool,
    blocked: u32,
    /// Set if a process changes what others wait for and wakes nobody.
    untold: bool,
    began: bool,
    /// Set while a wait may have to wake the peer.
    nudges: bool,
}

impl Condition {
    /// Returns whether the kernel's events are the program's: from then on only octets change what
    /// it waits for.
    #[must_use]
    pub fn is_settled(self) -> bool {
        self.ended
            || self.phase == PLAIN
            || (self.phase == FRAMED
                && self.may_send
                && !self.owing
                && !self.nudges
                && (self.blocked == 0 || !self.untold))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("phase", &self.phase())
            .field("ended", &self.ended())
            .finish_non_exhaustive()
    }
}

/// Returns the phase of a number, of a stream that is not over.
pub(super) fn phase_of(number: u32) -> Phase {
    match number {
        STARTING => Phase::Starting,
        FRAMED => Phase::Framed,
        _ => Phase::Plain,
    }
}

const STARTING: u32 = 0;
const FRAMED: u32 = 1;
const PLAIN: u32 = 2;
