//! The parts of a connection. Integers alone, zeros before the startup.

use rddp_sdp::wire::HEADER_LEN;

use crate::fields::{Field, fields};

/// The message of the peer that was taken last.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Message {
    /// `Len` of the message, where that is open: more of its segments follow.
    pub(in crate::sdp) len: u32,
    pub(in crate::sdp) is_open: u32,
    pub(in crate::sdp) has_payload: u32,
    /// 1 if the segment that was taken last is one of a Read Response or a Write.
    pub(in crate::sdp) is_tagged: u32,
    /// Octets that came with an advert of the peer; 0 once others of the stream have come.
    pub(in crate::sdp) inline: u32,
}

/// The end of the directions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// Octets in front of the kernel's queue that belong to an FPDU that has been taken: they keep
    /// the socket readable.
    pub(in crate::sdp) stub: u32,
    /// 1 once TCP's receiving direction was closed, behind the peer's `DisConn`: that keeps the
    /// socket readable without a stub.
    pub(in crate::sdp) is_shut: u32,
    /// 1 once the peer's FIN has come without its `DisConn`.
    pub(super) fin: u32,
    /// 1 once this end's FIN was sent.
    pub(in crate::sdp) fin_sent: u32,
    /// 1 once the last holder has closed the socket: what still comes is dropped.
    pub(in crate::sdp) closing: u32,
    /// The errno of a reset that a send of ours has met, for the receive that has come up to it; 0:
    /// none.
    pub(super) lost: i32,
}

/// The urgent octets of both directions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UrgentOctet {
    /// 1 while the urgent octet has not been passed by, and 1 once it was read by `MSG_OOB`.
    pub(in crate::sdp) marked: u32,
    pub(in crate::sdp) oob_read: u32,
    /// Octets of a call that are still to be sent, the last of which is urgent.
    pub(in crate::sdp) left: u32,
}

/// A message that was made while one of the peer was taken, and goes before any other.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(in crate::sdp) octets: [u8; HEADER_LEN],
    /// 1 while there is one.
    pub(in crate::sdp) is_due: u32,
}

/// The octets that the program has not read, and what is behind them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    /// Octets of the queue in front of the messages that are looked at.
    pub(in crate::sdp) ahead: u32,
    /// Messages whose octets have come to the queue, and whose buffers count as taken.
    pub(in crate::sdp) bufs: u32,
    /// 1 while a call looks for what is behind octets.
    pub(in crate::sdp) seeks: u32,
    /// 1 once octets could not be moved to the queue for want of room.
    pub(in crate::sdp) cramped: u32,
    /// 1 while a message is left in the kernel for want of memory.
    pub(in crate::sdp) hungry: u32,
    /// 1 while there is no memory for an advert of the peer, or no way to Read.
    pub(in crate::sdp) starved: u32,
}

/// Sends that put their octets in memory of the stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    /// 1 while a send puts its octets behind others that stand in memory of the stream.
    pub(in crate::sdp) queues: u32,
    /// 1 while less than a third of the room for such octets is free.
    pub(in crate::sdp) is_full: u32,
    /// 1 while a send without credits puts its octets there.
    pub(in crate::sdp) joins: u32,
    /// 1 once there was no memory for that; until there are credits.
    pub(in crate::sdp) cannot_join: u32,
}

/// The octets under way, and what sleepers were told of the peer's credits.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Credits {
    /// Octets of the newest Data messages, and of those before, each as many as the peer has Bufs.
    pub(super) sent: [u32; 2],
    /// Number of the newest ones.
    pub(super) newest: u32,
    pub(super) peer_bufs: u32,
    /// Fewer credits than these are no room that a wait is told of; 0: any are.
    pub(super) low: u32,
    /// Facts that sleepers have been told of, as bits.
    pub(super) told: u32,
}

impl Message {
    pub(super) const FIELDS: &[Field] = fields!(Message: len, is_open, has_payload, is_tagged, inline);
}

impl End {
    pub(super) const FIELDS: &[Field] = fields!(End: stub, is_shut, fin, fin_sent, closing, lost);
}

impl UrgentOctet {
    pub(super) const FIELDS: &[Field] = fields!(UrgentOctet: marked, oob_read, left);
}

impl Answer {
    pub(super) const FIELDS: &[Field] = fields!(Answer: octets, is_due);
}

impl Queue {
    pub(super) const FIELDS: &[Field] = fields!(Queue: ahead, bufs, seeks, cramped, hungry, starved);
}

impl Behind {
    pub(super) const FIELDS: &[Field] = fields!(Behind: queues, is_full, joins, cannot_join);
}

impl Credits {
    pub(super) const FIELDS: &[Field] = fields!(Credits: sent, newest, peer_bufs, low, told);
}
