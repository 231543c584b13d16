//! Acknowledgements: how many of the peer's messages an end has executed (no RFC; a mode that both
//! ends have to agree on).
//!
//! Without them a Write or a Send is done for its sender once TCP has it, which says nothing about
//! the peer's memory. Each end counts the messages of the peer that it has executed, which are
//! Sends, Immediate Data, and Writes with octets; those that ask for a Response have that, and a
//! Write of no octets does nothing. An [`Acknowledgement`] tells the count of all so far.
//!
//! It is an untagged segment on a queue that RDMAP lacks, with RDMAP's experimental opcode, and
//! header alone: the field for the MSN has the count. It goes between any two segments. Where the
//! next message is a Send without a receive, the field that a Send has for an STag tells so, with
//! the time between two tries.

use rddp_ddp::{DdpError, Header, Msn, Qn, UntaggedRepr};
use rddp_rdmap::Fault;

/// The queue of acknowledgements.
const QUEUE: Qn = Qn(4);

/// The queue of values.
const VALUES: Qn = Qn(5);

/// RDMAP's version 1, as in its control octet (RFC 5040 §4.1).
const VERSION_ONE: u8 = 0x40;

/// The number of the peer's messages that an end has executed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The number modulo 2^32.
    pub executed: u32,
    /// Microseconds between two tries of the next message, which has come and has no receive; 0 if
    /// nothing is said about that.
    pub not_ready: u32,
}

impl Acknowledgement {
    /// The opcode that RDMAP keeps for experiments (RFC 5040 §4.1).
    pub const OPCODE: u8 = 0xf;

    /// Makes one that says nothing about the next message.
    #[must_use]
    pub const fn of(executed: u32) -> Self {
        Acknowledgement { executed, not_ready: 0 }
    }

    /// Returns the header of its segment, which has no payload.
    #[must_use]
    pub fn header(self) -> Header {
        let [a, b, c, d] = self.not_ready.to_be_bytes();
        Header::Untagged(UntaggedRepr {
            last: true,
            rsvd_ulp: [VERSION_ONE | Self::OPCODE, a, b, c, d],
            qn: QUEUE,
            msn: Msn(self.executed),
            mo: 0,
        })
    }

    /// Reads a ULPDU; `None` if it is something else.
    #[must_use]
    pub fn parse(ulpdu: &[u8]) -> Option<Self> {
        let Ok(Header::Untagged(header)) = Header::parse(ulpdu) else { return None };
        let [_, not_ready @ ..] = header.rsvd_ulp;
        let said = Acknowledgement { executed: header.msn.0, not_ready: u32::from_be_bytes(not_ready) };
        (ulpdu.len() == UntaggedRepr::LEN && Header::Untagged(header) == said.header()).then_some(said)
    }
}

/// A value that the completion of the peer's receive carries beside the octets of a Send, as with
/// InfiniBand (no RFC). Its segment, header alone, goes in front of the Send's first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub [u8; 8]);

impl Value {
    /// Returns the header of its segment, which has no payload.
    #[must_use]
    pub fn header(self) -> Header {
        let [a, b, c, d, number @ ..] = self.0;
        Header::Untagged(UntaggedRepr {
            last: true,
            rsvd_ulp: [VERSION_ONE | Acknowledgement::OPCODE, a, b, c, d],
            qn: VALUES,
            msn: Msn(u32::from_be_bytes(number)),
            mo: 0,
        })
    }

    /// Reads a ULPDU; `None` if it is something else.
    #[must_use]
    pub fn parse(ulpdu: &[u8]) -> Option<Self> {
        let Ok(Header::Untagged(header)) = Header::parse(ulpdu) else { return None };
        let [_, a, b, c, d] = header.rsvd_ulp;
        let [e, f, g, h] = header.msn.0.to_be_bytes();
        let value = Value([a, b, c, d, e, f, g, h]);
        (ulpdu.len() == UntaggedRepr::LEN && Header::Untagged(header) == value.header()).then_some(value)
    }
}

/// The count of the messages that this end has sent, and of those that the peer has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unacknowledged {
    sent: u32,
    acknowledged: u32,
}

