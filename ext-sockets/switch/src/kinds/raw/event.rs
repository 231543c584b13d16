//! Events in the form that C programs see.

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
    /// 0 or an errno: the result of a work, or the reason of the end.
    pub status: i32,
    /// The descriptor that was attached.
    pub fd: i32,
    /// Octets received or read.
    pub length: u32,
    /// A set of `flag`, which says what other fields hold.
    pub flags: u32,
    /// The STag that was invalidated.
    pub stag: u32,
    /// The Immediate Data of a message.
    pub immediate: [u8; 8],
    /// The code of the Terminate that ended the connection; -1 if none did.
    pub terminate: i32,
    /// Always 0.
    pub reserved: u32,
}

/// The kind of the event for a connection that is established.
pub(super) const CONNECTED: u32 = 101;
/// The kind of the event for a connection that has ended: the endpoint's last one.
pub(super) const CLOSED: u32 = 102;
/// The kind of the event for a peer's Request that waits for an answer.
pub(super) const REQUESTED: u32 = 103;
/// The kind of the event for shared receives that are fewer than the program's limit.
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
    /// Returns the event of a work that has completed.
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

    /// Returns the event with the Terminate that ended the connection, if one did.
    pub(super) fn with_terminate(
        mut self,
        sent: Option<TerminateCode>,
        received: Option<TerminateCode>,
    ) -> Self {
        self.terminate = received.or(sent).map_or(-1, |code| code.0.into());
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
        // All other completions are of receives.
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
        // The connection ended before the work was done.
        _ => Errno(libc::ECANCELED),
    }
}
