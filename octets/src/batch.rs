//! The whole FPDUs at the front of some octets, taken in one turn, with their payload placed where
//! there is room.

use std::ops::Range;

use rddp_ddp::Header;
use rddp_iwarp::Trouble;
use rddp_rdmap::TerminateCode;

use crate::format::Format;
use crate::incoming::{Incoming, Step};
use crate::position::Position;
use crate::room::Room;

/// The whole FPDUs at the front of some octets.
///
/// Whoever gave the octets drops [`used`](Self::used) of them, goes on at [`at`](Self::at), and
/// gives the program what is [`left`](Self::left) before anything else.
/// ```
/// use rddp_octets::{Batch, Incoming, Outgoing, Plain, Position, Stop, Terms};
///
/// let (mut peer, mut arrived, mut end) = (Outgoing::FIRST, [0; 100], 0);
/// for part in ["by", "te", "s!"] {
///     end += peer.send(part.as_bytes(), &mut arrived[end..]).unwrap();
/// }
/// // The last octet of TCP is not here yet.
/// let arrived = &mut arrived[..end - 1];
/// let mut memory = [0; 8];
/// let mut incoming = Incoming::new(&Terms::default(), &Position::FIRST, 4096, &Plain);
/// let batch = Batch::of(&mut incoming, arrived, &mut &mut memory[..], 0, &mut Plain);
/// assert_eq!(&memory[..4], b"byte");
/// assert_eq!((batch.used, batch.stop), (2 * end / 3, Stop::Need(end / 3)));
/// ```
#[derive(Debug)]
pub struct Batch<A> {
    /// Octets of the FPDUs.
    pub used: usize,
    /// Position behind the last of them; `None` when there is none.
    pub at: Option<Position>,
    /// Octets and position before the last FPDU.
    before: (usize, Option<Position>),
    /// Octets of the first FPDU that the program has read.
    shown: usize,
    /// The payload for which there was no room. The FPDU counts as taken.
    pub left: Option<Left>,
    /// Octets of the largest payload.
    pub largest: usize,
    /// Octets of the last FPDU.
    pub last: usize,
    /// Answers that the peer is owed.
    pub replies: Replies,
    /// Reason why the batch ends.
    pub stop: Stop<A>,
}

/// Payload at `from..to` of an FPDU that ends at `end`, for which there was no room.
/// ```
/// use rddp_octets::{Batch, Incoming, Left, Outgoing, Plain, Position, Terms};
///
/// let mut fpdu = [0; 64];
/// let len = Outgoing::FIRST.send(b"hello", &mut fpdu).unwrap();
/// let mut memory = [0; 3];
/// let mut incoming = Incoming::new(&Terms::default(), &Position::FIRST, 4096, &Plain);
/// let batch = Batch::of(&mut incoming, &mut fpdu[..len], &mut &mut memory[..], 0, &mut Plain);
/// let Some(Left { from, to, end }) = batch.left else { panic!("there was room for three") };
/// assert_eq!((&memory, &fpdu[from..to], end), (b"hel", &b"lo"[..], len));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The first octet.
    pub from: usize,
    /// The end of the payload.
    pub to: usize,
    /// The end of the FPDU.
    pub end: usize,
}

/// Reason why a batch ends.
/// ```
/// use rddp_octets::{Batch, Incoming, Outgoing, Plain, Position, Stop, Terms};
///
/// let mut fpdu = [0; 64];
/// let len = Outgoing { crc: true, ..Outgoing::FIRST }.send(b"hello", &mut fpdu).unwrap();
/// let terms = Terms { crc: true, ..Terms::default() };
/// let stop = |fpdu: &mut [u8]| {
///     let mut incoming = Incoming::new(&terms, &Position::FIRST, 4096, &Plain);
///     Batch::of(&mut incoming, fpdu, &mut &mut [0; 64][..], 0, &mut Plain).stop
/// };
/// // One octet more begins another FPDU.
/// assert!(matches!(stop(&mut fpdu[..len + 1]), Stop::Need(_)));
/// fpdu[20] ^= 1;
/// assert!(matches!(stop(&mut fpdu[..len]), Stop::Trouble(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<A> {
    /// The next FPDU is not whole, and has at least so many octets.
    Need(usize),
    /// There is no more room, or there are many replies.
    Full,
    /// The peer has ended the stream, by an FPDU whose octets are counted and that has no position
    /// behind it.
    Terminated(TerminateCode),
    /// The peer has broken a rule.
    Trouble(Trouble),
    /// The next FPDU is one of the format's own kinds. It is not taken.
    Apart(A),
}