impl Unacknowledged {
    /// Counts a message that has been sent.
    pub fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Returns the number of messages that the peer has not acknowledged.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.sent.wrapping_sub(self.acknowledged)
    }

    /// Returns how many more messages the peer has executed by this acknowledgement. `begun` says
    /// whether a message is being sent.
    ///
    /// # Errors
    /// The peer acknowledges fewer messages than before, or some that were not sent; or one that
    /// was not sent has no receive.
    pub fn acknowledge(&mut self, said: Acknowledgement, begun: bool) -> Result<u32, Fault> {
        let more = said.executed.wrapping_sub(self.acknowledged);
        let told_of = more.saturating_add(u32::from(said.not_ready > 0));
        let sent = self.count();
        // The first segment of one that is still being sent may have found no receive.
        if more > sent || told_of > sent.saturating_add(begun.into()) {
            let (got, expected) = (Msn(said.executed), Msn(self.sent));
            return Err(DdpError::MsnOutOfRange { qn: QUEUE, got, expected }.into());
        }
        self.acknowledged = said.executed;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_read_whole_or_not_at_all() {
        let octets = Acknowledgement::of(0x0102_0304).header().octets();
        assert_eq!(*octets, *b"\x41\x4f\0\0\0\0\0\0\0\x04\x01\x02\x03\x04\0\0\0\0");
        assert_eq!(Acknowledgement::parse(&octets), Some(Acknowledgement::of(0x0102_0304)));
        for len in 0..octets.len() {
            assert_eq!(Acknowledgement::parse(&octets[..len]), None);
        }
        assert_eq!(Acknowledgement::parse(&[&octets[..], &[0]].concat()), None, "a payload");
        let told = Acknowledgement { executed: 1, not_ready: 640 };
        assert_eq!(Acknowledgement::parse(&told.header().octets()), Some(told));
        // All but the count and the time is fixed.
        for at in (0..octets.len()).filter(|at| !(2..6).contains(at) && !(10..14).contains(at)) {
            let mut other = octets.to_vec();
            other[at] ^= 1;
            assert_eq!(Acknowledgement::parse(&other), None, "octet {at}");
        }
    }

    #[test]
    fn a_value_is_read_whole_or_not_at_all() {
        let octets = Value(*b"12345678").header().octets();
        assert_eq!(*octets, *b"\x41\x4f1234\0\0\0\x055678\0\0\0\0");
        assert_eq!(Value::parse(&octets), Some(Value(*b"12345678")));
        assert_eq!(Acknowledgement::parse(&octets), None);
        assert_eq!(Value::parse(&Acknowledgement::of(5).header().octets()), None);
        assert_eq!(Value::parse(&octets[1..]), None);
        assert_eq!(Value::parse(&[&octets[..], &[0]].concat()), None, "a payload");
        for at in [0, 1, 6, 9, 14, 17] {
            let mut other = octets.to_vec();
            other[at] ^= 1;
            assert_eq!(Value::parse(&other), None, "octet {at}");
        }
    }

    #[test]
    fn what_was_not_sent_and_less_than_before_is_the_peers_fault() {
        let mut count = Unacknowledged { sent: u32::MAX, acknowledged: u32::MAX };
        assert_eq!(count.acknowledge(Acknowledgement::of(u32::MAX), false), Ok(0), "the same again");
        (0..3).for_each(|_| count.note_sent());
        assert_eq!(count.acknowledge(Acknowledgement::of(0), false), Ok(1), "around the end of the numbers");
        for said in [u32::MAX, 3, u32::MAX / 2] {
            let fault = count.acknowledge(Acknowledgement::of(said), false).unwrap_err();
            let (got, expected) = (Msn(said), Msn(2));
            assert_eq!(fault, DdpError::MsnOutOfRange { qn: QUEUE, got, expected }.into());
        }
        let without_receive = |executed| Acknowledgement { executed, not_ready: 10 };
        assert!(count.acknowledge(without_receive(2), false).is_err(), "the third was not sent");
        let begun = Unacknowledged { ..count }.acknowledge(without_receive(2), true);
        assert_eq!(begun, Ok(2), "the third is being sent");
        assert_eq!(count.acknowledge(without_receive(1), false), Ok(1), "faults have changed nothing");
        assert_eq!(count.acknowledge(Acknowledgement::of(2), false), Ok(1));
    }
}
