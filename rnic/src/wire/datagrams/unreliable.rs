//! The octets in front of a message between unreliable datagram QPs, and which QP takes it.
//!
//! The form is of this device alone, and a stand-in for the headers that InfiniBand has there (BTH,
//! DETH, `ImmDt`; InfiniBand Architecture §9.2 and §9.3.1).
//!
//! | octets | big-endian |
//! |---|---|
//! | 0 | version: 1 |
//! | 1 to 3 | number of the QP that it is for |
//! | 4 | bit 0: it has an immediate value; bit 1: it asks for a solicited event; others 0 |
//! | 5 to 7 | number of the QP that sends it |
//! | 8 to 11 | `Q_Key` |
//! | 12 to 15 | immediate value, or 0 |

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

use rddp_rdma::UdPeer;

use crate::queues::attributes::QpAttributes;
use crate::queues::rq::Outcome;

const VERSION: u8 = 1;
const IMMEDIATE: u8 = 1;
const SOLICITED: u8 = 2;

/// The bits of a QP's number.
const NUMBER: u32 = 0xff_ffff;

/// A `Q_Key` with this bit stands for the sender's own.
const OWN_QKEY: u32 = 1 << 31;

/// The words in front of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    to: u32,
    from: NonZeroU32,
    qkey: u32,
    immediate: Option<[u8; 4]>,
    solicited: bool,
}

impl Header {
    pub(super) const LEN: usize = 16;

    /// Returns the words of a request of this QP's. `None` if that has no number.
    pub(super) fn of(
        attrs: &QpAttributes,
        to: &UdPeer,
        immediate: Option<[u8; 4]>,
        solicited: bool,
    ) -> Option<Self> {
        let from = NonZeroU32::new(attrs.num.0)?;
        let is_own = to.qkey & OWN_QKEY != 0;
        let qkey = if is_own { attrs.qkey.load(Ordering::Relaxed) } else { to.qkey };
        Some(Header { to: to.qp.0 & NUMBER, from, qkey, immediate, solicited })
    }

    pub(super) fn to_octets(self) -> [u8; Self::LEN] {
        let of = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = of(self.immediate.is_some(), IMMEDIATE) | of(self.solicited, SOLICITED);
        let mut octets = [0; Self::LEN];
        octets[..4].copy_from_slice(&(u32::from(VERSION) << 24 | self.to).to_be_bytes());
        octets[4..8].copy_from_slice(&(u32::from(flags) << 24 | self.from.get()).to_be_bytes());
        octets[8..12].copy_from_slice(&self.qkey.to_be_bytes());
        octets[12..].copy_from_slice(&self.immediate.unwrap_or_default());
        octets
    }

    /// Reads the words in front of a message; `None` if there are none.
    fn parse(datagram: &[u8]) -> Option<Self> {
        let ([first, second, qkey, immediate], []) =
            datagram.first_chunk::<{ Self::LEN }>()?.as_chunks::<4>()
        else {
            return None;
        };
        let ([version, to @ ..], [flags, from @ ..]) = (*first, *second);
        let number = |[a, b, c]: [u8; 3]| u32::from_be_bytes([0, a, b, c]);
        let has_immediate = flags & IMMEDIATE != 0;
        let is_known = version == VERSION && flags & !(IMMEDIATE | SOLICITED) == 0;
        (is_known && (has_immediate || *immediate == [0; 4])).then_some(Header {
            to: number(to),
            from: NonZeroU32::new(number(from))?,
            qkey: u32::from_be_bytes(*qkey),
            immediate: has_immediate.then_some(*immediate),
            solicited: flags & SOLICITED != 0,
        })
    }
}

/// Returns where the message begins in a datagram for this QP, and what its completion has. `None`
/// if it is not for this QP: the number or the `Q_Key` is another's, or its source is not where a
/// QP with the number that it names is bound.
pub(super) fn accept(attrs: &QpAttributes, source: SocketAddr, datagram: &[u8]) -> Option<(usize, Outcome)> {
    let header = Header::parse(datagram)?;
    if header.to != attrs.num.0 || header.from.get() >> 8 != u32::from(source.port()) {
        tracing::trace!(qp = attrs.num.0, %source, ?header, "a datagram for another QP, or from none");
        return None;
    }
    if header.qkey != attrs.qkey.load(Ordering::Relaxed) {
        attrs.device.qkey_violations.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let immediate = header.immediate.map(|[a, b, c, d]| [a, b, c, d, 0, 0, 0, 0]);
    let outcome =
        Outcome { immediate, source: Some(header.from), solicited: header.solicited, ..Outcome::default() };
    Some((Header::LEN, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for (immediate, solicited) in [(None, true), (Some([0; 4]), false), (Some(*b"abcd"), true)] {
            let from = NonZeroU32::new(0x65_4321).unwrap();
            let header = Header { to: 0x12_3456, from, qkey: 0x1111_1111, immediate, solicited };
            let octets = header.to_octets();
            assert_eq!(Header::parse(&octets), Some(header));
            assert_eq!(Header::parse(&[&octets[..], b"message"].concat()), Some(header));
            (0..Header::LEN).for_each(|len| assert_eq!(Header::parse(&octets[..len]), None));
        }
    }

    /// A header that is read has one form alone.
    #[test]
    fn octets_that_mean_nothing_are_no_header() {
        let from = NonZeroU32::new(1).unwrap();
        let header = Header { to: 1, from, qkey: 0, immediate: None, solicited: false };
        let octets = header.to_octets();
        for (at, value) in [(0, 0), (0, 2), (4, 4), (4, 0x80), (7, 0), (12, 1), (15, 1)] {
            let mut other = octets;
            other[at] = value;
            assert_eq!(Header::parse(&other), None, "{at}: {value}");
        }
    }
}
