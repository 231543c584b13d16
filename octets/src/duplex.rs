//! Both directions of a byte stream, with buffers of their own.

use std::error::Error;
use std::fmt;

use rddp_ddp::{Header, TaggedRepr, UntaggedRepr};
use rddp_iwarp::{Gather, OwnMessage, Record, Termination, Trouble};
use rddp_mpa::mulpdu;
use rddp_rdmap::TerminateCode;

use crate::batch::{Batch, Left, Stop};
use crate::format::Plain;
use crate::handshake::Agreed;
use crate::incoming::Incoming;
use crate::load::Limits;
use crate::outgoing::Outgoing;
use crate::position::{Position, Terms};
use crate::queue::{LEAST, Queue};
use crate::room::Room;

/// A stream of plain octets behind its [`Handshake`](crate::Handshake), for whoever owns what it
/// reads of TCP.
///
/// What TCP delivers goes into [`space`](Self::space), from which [`take`](Self::take) gives the
/// peer's octets to the program. What the program [`put`](Self::put)s is [`owed`](Self::owed) to
/// TCP, in FPDUs, until it is [`paid`](Self::paid). An end is owed octets of its own, too, by
/// taking: who waits for the peer's octets pays first.
///
/// ```
/// use rddp_octets::{Duplex, End, Handshake, HandshakeOptions, Progress};
///
/// let options = HandshakeOptions::default();
/// let mut initiator = Handshake::initiator(options.clone(), b"")?;
/// let Progress::Asked(asked) = Handshake::responder(options).step(initiator.request()) else {
///     panic!("a Request")
/// };
/// let (reply, passive) = asked.accept(b"")?;
/// let Progress::Accepted { agreed: active, .. } = initiator.step(&reply) else { panic!("a Reply") };
/// let (mut here, mut there) = (Duplex::new(&active), Duplex::new(&passive));
/// assert_eq!(there.put(b"too early"), 0);
///
/// // TCP, in one direction.
/// let carry = |from: &mut Duplex, to: &mut Duplex| {
///     let count = from.owed().len();
///     to.space()[..count].copy_from_slice(from.owed());
///     to.filled(count);
///     from.paid(count);
/// };
/// assert_eq!(here.put(b"question"), 8);
/// here.finish();
/// carry(&mut here, &mut there);
/// assert!(here.is_finished());
/// there.filled(0);
///
/// let mut octets = [0; 64];
/// assert_eq!(there.take(&mut octets), 8);
/// assert_eq!((&octets[..8], there.end()), (&b"question"[..], Some(End::Finished)));
/// assert_eq!(there.put(b"answer"), 6);
/// carry(&mut there, &mut here);
/// assert_eq!(here.take(&mut octets), 6);
/// assert_eq!((&octets[..6], here.end()), (&b"answer"[..], None));
/// # Ok::<(), rddp_mpa::StartupMisuse>(())
/// ```
#[derive(Debug)]
pub struct Duplex {
    terms: Terms,
    at: Position,
    arrived: Queue,
    /// Payload of the FPDU in front, which is taken.
    left: Option<Left>,
    /// True behind the peer's FIN.
    closed: bool,
    end: Option<End>,
    outgoing: Outgoing,
    limits: Limits,
    owed: Queue,
    /// Owed octets from which on the program has to wait.
    max_owed: usize,
    may_send: bool,
    finished: bool,
    /// True once the caller may have closed TCP's sending direction.
    shut: bool,
}

/// The end of what the peer sends.
/// ```
/// use rddp_octets::{Agreed, Duplex, End, Outgoing, Position, Terms};
///
/// let (terms, outgoing) = (Terms::default(), Outgoing::FIRST);
/// let agreed = Agreed { terms, at: Position::FIRST, outgoing, first: None, may_send: true };
/// let mut duplex = Duplex::new(&agreed);
/// duplex.space()[..2].copy_from_slice(&[0, 23]);
/// duplex.filled(2);
/// duplex.filled(0);
/// assert_eq!(duplex.take(&mut [0; 64]), 0);
/// assert_eq!(duplex.end(), Some(End::Truncated));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The peer sends nothing more, and may still read.
    Finished,
    /// The peer has closed in the middle of an FPDU or a message. Its octets are not delivered.
    Truncated,
    /// The peer has ended the stream by a Terminate.
    Terminated(TerminateCode),
    /// The peer has broken a rule, and is told so.
    Fault(TerminateCode),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("the peer sends nothing more"),
            Self::Truncated => f.write_str("the peer has closed in the middle of an FPDU or a message"),
            Self::Terminated(code) => write!(f, "the peer has ended the stream: {code}"),
            Self::Fault(code) => write!(f, "the peer has broken a rule: {code}"),
        }
    }
}

impl Error for End {}

