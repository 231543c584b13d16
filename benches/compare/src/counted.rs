//! Counters of a lane, read before and after a slice.

use rddp_rnic::Counters;

use crate::spec::Tally;
use crate::tcp::Copies;

/// Counters of one end's connections since they were opened.
pub(crate) enum Counted {
    Rdma(Counters),
    Stream(Copies),
}

impl Counted {
    /// Enters in a tally what was counted between `before` and this.
    pub(crate) fn enter(&self, before: &Counted, tally: &mut Tally) {
        match (before, self) {
            (Counted::Rdma(before), Counted::Rdma(after)) => {
                tally.send_calls = after.send_calls - before.send_calls;
                tally.receive_calls = after.receive_calls - before.receive_calls;
                tally.fpdus_sent = after.fpdus_sent - before.fpdus_sent;
            }
            (Counted::Stream(before), Counted::Stream(after)) => {
                tally.delivered = after.delivered - before.delivered;
                tally.copied = after.copied - before.copied;
            }
            // A lane is of one kind.
            (Counted::Rdma(_), Counted::Stream(_)) | (Counted::Stream(_), Counted::Rdma(_)) => {}
        }
    }
}
