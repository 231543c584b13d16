//! Completions, and what wakes their reader.

use std::io;

use rddp_rdma::{Completion, QpNum, Status};
use rddp_verbs_layout::ibv_wc;

use super::{BATCH, Endpoint, Stage};
use crate::error::DeviceError;
use crate::words::{is_receive, number_of, received, sent, status_of};

impl Endpoint {
    /// Appends the completions that there are: those of receives, of signaled requests, and of all
    /// that failed.
    ///
    /// The first request that fails ends the connection. The device does so without a word to
    /// either program, so that it is the endpoint that tells the peer.
    ///
    /// # Errors
    /// The completion queue is broken.
    pub fn poll(&mut self, into: &mut Vec<Completion>) -> Result<(), DeviceError> {
        self.fetch().map_err(|error| self.device.failed("ibv_poll_cq", error))?;
        if into.is_empty() {
            std::mem::swap(into, &mut self.ready);
        } else {
            into.append(&mut self.ready);
        }
        self.end_if_due();
        Ok(())
    }

    /// Has the descriptor become readable by the next completion.
    ///
    /// A completion that has come by then causes no event: so it is looked for behind the request
    /// for one, and the descriptor made readable here.
    ///
    /// # Errors
    /// The completion queue is broken.
    pub fn arm(&mut self) -> Result<(), DeviceError> {
        let Some(pair) = self.link.id.pair() else { return Ok(()) };
        if std::mem::take(&mut self.has_rung) {
            let _ = self.bell.read();
        }
        let armed = pair.completions.take_events().and_then(|()| pair.completions.arm());
        let outstanding = self.sends.len();
        armed.and_then(|()| self.fetch()).map_err(|error| self.device.failed("ibv_req_notify_cq", error))?;
        // Of requests that nobody is told of, the places are free: who waits for one looks again.
        let has_room = self.sends.len() < outstanding;
        if !self.ready.is_empty() || has_room || self.has_untold_start || self.has_untold_end() {
            self.ring();
        }
        Ok(())
    }

    /// Takes the device's completions.
    pub(super) fn fetch(&mut self) -> io::Result<()> {
        loop {
            let Some(pair) = self.link.id.pair() else { return Ok(()) };
            let qp = QpNum(pair.number());
            let taken = pair.completions.poll(&mut self.batch[..])?;
            for index in 0..taken {
                let entry = self.batch[index];
                self.take(&entry, qp);
            }
            if taken < BATCH {
                return Ok(());
            }
        }
    }

    fn take(&mut self, entry: &ibv_wc, qp: QpNum) {
        if status_of(entry.status, is_receive(entry.wr_id)) == Status::Other {
            let (device, status, vendor_err) = (self.device.name(), entry.status, entry.vendor_err);
            tracing::warn!(device, qp = qp.0, status, vendor_err, "the device has failed a request");
        }
        if is_receive(entry.wr_id) {
            if self.shared.is_none() {
                let Some(left) = self.receives.checked_sub(1) else { return };
                self.receives = left;
            }
            let mut completion = received(entry, number_of(entry.wr_id), qp);
            if completion.status == Status::Success {
                self.heard();
            }
            completion.status = self.noted(completion.status);
            if let (Status::Flushed, Some(shared)) = (completion.status, &self.shared) {
                shared.give_back(completion.wr_id);
            }
            self.ready.push(completion);
            return;
        }
        let status = self.noted(status_of(entry.status, false));
        self.sends.tell(entry.wr_id, status);
        // A request completes when all before it have.
        while let Some((request, status)) = self.sends.take() {
            if !request.own && (request.signaled || status != Status::Success) {
                self.ready.push(sent(request.wr_id, status, request.completed, request.read, qp));
            }
        }
    }

    /// Notes a request's outcome: one that failed ends the connection. So does one that is flushed:
    /// rxe tells no more of some that failed.
    fn noted(&mut self, status: Status) -> Status {
        let status = first_alone(&mut self.failed, status);
        let is_over = status != Status::Success && matches!(self.stage, Stage::Connected | Stage::Closing(_));
        if is_over {
            self.end();
        }
        status
    }
}

/// Returns an outcome, and notes whether it is the first failure: what fails behind that, in the
/// other queue say, has failed because the connection is over.
fn first_alone(failed: &mut bool, status: Status) -> Status {
    match status {
        Status::Success | Status::Flushed => status,
        _ if std::mem::replace(failed, true) => Status::Flushed,
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_ends_a_connection_and_is_the_only_one() {
        let mut failed = false;
        let mut note = |status| first_alone(&mut failed, status);
        assert_eq!([note(Status::Success), note(Status::Flushed)], [Status::Success, Status::Flushed]);
        assert_eq!(note(Status::RemoteAccess), Status::RemoteAccess);
        assert_eq!(
            [note(Status::LocalProtection), note(Status::Success)],
            [Status::Flushed, Status::Success]
        );
    }
}
