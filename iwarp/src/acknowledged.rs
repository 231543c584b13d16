//! Acknowledgements: how many of the peer's messages an end has executed (no RFC; a mode that both
//! ends have to agree on).
//!
//! Without them a Write or a Send is done for its sender once TCP has it, which says nothing about
//! the peer's memory. Each end counts the messages of the peer that it has executed, which are
//! Sends, Immediate Data, and Writes with octets; those that ask for a Response have that, and a
//! Write of no octets does nothing. An [`Acknowledgement`] tells the count of all so far.
//!
//! It is an untagged segment on a queue that RDMAP lacks, with RDMAP's experimental opcode, and
//! header alone: the field for the MSN has the count. It goes between any two segments.

use rddp_ddp::{DdpError, Header, Msn, Qn, UntaggedRepr};
use rddp_rdmap::Fault;

/// The queue of acknowledgements.
const QUEUE: Qn = Qn(4);

/// RDMAP's version 1, as in its control octet (RFC 5040 §4.1).
const VERSION_ONE: u8 = 0x40;

/// The number of the peer's messages that an end has executed so far, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement(pub u32);

impl Acknowledgement {
    /// The opcode that RDMAP keeps for experiments (RFC 5040 §4.1).
    pub const OPCODE: u8 = 0xf;

    /// Returns the header of its segment, which has no payload.
    #[must_use]
    pub fn header(self) -> Header {
        Header::Untagged(UntaggedRepr {
            last: true,
            rsvd_ulp: [VERSION_ONE | Self::OPCODE, 0, 0, 0, 0],
            qn: QUEUE,
            msn: Msn(self.0),
            mo: 0,
        })
    }

    /// Reads a ULPDU; `None` if it is something else.
    #[must_use]
    pub fn parse(ulpdu: &[u8]) -> Option<Self> {
        let Ok(Header::Untagged(header)) = Header::parse(ulpdu) else { return None };
        let said = Acknowledgement(header.msn.0);
        (ulpdu.len() == UntaggedRepr::LEN && Header::Untagged(header) == said.header()).then_some(said)
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

    /// Returns how many more messages the peer has executed by this acknowledgement.
    ///
    /// # Errors
    /// The peer acknowledges fewer messages than before, or some that were not sent.
    pub fn acknowledge(&mut self, said: Acknowledgement) -> Result<u32, Fault> {
        let more = said.0.wrapping_sub(self.acknowledged);
        if more > self.sent.wrapping_sub(self.acknowledged) {
            let (got, expected) = (Msn(said.0), Msn(self.sent));
            return Err(DdpError::MsnOutOfRange { qn: QUEUE, got, expected }.into());
        }
        self.acknowledged = said.0;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_read_whole_or_not_at_all() {
        let octets = Acknowledgement(0x0102_0304).header().octets();
        assert_eq!(*octets, *b"\x41\x4f\0\0\0\0\0\0\0\x04\x01\x02\x03\x04\0\0\0\0");
        assert_eq!(Acknowledgement::parse(&octets), Some(Acknowledgement(0x0102_0304)));
        for len in 0..octets.len() {
            assert_eq!(Acknowledgement::parse(&octets[..len]), None);
        }
        assert_eq!(Acknowledgement::parse(&[&octets[..], &[0]].concat()), None, "a payload");
        // All but the count is fixed.
        for at in (0..octets.len()).filter(|at| !(10..14).contains(at)) {
            let mut other = octets.to_vec();
            other[at] ^= 1;
            assert_eq!(Acknowledgement::parse(&other), None, "octet {at}");
        }
    }

    #[test]
    fn what_was_not_sent_and_less_than_before_is_the_peers_fault() {
        let mut count = Unacknowledged { sent: u32::MAX, acknowledged: u32::MAX };
        assert_eq!(count.acknowledge(Acknowledgement(u32::MAX)), Ok(0), "the same again");
        (0..3).for_each(|_| count.note_sent());
        assert_eq!(count.acknowledge(Acknowledgement(0)), Ok(1), "around the end of the numbers");
        for said in [u32::MAX, 3, u32::MAX / 2] {
            let fault = count.acknowledge(Acknowledgement(said)).unwrap_err();
            let (got, expected) = (Msn(said), Msn(2));
            assert_eq!(fault, DdpError::MsnOutOfRange { qn: QUEUE, got, expected }.into());
        }
        assert_eq!(count.acknowledge(Acknowledgement(2)), Ok(2), "faults have changed nothing");
    }
}
