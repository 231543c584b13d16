//! The format of a byte stream's Sends.

use std::convert::Infallible;
use std::ops::Range;

use rddp_ddp::{OpenTagged, Stag};
use rddp_iwarp::Delivered;
use rddp_rdmap::{AccessError, Place, ReadResponse, Stream};

/// The format of a byte stream's Sends. Each method's own body is that of plain octets.
///
/// A value of it lives as long as the [`Incoming`](crate::Incoming) for which it is asked, and may
/// count what has come in its own messages.
///
/// ```
/// use std::convert::Infallible;
///
/// use rddp_ddp::{Header, OpenTagged};
/// use rddp_iwarp::Delivered;
/// use rddp_octets::{Format, Meaning};
///
/// /// Sends whose first octet is a number, and not the program's.
/// struct Numbered;
///
/// impl Format for Numbered {
///     type Apart = Infallible;
///
///     fn meaning(
///         &mut self,
///         delivered: &Delivered,
///         _: Option<OpenTagged>,
///         payload: &[u8],
///     ) -> Meaning<Infallible> {
///         match delivered.segment.header {
///             _ if payload.is_empty() => Meaning::Control,
///             Header::Untagged(header) if header.mo == 0 => Meaning::Octets { from: 1 },
///             _ => Meaning::Octets { from: 0 },
///         }
///     }
/// }
/// ```
pub trait Format {
    /// The kinds of FPDU besides octets and silence. Where there are none it has no value, and the
    /// branches for them vanish.
    type Apart;

    /// Gives the stream the Reads and requests that are outstanding. IDs of Reads are not
    /// [`Incoming::RTR`](crate::Incoming::RTR).
    #[inline(always)]
    fn resume(&self, _stream: &mut Stream) {}

    /// Checks the memory that a Write names (RFC 5041 §7.1).
    ///
    /// # Errors
    /// The reason why the peer may not write there. Plain octets expose no memory.
    #[inline]
    fn check(&self, _stag: Stag, _to: u64, _len: usize) -> Result<(), AccessError> {
        Err(AccessError::Stag)
    }

    /// Returns whether such a tagged segment would carry the next octets.
    #[inline]
    fn is_next(&self, _place: Place, _len: usize) -> bool {
        false
    }

    /// Takes a Read Request of the peer, for its user to answer. `false`: it is not taken. One
    /// without octets is then answered at once, and another is a fault.
    #[inline]
    fn take_read(&mut self, _read: &ReadResponse) -> bool {
        false
    }

    /// Returns the meaning of a segment, of which `payload` belongs to the stream, and counts it
    /// in. `open` is the tagged message that is open behind it.
    #[inline(always)]
    fn meaning(
        &mut self,
        _delivered: &Delivered,
        _open: Option<OpenTagged>,
        payload: &[u8],
    ) -> Meaning<Self::Apart> {
        if payload.is_empty() { Meaning::Control } else { Meaning::Octets { from: 0 } }
    }

    /// Returns whether a read stops in front of the octets that were counted in last.
    #[inline(always)]
    fn stops(&self) -> bool {
        false
    }

    /// Notes that the program has all octets that were counted in last.
    #[inline(always)]
    fn consumed(&mut self) {}

    /// Notes the place to which [`cut_back`](Self::cut_back) goes back.
    #[inline(always)]
    fn mark(&mut self) {}

    /// Leaves out what was counted in since the last [`mark`](Self::mark).
    #[inline(always)]
    fn cut_back(&mut self) {}
}

/// The meaning of a segment.
/// ```
/// use rddp_octets::Meaning;
///
/// /// Messages in one segment each, whose first octet is their kind.
/// fn meaning(payload: &[u8]) -> Meaning<u8> {
///     match payload {
///         [] => Meaning::Control,
///         [b'o', ..] => Meaning::Octets { from: 1 },
///         [kind, ..] => Meaning::Apart(*kind, 1..payload.len()),
///     }
/// }
/// assert_eq!(meaning(b"octets"), Meaning::Octets { from: 1 });
/// assert_eq!(meaning(b"urgent"), Meaning::Apart(b'u', 1..6));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning<A> {
    /// Octets of the stream.
    Octets {
        /// Octets of the payload in front of them.
        from: usize,
    },
    /// Nothing for the program.
    Control,
    /// Something else, and the part of the payload that belongs to it.
    Apart(A, Range<usize>),
}

/// Plain octets: each Send carries the next ones of the stream, and nothing else.
/// ```
/// use rddp_octets::{Incoming, Outgoing, Plain, Position, Step, Terms};
///
/// let mut fpdu = [0; 64];
/// let len = Outgoing::FIRST.send(b"", &mut fpdu).unwrap();
/// let mut incoming = Incoming::new(&Terms::default(), &Position::FIRST, 4096, &Plain);
/// // A Send without octets tells a program nothing.
/// let step = incoming.step(&mut fpdu[..len], &mut Plain);
/// assert_eq!(step, Ok(Step::Silent { used: len, reply: None }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain;

impl Format for Plain {
    type Apart = Infallible;
}
