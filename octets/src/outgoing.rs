//! The sending direction of a byte stream: octets of a program become Sends and FPDUs
//! (RFC 5040 §5.1, RFC 5041 §5.2, RFC 5044 §4).
//!
//! A write is one Send, or several when it is longer than the longest one; their segments fit the
//! EMSS of the moment. An [`Outgoing`] is what there is between two writes. It [loads](Load) a
//! train, which its user gives to TCP, and goes on behind what TCP [`took`](Outgoing::took). The
//! rest of an FPDU that TCP has begun is owed. A message that is then still open is
//! [ended](Outgoing::end) by another short FPDU, so that none is ever open between two writes: the
//! next octets may come from another process.

use rddp_ddp::{Header, Msn};
use rddp_iwarp::{Record, Taken, taken};
use rddp_mpa::{Framer, Framing, MAX_ULPDU, Negotiated};

use crate::load::{After, Load, Message};

/// The state of the sending direction between two writes.
///
/// It is plain data, and may lie in memory that processes share: whoever reads it there makes sure
/// that the truths are 0 or 1. Any other values are a stream's.
///
/// A write, of which TCP takes a part:
///
/// ```
/// use rddp_iwarp::Record;
/// use rddp_octets::{Limits, Outgoing};
///
/// let mut outgoing = Outgoing { crc: true, ..Outgoing::FIRST };
/// let (mut train, mut records) = (Vec::new(), [Record::default(); 4]);
/// let mut octets = &[7; 300][..];
/// let mut load = outgoing.load(1 << 16, &mut records);
/// load.write(&mut train, Limits { mulpdu: 218, max_send: 1 << 20 }, &mut octets, None)?;
/// let records = load.records();
/// assert_eq!((records.len(), octets.len()), (2, 0));
///
/// // TCP takes the first FPDU and some of the second, with which the Send ends.
/// let taken = outgoing.took(records, 300);
/// assert_eq!((taken.fpdus, taken.owed()), (2, 300..train.len()));
/// assert_eq!((outgoing.msn, outgoing.octets), (2, train.len() as u64));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Octets of the FPDUs made, counted as [`rddp_mpa::Framer::at`] does.
    pub octets: u64,
    /// Number of FPDUs that TCP has taken, or that are owed to it.
    pub fpdus: u64,
    /// MSN of the next Send.
    pub msn: u32,
    /// True if FPDUs have a CRC.
    pub crc: bool,
    /// True if the peer wants markers (RFC 5044 §4.3).
    pub markers: bool,
}

impl Outgoing {
    /// The state before the first FPDU.
    pub const FIRST: Self = Self { octets: 0, fpdus: 0, msn: Msn::FIRST.0, crc: false, markers: false };

    /// Returns the direction that a startup has agreed on, in which `msn` is that of the next Send.
    #[must_use]
    pub(crate) fn of(negotiated: &Negotiated, msn: u32) -> Self {
        let Framing { crc, markers } = negotiated.tx();
        Self { msn, crc, markers, ..Self::FIRST }
    }

    /// Returns the framing of the direction.
    #[inline]
    #[must_use]
    pub const fn framing(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers }
    }

    /// Begins a train, which is full at `most` octets or when all `records` are used.
    #[inline(always)]
    #[must_use]
    pub fn load<'r>(&self, most: usize, records: &'r mut [Record<After>]) -> Load<'r> {
        Load::new(self.framer(), Msn(self.msn), most, records)
    }

    /// Goes on behind what TCP took of a train. Returns what that was, and what TCP is owed.
    #[inline(always)]
    pub fn took<'r>(&mut self, records: &'r [Record<After>], octets: usize) -> Taken<'r, After> {
        let taken = taken(records, octets);
        if let Some(record) = taken.last() {
            (self.octets, self.msn) = (record.after.octets, record.after.msn.0);
            self.fpdus = self.fpdus.wrapping_add(taken.fpdus as u64);
        }
        taken
    }

    /// Writes a Send of one FPDU to the front of `out`; see [`emit`](Self::emit).
    #[must_use]
    pub fn send(&mut self, octets: &[u8], out: &mut [u8]) -> Option<usize> {
        self.end(Message { msn: Msn(self.msn), mo: 0, total: 0 }, octets, out)
    }

    /// Ends a message, of which TCP has taken a part, with some more of its octets, up to
    /// [`left`](Message::left). Each segment but the last leaves some; with none the message ends
    /// early (RFC 5041 §4.3: the last segment may be one without payload). See
    /// [`emit`](Self::emit).
    #[must_use]
    pub fn end(&mut self, message: Message, octets: &[u8], out: &mut [u8]) -> Option<usize> {
        let len = self.emit(&message.header(true), octets, out)?;
        self.msn = message.msn.next().0;
        Some(len)
    }

    /// Writes an FPDU to the front of `out`, and returns its length. It counts as taken or owed.
    /// `None`, and nothing has changed: it has no room there, or its ULPDU would be longer than
    /// [`MAX_ULPDU`].
    #[must_use]
    pub fn emit(&mut self, header: &Header, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        let (mut framer, header) = (self.framer(), header.octets());
        // RFC 5044 §3: a ULPDU has at most 64768 octets.
        if header.len() + payload.len() > MAX_ULPDU {
            return None;
        }
        let len = framer.fpdu_len(header.len() + payload.len());
        let fill = |offset: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[offset..offset + dst.len()]);
        framer.emit_into(&header, payload.len(), fill, out.get_mut(..len)?);
        self.octets = framer.position();
        self.fpdus = self.fpdus.wrapping_add(1);
        Some(len)
    }

    fn framer(&self) -> Framer {
        Framer::at(self.framing(), self.octets & !3)
    }
}
