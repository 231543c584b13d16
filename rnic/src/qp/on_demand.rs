//! Faults that a test asks for: requests that fail, connections that end; and requests that are
//! posted later. No other part of the device calls this.

use std::thread;
use std::time::{Duration, Instant};

use rddp_rdma::{AsyncEventKind, RecvWr, SendWr, Status};
use rddp_rdmap::Fault;

use super::core::Core;
use super::{QpInner, QueuePair};
use crate::error::PostError;
use crate::queues::options::Transport;
use crate::queues::state::QpState;
use crate::wire::WireEvent;

/// Time that requests before one that fails have to complete.
const BEFORE: Duration = Duration::from_secs(1);

/// Time between two looks whether they have.
const LOOK: Duration = Duration::from_micros(100);

impl QueuePair {
    /// Posts a request that is not sent and fails with `status`, behind those before it, and ends
    /// the connection: by a Terminate with the reason that the peer is `told`, else TCP is reset.
    /// Waits for the requests before it to complete, for a second at most.
    #[doc(hidden)]
    pub fn fail_request(&self, wr: &SendWr, status: Status, told: Option<u8>) -> Result<(), PostError> {
        let inner = self.inner.here()?;
        let until = Instant::now() + BEFORE;
        loop {
            let mut core = inner.core.lock();
            inner.progress(&mut core);
            if core.sq.is_empty() || Instant::now() >= until {
                return inner.fail_request(&mut core, wr, status, told);
            }
            drop(core);
            thread::sleep(LOOK);
        }
    }

    /// Posts a receive whose memory is checked when a message comes, and not before.
    #[doc(hidden)]
    pub fn post_recv_unchecked(&self, wr: RecvWr) -> Result<(), PostError> {
        let inner = self.inner.here()?;
        inner.attrs.recv_cq.refuse_if_overflowed()?;
        let mut core = inner.core.lock();
        core.rq.push_unchecked(wr)?;
        if !core.takes_receives() {
            inner.flush_receives(&mut core);
        } else if core.wants_receive() {
            inner.go_on_with_receive(&mut core);
        }
        Ok(())
    }

    /// Refuses a request that is posted later, behind so many others, if it could not be posted
    /// behind them now.
    #[doc(hidden)]
    pub fn check_request(&self, wr: &SendWr, others: usize) -> Result<(), PostError> {
        let inner = self.inner.here()?;
        inner.core.lock().sq.check_later(wr, others, inner.attrs.local_memory())
    }

    /// Returns the number of requests that have not ended.
    #[doc(hidden)]
    pub fn outstanding(&self) -> usize {
        self.inner.here().map_or(0, |inner| inner.core.lock().sq.outstanding())
    }

    /// Resets the connection, as if the peer were gone. Returns false without a connection.
    #[doc(hidden)]
    pub fn lose_peer(&self) -> bool {
        self.inner.here().is_ok_and(|inner| {
            let mut core = inner.core.lock();
            let is_connected = core.connection.is_some();
            if is_connected {
                inner.on_event(&mut core, WireEvent::Lost(AsyncEventKind::ConnectionLost));
            }
            is_connected
        })
    }
}

impl QpInner {
    fn fail_request(
        &self,
        core: &mut Core,
        wr: &SendWr,
        status: Status,
        told: Option<u8>,
    ) -> Result<(), PostError> {
        core.sq.push_all(std::slice::from_ref(wr), self.attrs.local_memory())?;
        if matches!(core.state, QpState::ReadyToSend | QpState::Idle) {
            core.sq.finish_at_cursor(status);
        }
        match core.state {
            QpState::ReadyToSend if self.attrs.transport == Transport::Unreliable => self.fail_sends(core),
            QpState::ReadyToSend if let Some(reason) = told => {
                self.terminate(core, Fault::gave_up(reason), None);
                self.pump(core);
            }
            QpState::ReadyToSend | QpState::Idle => self.lose(core, Some(AsyncEventKind::ConnectionLost)),
            QpState::SendsFailed => self.flush_sends(core),
            _ => self.flush(core, None),
        }
        Ok(())
    }
}