impl Duplex {
    /// Begins behind a startup.
    #[must_use]
    pub fn new(agreed: &Agreed) -> Self {
        let mut duplex = Self {
            terms: agreed.terms,
            at: agreed.at,
            arrived: Queue::new(BUFFER),
            left: None,
            closed: false,
            end: None,
            outgoing: agreed.outgoing,
            limits: Limits { mulpdu: mulpdu(EMSS, agreed.outgoing.markers), max_send: MAX_SEND },
            owed: Queue::new(BUFFER),
            max_owed: BUFFER,
            may_send: agreed.may_send,
            finished: false,
            shut: false,
        };
        if let Some(first) = &agreed.first {
            duplex.owe(&first.header, first.payload());
        } else if agreed.may_send {
            // No message of a format's own begins, and the peer waits for one.
            let len = duplex.outgoing.send(&[], duplex.owed.room()).unwrap_or(0);
            duplex.owed.filled(len);
        }
        duplex
    }

    /// Sets the length of TCP's segments (EMSS), within which FPDUs stay (RFC 5044 §4.5). Before
    /// that they fit an Ethernet's.
    ///
    /// Those of a message fill their segments but for the last. TCP begins a segment where it is
    /// given octets without a delay, so whoever wants FPDUs aligned to segments gives it what is
    /// owed behind each [`put`](Self::put), and all of it.
    pub fn set_emss(&mut self, emss: usize) {
        self.limits.mulpdu = mulpdu(emss, self.outgoing.markers);
    }

    /// Sets the number of octets of the longest Send. Before that it is 64 KiB.
    pub fn set_max_send(&mut self, octets: u32) {
        self.limits.max_send = octets;
    }

    /// Sets the number of owed octets at which [`put`](Self::put) takes no more of the program's:
    /// they wait with it until TCP has taken some. It may be passed by one FPDU, and by the short
    /// one that ends a message. Before that all is framed for which there is room, some 70 KiB.
    pub fn set_max_owed(&mut self, octets: usize) {
        self.max_owed = octets.max(1);
    }

    /// Returns room for octets that TCP delivers. There is none while the program leaves too much
    /// untaken.
    pub fn space(&mut self) -> &mut [u8] {
        self.arrived.room()
    }

    /// Counts octets with which TCP has filled the front of the space: 0 is its end, if there was
    /// space.
    pub fn filled(&mut self, count: usize) {
        self.closed |= count == 0 && !self.arrived.room().is_empty();
        self.arrived.filled(count);
        if self.end.is_some() {
            // Unread, they would make TCP reset the connection.
            self.arrived.drop(count);
        }
    }

    /// Gives the program the peer's next octets, and returns how many. With 0 where there is room,
    /// TCP is to deliver more, or to take what is [owed](Self::owed), or there is an
    /// [end](Self::end).
    pub fn take(&mut self, mut room: &mut [u8]) -> usize {
        let all = room.len();
        self.shut |= self.is_finished();
        self.take_left(&mut room);
        while self.left.is_none() && self.end.is_none() && self.owed.room().len() >= REPLIES {
            if !self.take_batch(&mut room) {
                break;
            }
        }
        all - room.len()
    }

    /// Takes more of the FPDU in front.
    fn take_left(&mut self, room: &mut &mut [u8]) {
        if let Some(left) = &mut self.left {
            left.from += room.store(&self.arrived.octets()[left.from..left.to]);
            if left.from == left.to {
                self.arrived.drop(left.end);
                self.left = None;
            }
        }
    }

    /// Takes whole FPDUs; returns whether there may be more to take.
    fn take_batch(&mut self, room: &mut &mut [u8]) -> bool {
        let mut incoming = Incoming::new(&self.terms, &self.at, u32::MAX, &Plain);
        let batch = Batch::of(&mut incoming, self.arrived.octets_mut(), room, 0, &mut Plain);
        self.at = batch.at.unwrap_or(self.at);
        self.may_send |= incoming.has_good_fpdu();
        for header in batch.replies.headers() {
            self.owe(header, &[]);
        }
        // One of which a part is left stays.
        let done = batch.used - if batch.left.is_some() { batch.last } else { 0 };
        self.arrived.drop(done);
        self.left =
            batch.left.map(|left| Left { from: left.from - done, to: left.to - done, end: left.end - done });
        match batch.stop {
            Stop::Full => return !room.is_empty(),
            Stop::Need(_) if self.closed => self.end_with(self.end_of_tcp()),
            Stop::Need(_) => {}
            Stop::Terminated(code) => self.end_with(End::Terminated(code)),
            Stop::Trouble(trouble) => self.fail(&trouble),
            Stop::Apart(never) => match never {},
        }
        false
    }

