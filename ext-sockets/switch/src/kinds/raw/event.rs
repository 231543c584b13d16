//! Events as C has them.

use rddp_rnic::{Completed, Completion, Status, TerminateCode};
use rddp_stream::Errno;

use super::work::op;

/// `struct ddp_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// The program's mark of the endpoint.
    pub endpoint: u64,
    /// The program's mark of the work.
    pub tag: u64,
    /// An operation, or one of `CONNECTED`, `CLOSED`, `REQUESTED` and `LIMIT`.
    pub kind: u32,
    /// 0 or an errno.
    pub status: i32,
    /// The descriptor that was attached.
    pub fd: i32,
    /// Octets received or read.
    pub length: u32,
    /// What else is told: see `flag`.
    pub flags: u32,
    /// The STag that was invalidated.
    pub stag: u32,
    /// Immediate Data.
    pub immediate: [u8; 8],
    /// The code of a Terminate.
    pub terminate: u32,
    /// Nothing.
    pub reserved: u32,
}

/// The connection is there.
pub(super) const CONNECTED: u32 = 101;
/// It is over: the endpoint's last event.
pub(super) const CLOSED: u32 = 102;
/// The peer's Request waits for an answer.
pub(super) const REQUESTED: u32 = 103;
/// Fewer shared receives are left than the program wants to be told of.
pub(super) const LIMIT: u32 = 104;

/// `DDP_EVENT_*`.
pub(super) mod flag {
    pub(crate) const SOLICITED: u32 = 1;
    pub(crate) const INVALIDATED: u32 = 2;
    pub(crate) const IMMEDIATE: u32 = 4;
    pub(crate) const TERMINATE_SENT: u32 = 8;
    pub(crate) const TERMINATE_RECEIVED: u32 = 16;
}

impl Event {
    /// Of a work that has ended.
    pub(super) fn of_work(completion: &Completion) -> Self {
        let mut event = Event {
            tag: completion.wr_id,
            kind: kind(completion.completed),
            status: errno(completion.status).0,
            length: completion.byte_len,
            ..Event::default()
        };
        if completion.solicited {
            event.flags |= flag::SOLICITED;
        }
        if let Some(stag) = completion.invalidated {
            event.flags |= flag::INVALIDATED;
            event.stag = stag.0;
        }
        if let Some(data) = completion.immediate {
            event.flags |= flag::IMMEDIATE;
            event.immediate = data;
        }
        event
    }

    /// With the Terminate that ended the connection, if one did.
    pub(super) fn with_terminate(
        mut self,
        sent: Option<TerminateCode>,
        received: Option<TerminateCode>,
    ) -> Self {
        if let Some(code) = received.or(sent) {
            self.terminate = code.0.into();
        }
        if sent.is_some() {
            self.flags |= flag::TERMINATE_SENT;
        }
        if received.is_some() {
            self.flags |= flag::TERMINATE_RECEIVED;
        }
        self
    }
}

fn kind(completed: Completed) -> u32 {
    match completed {
        Completed::Send => op::SEND,
        Completed::Immediate => op::IMMEDIATE,
        Completed::Write => op::WRITE,
        Completed::Read => op::READ,
        Completed::FetchAdd => op::FETCH_ADD,
        Completed::CmpSwap => op::CMP_SWAP,
        Completed::Bind => op::BIND,
        Completed::Invalidate => op::INVALIDATE,
        // All that is received: there are no others.
        _ => op::RECEIVE,
    }
}

fn errno(status: Status) -> Errno {
    match status {
        Status::Success => Errno::NONE,
        Status::LocalProtection => Errno::FAULT,
        Status::LocalOperation => Errno::UNSUPPORTED,
        Status::MemoryBind => Errno(libc::EACCES),
        Status::MessageTooLong => Errno(libc::EMSGSIZE),
        Status::RemoteInvalidate => Errno(libc::EPERM),
        Status::RemoteAccess => Errno(libc::EREMOTEIO),
        // The connection ended first.
        _ => Errno(libc::ECANCELED),
    }
}
