//! The segments that streams mostly consist of, by a short way: a Send in one segment, and a Write.
//!
//! The short way knows no faults and keeps nothing for later: it takes a segment only if nothing
//! about it is special. Every other one, and every fault, is for [`Stream::accept`] and
//! [`Stream::commit`], of which it has the outcome.

use rddp_ddp::{Header, TaggedRepr, UntaggedRepr};

use super::Stream;
use crate::Opcode;
use crate::opcode::{SEND_QUEUE, control};

/// A segment that is in turn, with octets for memory, and of which RDMAP keeps nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// All of a Send, which invalidates nothing and for which no receive was taken yet.
    Send {
        /// The header.
        header: UntaggedRepr,
        /// True if the completion wakes threads that wait for solicited completions only.
        solicited: bool,
    },
    /// A segment of a Write.
    Write(TaggedRepr),
}

impl Plain {
    /// Octets of the header.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self {
            Plain::Send { .. } => UntaggedRepr::LEN,
            Plain::Write(_) => TaggedRepr::LEN,
        }
    }
}

impl Stream {
    /// Returns the segment if it is a plain one. The caller places its payload where it belongs,
    /// and calls [`commit_plain`](Self::commit_plain); or leaves it to [`accept`](Self::accept),
    /// since nothing has changed.
    #[must_use]
    #[inline]
    pub fn plain(&self, ulpdu: &[u8]) -> Option<Plain> {
        if self.dead {
            return None;
        }
        match Header::parse(ulpdu).ok()? {
            Header::Untagged(header) => self.plain_send(header, ulpdu.len() - UntaggedRepr::LEN),
            Header::Tagged(header) => self.plain_write(header, ulpdu.len() - TaggedRepr::LEN),
        }
    }

    /// Counts in a segment that [`plain`](Self::plain) has returned, and whose payload of so many
    /// octets was placed.
    #[inline]
    pub fn commit_plain(&mut self, plain: &Plain, payload_len: usize) {
        match plain {
            Plain::Send { header, .. } => {
                self.queues[SEND_QUEUE.0 as usize].commit(header, payload_len);
            }
            Plain::Write(header) => self.tagged.commit(header, payload_len),
        }
    }

    #[inline]
    fn plain_send(&self, header: UntaggedRepr, len: usize) -> Option<Plain> {
        let solicited = match header.rsvd_ulp[0] & !control::RESERVED {
            SEND => false,
            SEND_SOLICITED => true,
            _ => return None,
        };
        let queue = &self.queues[SEND_QUEUE.0 as usize];
        let is_whole = header.last && header.mo == 0 && !queue.is_open() && queue.next_mo() == 0;
        // RFC 5041 §7.1: the message that is due, on its queue.
        let is_due = header.qn == SEND_QUEUE && header.msn == queue.next_msn();
        let is_plain = is_whole && is_due && len > 0 && self.receive.is_none();
        is_plain.then_some(Plain::Send { header, solicited })
    }

    #[inline]
    fn plain_write(&self, header: TaggedRepr, len: usize) -> Option<Plain> {
        let is_write = header.rsvd_ulp & !control::RESERVED == WRITE;
        let is_plain = is_write && len > 0 && self.tagged.check(&header, len).is_ok();
        is_plain.then_some(Plain::Write(header))
    }
}

const SEND: u8 = Opcode::Send.control();
const SEND_SOLICITED: u8 = Opcode::SendSolicited.control();
const WRITE: u8 = Opcode::Write.control();
