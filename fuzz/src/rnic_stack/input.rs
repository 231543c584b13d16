//! The input of `rnic_stack`.

use crate::input::{Octets, Tail, choice, inputs};

inputs! {
    /// A connection, and the events on it.
    pub struct Input {
        /// CRC, markers, sides: see [`flag`].
        flags: u8,
        /// Further flags; see [`more`].
        more: u8,
        /// IRD and ORD, three bits of a nibble each; the fourth of the first is for windows with
        /// atomics.
        depth: u8,
        /// The events.
        steps: Tail<Step, 100>,
    }
}

/// Bits of `flags`.
pub mod flag {
    /// CRC both ways.
    pub const CRC: u8 = 1;
    /// Markers in what the QP receives.
    pub const MARKERS_RX: u8 = 2;
    /// Markers in what it sends.
    pub const MARKERS_TX: u8 = 4;
    /// The QP is the active side.
    pub const ACTIVE: u8 = 8;
    /// Writes are placed before their CRC was checked.
    pub const PLACE_BEFORE_CRC: u8 = 16;
    /// RFC 7306 is refused.
    pub const PLAIN: u8 = 32;
    /// Receives come from a shared queue.
    pub const SRQ: u8 = 64;
    /// The completion queue has hardly any entries.
    pub const SMALL_CQ: u8 = 128;
}

/// Bits of `more`.
pub mod more {
    /// At the end the peer closes at once, in place of finishing what it sends.
    pub const CLOSE: u8 = 1;
    /// The peer may not read.
    pub const NO_READ: u8 = 2;
    /// The peer may not write.
    pub const NO_WRITE: u8 = 4;
    /// An RTR of the kind in the next two bits was agreed on.
    pub const RTR: u8 = 8;
    /// Octets are delivered when a segment is made, so that no `Deliver` is needed.
    pub const AT_ONCE: u8 = 64;
    /// A QP takes at most two receives of the shared queue.
    pub const QUOTA: u8 = 128;
}

choice! {
    /// An event.
    pub enum Step {
        /// The peer sends the segment that is due, changed by the twist.
        Segment { opcode: u8, last: bool, region: u8, at: u16, len: u16, twist: u8, value: u32 },
        /// The peer sends any octets in an FPDU. Octets 2 to 5 may stand for an STag.
        Ulpdu { octets: Octets, region: Option<u8> },
        /// The peer sends any octets.
        Stream { octets: Octets },
        /// This many octets arrive.
        Deliver { octets: u16 },
        /// A receive is posted.
        Recv { at: u16, len: u16, pieces: u8 },
        /// A request is posted.
        Post { work: Work, fence: u8 },
        /// Another event at either end.
        Local { what: What },
    }
}

choice! {
    /// A request of the program.
    pub enum Work {
        /// A Send, perhaps with Invalidate.
        Send { at: u16, len: u16, invalidate: Option<u32> },
        /// A Write somewhere.
        Write { at: u16, len: u16, to: u64 },
        /// A Send whose octets are posted with the request.
        Inline { len: u16 },
        /// A Read.
        Read { at: u16, len: u16, to: u64, invalidate: bool },
        /// An atomic operation.
        Atomic { at: u16, swap: bool, value: u64 },
        /// Immediate Data, perhaps behind a Write.
        Immediate { data: u64, write: Option<u16> },
        /// The window is bound.
        Bind { at: u16, len: u16, access: u8 },
        /// A region or the window is invalidated.
        Invalidate { region: u8 },
    }
}

choice! {
    /// An event that is neither a message nor a request.
    pub enum What {
        /// A region is deregistered.
        Deregister { region: u8 },
        /// The peer reads what was sent to it.
        Drain {},
        /// The program closes.
        Disconnect {},
        /// The program sends a Terminate.
        Terminate {},
        /// The program resets the connection.
        Abort {},
        /// The peer sends no more.
        Finish {},
        /// The program polls for completions.
        Poll {},
    }
}