impl<A> Batch<A> {
    /// Takes whole FPDUs from the front of `octets`, and fills `room` with what they carry but for
    /// `shown` octets of the first one, which the program has already.
    #[inline(always)]
    #[must_use]
    pub fn of<F: Format<Apart = A>>(
        incoming: &mut Incoming,
        octets: &mut [u8],
        room: &mut impl Room,
        shown: usize,
        format: &mut F,
    ) -> Self {
        let stop = Stop::Need(0);
        let (before, replies) = ((0, None), Replies::default());
        let mut batch =
            Self { used: 0, at: None, before, shown, left: None, largest: 0, last: 0, replies, stop };
        while batch.add(incoming, octets, room, format) {
            batch.at = Some(incoming.position());
        }
        batch
    }

    /// Adds the next FPDU; `false`, with the reason in `stop`, when none can be added.
    #[inline(always)]
    fn add<F: Format<Apart = A>>(
        &mut self,
        incoming: &mut Incoming,
        octets: &mut [u8],
        room: &mut impl Room,
        format: &mut F,
    ) -> bool {
        // A full room does not keep FPDUs without octets for the program from being taken.
        if self.left.is_some() || (self.largest > 0 && room.free() == 0) || self.replies.is_full() {
            self.stop = Stop::Full;
            return false;
        }
        format.mark();
        match incoming.step(&mut octets[self.used..], format) {
            Ok(Step::Need { total }) => self.stop = Stop::Need(total),
            Ok(Step::Data { payload, used }) => {
                self.deliver(octets, payload, used, room, format);
                return true;
            }
            Ok(Step::Silent { used, reply }) => {
                if let Some(reply) = reply {
                    self.replies.push(reply);
                }
                self.count(used);
                return true;
            }
            Ok(Step::Terminated { used, code }) => {
                self.used += used;
                self.stop = Stop::Terminated(code);
            }
            Ok(Step::Apart { what, .. }) => {
                format.cut_back();
                self.stop = Stop::Apart(what);
            }
            Err(trouble) => self.stop = Stop::Trouble(trouble),
        }
        false
    }

    /// Gives the program the payload of the next FPDU, as far as there is room.
    #[inline(always)]
    fn deliver<F: Format>(
        &mut self,
        octets: &[u8],
        payload: Range<usize>,
        used: usize,
        room: &mut impl Room,
        format: &mut F,
    ) {
        let at = self.used;
        let shown = if at == 0 { self.shown.min(payload.len()) } else { 0 };
        let (from, to) = (at + payload.start + shown, at + payload.end);
        let taken = if format.stops() { 0 } else { room.store(&octets[from..to]) };
        if from + taken < to {
            self.left = Some(Left { from: from + taken, to, end: at + used });
            (self.before, self.shown) = ((at, self.at), shown + taken);
        } else {
            format.consumed();
        }
        self.largest = self.largest.max(to - from);
        self.count(used);
    }

    #[inline(always)]
    fn count(&mut self, used: usize) {
        self.used += used;
        self.last = used;
    }

    /// Leaves out the last FPDU, of which a part is [`left`](Self::left) and has no place; returns
    /// how many of its octets the program has read. The format is to be cut back, too.
    pub fn leave_last(&mut self) -> u32 {
        (self.used, self.at) = self.before;
        self.left = None;
        self.shown as u32
    }
}

/// Answers to the peer's Reads in a batch.
/// ```
/// use rddp_mpa::Rtr;
/// use rddp_octets::{Batch, Incoming, Outgoing, OwnMessage, Plain, Position, Terms};
///
/// // A peer whose RTR is a Read.
/// let (read, mut fpdu) = (OwnMessage::ready_to_receive(Rtr::Read), [0; 64]);
/// let len = Outgoing::FIRST.emit(&read.header, read.payload(), &mut fpdu).unwrap();
/// let terms = Terms { ird: 1, ..Terms::default() };
/// let mut incoming = Incoming::new(&terms, &Position::FIRST, 4096, &Plain);
/// let batch = Batch::of(&mut incoming, &mut fpdu[..len], &mut &mut [][..], 0, &mut Plain);
///
/// let (mut outgoing, mut answer) = (Outgoing::FIRST, [0; 64]);
/// for header in batch.replies.headers() {
///     assert_eq!(outgoing.emit(header, b"", &mut answer), Some(20));
/// }
/// assert_eq!(outgoing.fpdus, 1);
/// ```
#[derive(Debug, Default)]
pub struct Replies {
    headers: [Option<Header>; REPLIES],
    count: usize,
}

impl Replies {
    fn is_full(&self) -> bool {
        self.count == REPLIES
    }

    fn push(&mut self, header: Header) {
        self.headers[self.count] = Some(header);
        self.count += 1;
    }

    /// Returns the headers of the Read Responses, which have no octets, in their order.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.headers[..self.count].iter().flatten()
    }
}

/// Most Reads that are answered in one batch.
const REPLIES: usize = 4;
