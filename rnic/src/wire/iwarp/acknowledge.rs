//! Acknowledging, where a request completes when the peer has executed it
//! ([`Transport::Acknowledged`](crate::Transport::Acknowledged)): one acknowledgement for each turn
//! of reading.

use rddp_iwarp::Acknowledgement;
use rddp_rdma::Status;
use rddp_rdmap::{Fault, TerminateCode};
use rddp_stat::Counter;

use super::link::Link;
use crate::queues::context::Context;
use crate::wire::WireEvent;

/// Octets that TCP is promised with which the next acknowledgement waits: it says what those that
/// wait for TCP say, and more.
const MAX_PROMISED: usize = 4096;

/// The progress of acknowledging.
#[derive(Debug, Default)]
pub(super) struct Acknowledging {
    /// Number of the peer's messages that it was told of.
    told: u32,
    /// Number of its Writes of no octets, which are not acknowledged: the first FPDU of a
    /// connection may be one.
    empty: u32,
}

impl Link {
    /// Queues an acknowledgement, if there is something to acknowledge. Returns whether it did.
    #[inline]
    pub(super) fn acknowledge(&mut self, cx: &Context<'_>) -> bool {
        self.acknowledging.is_some() && self.acknowledge_executed(cx)
    }

    // Out of the way of connections that have no acknowledgements.
    #[cold]
    #[inline(never)]
    fn acknowledge_executed(&mut self, cx: &Context<'_>) -> bool {
        let Some(acknowledging) = &mut self.acknowledging else { return false };
        // Both counts begin with the connection.
        let executed = cx.tally.of(Counter::SendsReceived) + cx.tally.of(Counter::WritesReceived);
        let executed = (executed as u32).wrapping_sub(acknowledging.empty);
        let is_due = executed != acknowledging.told && self.out.owed().len() < MAX_PROMISED;
        if is_due && self.is_open() {
            self.acknowledging.get_or_insert_default().told = executed;
            self.push_own(&Acknowledgement(executed).header(), &[]);
            return true;
        }
        false
    }

    /// Takes the parked ULPDU, one that RDMAP does not know.
    ///
    /// # Errors
    /// It is no acknowledgement, or acknowledges what cannot be.
    #[cold]
    pub(super) fn take_left(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let said = self.parked.as_deref().and_then(Acknowledgement::parse);
        self.drop_parked(cx.attrs);
        Ok(cx.acknowledged(said.ok_or(Fault::UnknownOpcode { opcode: Acknowledgement::OPCODE })?)?)
    }

    /// Notes that the peer has written no octets.
    #[cold]
    pub(super) fn note_empty_write(&mut self) {
        if let Some(acknowledging) = &mut self.acknowledging {
            acknowledging.empty = acknowledging.empty.wrapping_add(1);
        }
    }
}

/// Returns the status of the request that the peer has refused with this code, as InfiniBand names
/// it.
pub(super) fn status_of(code: TerminateCode) -> Status {
    match code {
        TerminateCode::CANNOT_INVALIDATE_PROTECTION | TerminateCode::CANNOT_INVALIDATE_OPERATION => {
            Status::RemoteInvalidRequest
        }
        _ => match (code.layer(), code.etype()) {
            // Protection of RDMAP, and tagged buffers of DDP.
            (0, 1) | (1, 1) => Status::RemoteAccess,
            // Untagged buffers of DDP: longer than its receive, above all.
            (1, 2) => Status::RemoteInvalidRequest,
            _ => Status::RemoteOperation,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_what_was_wrong_with_the_request() {
        let of = |codes: &[TerminateCode]| codes.iter().map(|code| status_of(*code)).collect::<Vec<_>>();
        let access =
            [TerminateCode::TAGGED_INVALID_STAG, TerminateCode::TAGGED_BOUNDS, TerminateCode::BOUNDS];
        assert_eq!(of(&access), [Status::RemoteAccess; 3]);
        let request = [TerminateCode::UNTAGGED_TOO_LONG, TerminateCode::CANNOT_INVALIDATE_PROTECTION];
        assert_eq!(of(&request), [Status::RemoteInvalidRequest; 2]);
        let operation = [TerminateCode::LOCAL_CATASTROPHIC, TerminateCode::MPA_CRC];
        assert_eq!(of(&operation), [Status::RemoteOperation; 2]);
    }
}
