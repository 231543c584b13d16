//! Opcodes: the kind of a message, whether it is tagged, and its queue (RFC 5040 §4.1,
//! RFC 7306 §4).

use core::fmt;

use rddp_ddp::{Header, Qn};

/// Send messages of every kind, and Immediate Data.
pub const SEND_QUEUE: Qn = Qn(0);
/// Read Requests and Atomic Requests.
pub const REQUEST_QUEUE: Qn = Qn(1);
/// The Terminate.
pub const TERMINATE_QUEUE: Qn = Qn(2);
/// Atomic Responses (RFC 7306 §5.2). Without the extensions there is no such queue.
pub const ATOMIC_RESPONSE_QUEUE: Qn = Qn(3);

/// The kind of a message. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// Terminate.
    Terminate,
    /// Immediate Data (RFC 7306).
    Immediate,
    /// Immediate Data with Solicited Event (RFC 7306).
    ImmediateSolicited,
    /// Atomic Request (RFC 7306).
    AtomicRequest,
    /// Atomic Response (RFC 7306).
    AtomicResponse,
}

impl Opcode {
    /// Every opcode, by number.
    pub const ALL: [Opcode; 12] = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::SendInvalidate,
        Opcode::SendSolicited,
        Opcode::SendSolicitedInvalidate,
        Opcode::Terminate,
        Opcode::Immediate,
        Opcode::ImmediateSolicited,
        Opcode::AtomicRequest,
        Opcode::AtomicResponse,
    ];

    /// Returns the opcode with this number; `None` for the unassigned ones and the experimental
    /// 0xF.
    #[must_use]
    #[inline]
    pub const fn from_number(number: u8) -> Option<Opcode> {
        if (number as usize) < Self::ALL.len() { Some(Self::ALL[number as usize]) } else { None }
    }

    /// Returns whether segments with this opcode are tagged.
    #[must_use]
    #[inline]
    pub const fn is_tagged(self) -> bool {
        matches!(self, Opcode::Write | Opcode::ReadResponse)
    }

    /// Returns the queue of segments with this opcode; `None` for the tagged ones.
    #[must_use]
    #[inline]
    pub const fn queue(self) -> Option<Qn> {
        match self {
            Opcode::Write | Opcode::ReadResponse => None,
            Opcode::ReadRequest | Opcode::AtomicRequest => Some(REQUEST_QUEUE),
            Opcode::Terminate => Some(TERMINATE_QUEUE),
            Opcode::AtomicResponse => Some(ATOMIC_RESPONSE_QUEUE),
            Opcode::Send
            | Opcode::SendInvalidate
            | Opcode::SendSolicited
            | Opcode::SendSolicitedInvalidate
            | Opcode::Immediate
            | Opcode::ImmediateSolicited => Some(SEND_QUEUE),
        }
    }

    /// Returns whether RFC 7306 defines the opcode.
    #[must_use]
    #[inline]
    pub const fn is_extension(self) -> bool {
        self as u8 >= Opcode::Immediate as u8
    }

    /// Returns whether the Invalidate STag field is used (RFC 5040 §4.1).
    #[must_use]
    #[inline]
    pub const fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }

    /// Returns whether the message raises an event at a receiver that waits for solicited ones
    /// only.
    #[must_use]
    #[inline]
    pub const fn is_solicited(self) -> bool {
        matches!(self, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate | Opcode::ImmediateSolicited)
    }

    /// Returns whether T and QN of `header` are those of this opcode (RFC 5040 §4.1 Figure 4).
    #[must_use]
    #[inline]
    pub(crate) fn fits(self, header: &Header) -> bool {
        match header {
            Header::Tagged(_) => self.is_tagged(),
            Header::Untagged(header) => self.queue() == Some(header.qn),
        }
    }

    /// Returns the RDMAP control octet: version 1, reserved bits 0, this opcode.
    #[must_use]
    #[inline]
    pub const fn control(self) -> u8 {
        control::VERSION_ONE | self as u8
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Opcode::Write => "RDMA Write",
            Opcode::ReadRequest => "RDMA Read Request",
            Opcode::ReadResponse => "RDMA Read Response",
            Opcode::Send => "Send",
            Opcode::SendInvalidate => "Send with Invalidate",
            Opcode::SendSolicited => "Send with SE",
            Opcode::SendSolicitedInvalidate => "Send with SE and Invalidate",
            Opcode::Terminate => "Terminate",
            Opcode::Immediate => "Immediate Data",
            Opcode::ImmediateSolicited => "Immediate Data with SE",
            Opcode::AtomicRequest => "Atomic Request",
            Opcode::AtomicResponse => "Atomic Response",
        })
    }
}

/// The RDMAP control octet (RFC 5040 §4.1). 0x30 is reserved: sent as 0, ignored when received.
pub(crate) mod control {
    pub(crate) const VERSION_ONE: u8 = 1 << VERSION_SHIFT;
    pub(crate) const VERSION_SHIFT: u8 = 6;
    pub(crate) const OPCODE: u8 = 0x0f;
    pub(crate) const RESERVED: u8 = 0x30;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_opcode_has_its_control_octet_and_queue() {
        // RFC 5040 §4.1 Figure 4, RFC 7306 §4
        let queue = |number| Some(Qn(number));
        let table = [
            (0x40, None),
            (0x41, queue(1)),
            (0x42, None),
            (0x43, queue(0)),
            (0x44, queue(0)),
            (0x45, queue(0)),
            (0x46, queue(0)),
            (0x47, queue(2)),
            (0x48, queue(0)),
            (0x49, queue(0)),
            (0x4a, queue(1)),
            (0x4b, queue(3)),
        ];
        for (opcode, (control, queue)) in Opcode::ALL.into_iter().zip(table) {
            assert_eq!((opcode.control(), opcode.queue()), (control, queue), "{opcode}");
            assert_eq!(opcode.is_tagged(), queue.is_none(), "{opcode}");
            assert_eq!(Opcode::from_number(control & control::OPCODE), Some(opcode));
        }
    }

    #[test]
    fn unassigned_and_experimental_numbers_are_no_opcodes() {
        // RFC 5040 §4.1 Figure 3
        for number in 12..=255 {
            assert_eq!(Opcode::from_number(number), None);
        }
    }

    #[test]
    fn opcodes_are_named_as_in_the_rfcs() {
        assert_eq!(Opcode::SendSolicitedInvalidate.to_string(), "Send with SE and Invalidate");
    }
}
