//! The end of a connection: why, and the Terminate that the plain host gets for it.

use rddp_ddp::{DdpError, Msn};
use rddp_iwarp::Trouble;
use rddp_rdma::{Completed, Status};
use rddp_rdmap::{AccessError, Fault, Offending, SEND_QUEUE, TerminateCode};
use rddp_verbs_device::PostError;

use super::shape::{opcode_of, unknown};

/// The reason why a connection goes no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// The plain host has broken a rule, or asks for what cannot go on.
    #[error("the plain host broke a rule: {0}")]
    Trouble(Box<Trouble>),
    /// The plain host asks for what an adapter has in part.
    #[error("{what}")]
    Lacks { what: &'static str, trouble: Box<Trouble> },
    #[error("the plain host ended the stream: {0}")]
    Terminated(TerminateCode),
    #[error("the device's host: {status}")]
    Device { status: Status, trouble: Box<Trouble> },
    #[error("the device: {error}")]
    Refused { error: PostError, trouble: Box<Trouble> },
    /// RFC 7306 §6.3 has no message with both.
    #[error("a Send with an immediate value and octets, which iWARP does not have")]
    ImmediateWithOctets,
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble.into())
    }
}

impl Stop {
    /// Returns what the plain host is to be told by a Terminate.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        match self {
            Stop::Trouble(trouble)
            | Stop::Lacks { trouble, .. }
            | Stop::Device { trouble, .. }
            | Stop::Refused { trouble, .. } => Some(**trouble),
            Stop::ImmediateWithOctets => Some(of_this_end()),
            // RFC 5040 §7.1 asks for none in answer to one, and §5.4 lets this end stop.
            Stop::Terminated(_) => None,
        }
    }
}

/// Code 0x0207, a catastrophic error of the stream (RFC 5040 §4.8). No segment is at fault, so none
/// is cited (RFC 5040 §7.1).
fn of_this_end() -> Trouble {
    Trouble { fault: Fault::bad_close(), offending: None }
}

/// Returns the end that the outcome of a request is, with the code that an RNIC would give in the
/// device's place: of Reads and atomics by RFC 5040 §4.8, of Writes and Sends by RFC 5041 §7.1 and
/// §7.2. Requests that were flushed have no reason of their own.
pub(super) fn fault_of(status: Status, kind: Completed, offending: Option<Offending>) -> Result<(), Stop> {
    let fault = match (status, kind) {
        (Status::Success | Status::Flushed, _) => return Ok(()),
        // A device says no more than that the right is missing, the key or a part of the range.
        (Status::RemoteAccess, Completed::Write) => Fault::write_access(AccessError::Stag),
        (Status::RemoteAccess, Completed::Read) => Fault::read_source(AccessError::Rights),
        (Status::RemoteAccess, Completed::FetchAdd) => Fault::atomic_access(AccessError::Rights),
        (Status::ReceiverNotReady, _) => DdpError::NoBuffer { qn: SEND_QUEUE, msn: Msn::FIRST }.into(),
        _ => return Err(Stop::Device { status, trouble: of_this_end().into() }),
    };
    Err(Stop::Device { status, trouble: Trouble { fault, offending }.into() })
}

/// Returns the end of a connection whose request the device did not take.
pub(super) fn refusal_of(error: PostError, offending: Option<Offending>) -> Stop {
    let opcode = offending.and_then(|offending| opcode_of(&offending.header));
    let trouble = match (&error, opcode) {
        (PostError::Unsupported { .. }, Some(opcode)) => Trouble { fault: unknown(opcode), offending },
        _ => of_this_end(),
    };
    Stop::Refused { error, trouble: trouble.into() }
}