    /// Returns the end of the peer's octets, once the program has all that came before it.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    fn end_of_tcp(&self) -> End {
        if self.arrived.len() > 0 || self.at.is_open { End::Truncated } else { End::Finished }
    }

    /// Ends the stream because the peer broke the protocol.
    fn fail(&mut self, Trouble { fault, offending }: &Trouble) {
        self.end_with(End::Fault(fault.code()));
        if let Some(terminate) = Termination::of(fault, offending.as_ref(), self.may_send).terminate() {
            let message = OwnMessage::terminate(&terminate);
            self.owe(&message.header, message.payload());
        }
    }

    fn end_with(&mut self, end: End) {
        self.end = Some(end);
        // A responder that has no FPDU of its peer will never have one, and may not send.
        self.finished |= end != End::Finished || !self.may_send;
        self.arrived.drop(BUFFER);
    }

    /// Frames octets of the program, as many as there is room for, and returns how many. A
    /// responder sends nothing before the initiator's first FPDU (RFC 5044 §7.1.2).
    ///
    /// 0 is final behind [`finish`](Self::finish) and behind an [end](Self::end), but for
    /// [`End::Finished`] of a peer from which an FPDU has come. Where it is final,
    /// [`is_finished`](Self::is_finished) returns `true` as soon as nothing is owed.
    pub fn put(&mut self, octets: &[u8]) -> usize {
        if !self.may_send {
            self.take(&mut []);
        }
        let (mut done, mut open) = (0, None);
        while self.may_send && !self.finished && done < octets.len() {
            let mut records = [Record::default(); FPDUS];
            let most = self.max_owed.saturating_sub(self.owed.len());
            let mut load = self.outgoing.load(most, &mut records);
            let room = self.owed.room();
            let count = room.len().saturating_sub(RESERVE);
            let mut train = Train { room: &mut room[..count], used: 0 };
            let Ok(()) = load.write(&mut train, self.limits, &mut &octets[done..], open);
            let used = train.used;
            self.owed.filled(used);
            let Some(last) = self.outgoing.took(load.records(), used).last() else { break };
            (done, open) = (done + last.after.payload, last.after.message);
        }
        if let Some(message) = open {
            let last = &octets[done..][..message.left().min(LAST)];
            let len = self.outgoing.end(message, last, self.owed.room()).unwrap_or(0);
            self.owed.filled(len);
            done += last.len();
        }
        done
    }

    /// Ends what this end sends. Behind it TCP's direction is to be closed: see
    /// [`is_finished`](Self::is_finished). Then the peer's Reads are not answered any more, and it
    /// is not told of its faults.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns whether TCP has all, and its sending direction is to be closed: nothing is owed
    /// behind that. A responder may owe an answer to the initiator's first FPDU, and waits for it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished && self.owed.len() == 0 && (self.may_send || self.end.is_some())
    }

    /// Returns the octets that TCP is to send.
    #[must_use]
    pub fn owed(&self) -> &[u8] {
        self.owed.octets()
    }

    /// Counts owed octets that TCP has taken.
    pub fn paid(&mut self, count: usize) {
        self.owed.drop(count);
    }

    /// Adds an FPDU to what is owed, for which there is room, unless TCP takes no more.
    fn owe(&mut self, header: &Header, payload: &[u8]) {
        if self.shut {
            return;
        }
        let len = self.outgoing.emit(header, payload, self.owed.room());
        debug_assert!(len.is_some(), "there is room for a short FPDU");
        self.owed.filled(len.unwrap_or(0));
    }
}

/// FPDUs that are made in room for owed octets.
struct Train<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl Gather for Train<'_> {
    type Mark = usize;

    fn mark(&self) -> usize {
        self.used
    }

    fn cut_back(&mut self, mark: usize) {
        self.used = mark;
    }

    #[inline]
    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let written = self.room.get_mut(self.used..self.used + len).map(write);
        self.used += if written.is_some() { len } else { 0 };
        written
    }
}

/// Octets of a buffer: more than the longest FPDU and its markers.
const BUFFER: usize = 72 * 1024;
/// The EMSS that a connection is taken to have: that of Ethernet, with TCP's timestamps.
const EMSS: usize = 1448;
/// Octets of the longest Send, where nothing else is set.
const MAX_SEND: u32 = 64 * 1024;
/// FPDUs that are framed at a time.
const FPDUS: usize = 8;
/// Octets with which a message ends for which there is no more room.
const LAST: usize = 256;
/// Room for the answers of one batch, and for a Terminate.
const REPLIES: usize = 256;
/// Room that octets of the program leave: for the end of their message, and for answers.
const RESERVE: usize = LAST + 64 + REPLIES;

const LONGEST: usize = rddp_mpa::fpdu_len(u16::MAX as usize);
// Each 508 octets have a marker, and one may stand in front. Other octets may have left.
const _: () = assert!(LONGEST + 4 * (LONGEST / 508 + 2) + RESERVE + LEAST <= BUFFER);
// The end of a message and two markers.
const _: () = assert!(rddp_mpa::fpdu_len(UntaggedRepr::LEN + LAST) + 8 <= LAST + 64);
// Four answers without octets, and a Terminate for the FPDU behind them.
const _: () = assert!(4 * (2 + TaggedRepr::LEN + 4 + 4) + OwnMessage::MAX_FPDU + 4 <= REPLIES);
