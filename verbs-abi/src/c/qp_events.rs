//! Events of a queue pair: what the device tells of one, and what the program is told.

use rddp_rnic::{AsyncEvent, AsyncEventKind, CqNum, Element, Fault, QpState, TerminateCode};

use super::abi::{event, status};
use super::handle::Object;
use super::queue_pair::Qp;
use crate::engine::Watcher;
use crate::refusal::Cause;

impl Qp {
    pub(super) fn report(&self, kind: u32) {
        self.pd.context.report(self.handle(), kind);
    }

    fn report_overflow(&self, num: CqNum) {
        let queues = [&self.send_cq, &self.recv_cq];
        if let Some(cq) = queues.into_iter().find(|cq| cq.queue.num() == num) {
            cq.report_overflow();
        }
    }

    /// Notes the end of the connection, of which an event tells: unless the program has reset the
    /// queue pair since.
    fn end_as_told(&self) {
        let is_over = matches!(self.queues.state(), QpState::Error | QpState::Terminate);
        if is_over || self.joint.is_none() {
            self.end();
        }
    }

    /// Notes the end of the connection.
    pub(super) fn end(&self) {
        self.go_to_end();
        // The device notes an event, and flushes the queues, under one lock. Who has had that lock
        // since finds what is flushed in the completion queues, and so do programs that are told.
        let _ = self.queues.state();
        let id = self.id.lock().upgrade();
        if let Some(id) = id {
            id.disconnected();
        }
    }
}

impl Watcher for Qp {
    fn on_event(&self, event: &AsyncEvent) {
        match (&event.kind, event.element) {
            (AsyncEventKind::Connected | AsyncEventKind::NotConnected, _) => {
                let id = self.id.lock().upgrade();
                match id {
                    Some(id) => id.startup_over(self),
                    None => self.joined(),
                }
            }
            (AsyncEventKind::CloseComplete, _) => {
                // The verbs have no way back from here but by a reset: what is posted from now on
                // is flushed.
                self.queues.abort();
                self.end();
            }
            (AsyncEventKind::Fault(fault), _) => {
                // A request that fails on demand has a completion to tell of it.
                if !matches!(fault, Fault::GaveUp { .. }) {
                    self.report(kind_of(fault));
                }
                self.end_as_told();
            }
            (AsyncEventKind::QpFailed | AsyncEventKind::DeviceFailed, _) => {
                self.report(event::QP_FATAL);
                self.end_as_told();
            }
            (AsyncEventKind::TerminateReceived(code), _) => {
                if *code == TerminateCode::MPA_CRC {
                    Cause::Changed.tell();
                }
                if let Some(kind) = demanded(*code) {
                    self.report(kind);
                }
                self.end_as_told();
            }
            (AsyncEventKind::BadClose | AsyncEventKind::ConnectionLost, _) => self.end_as_told(),
            (AsyncEventKind::CqOverflow, Element::Cq(num)) => self.report_overflow(num),
            (AsyncEventKind::SrqLimit, _) => {
                if let Some(srq) = &self.srq {
                    self.pd.context.report(srq.handle(), event::SRQ_LIMIT_REACHED);
                }
            }
            (AsyncEventKind::LastWqeReached, _) => self.report(event::QP_LAST_WQE_REACHED),
            _ => {}
        }
    }
}

/// Returns the event of a responder to a request that fails on demand at the peer: the Terminate of
/// one has the status for its reason.
fn demanded(code: TerminateCode) -> Option<u32> {
    const LOCAL: (u8, u8) = (0, 0);
    match ((code.layer(), code.etype()), u32::from(code.ecode())) {
        (LOCAL, status::REM_INV_REQ_ERR) => Some(event::QP_REQ_ERR),
        (LOCAL, status::REM_ACCESS_ERR) => Some(event::QP_ACCESS_ERR),
        (LOCAL, status::REM_OP_ERR) => Some(event::QP_FATAL),
        _ => None,
    }
}

/// Returns the event of a fault that ends a connection (`ibv_get_async_event(3)`): of a peer that
/// went where it may not, of a request that is none, or of the connection itself.
fn kind_of(fault: &Fault) -> u32 {
    match fault {
        Fault::WriteAccess(_) | Fault::ReadSource(_) | Fault::AtomicAccess(_) | Fault::Invalidate(_) => {
            event::QP_ACCESS_ERR
        }
        Fault::Version { .. }
        | Fault::UnknownOpcode { .. }
        | Fault::Misdirected { .. }
        | Fault::ControlLength { .. }
        | Fault::NotLast { .. }
        | Fault::IrdExceeded { .. }
        | Fault::AtomicOpcode { .. }
        | Fault::MisalignedAtomic => event::QP_REQ_ERR,
        _ => event::QP_FATAL,
    }
}

#[cfg(test)]
mod tests {
    use rddp_rnic::Stag;

    use super::*;

    /// `ibv_get_async_event(3)`: a peer that went where it may not, a request that is none, and the
    /// rest.
    #[test]
    fn an_event_says_what_kind_of_fault_it_was() {
        let refused = Fault::IrdExceeded { ird: 1 };
        assert_eq!(kind_of(&Fault::MisalignedAtomic), event::QP_REQ_ERR);
        assert_eq!([kind_of(&refused), kind_of(&Fault::Version { version: 2 })], [event::QP_REQ_ERR; 2]);
        let stag = Fault::SinkStag { got: Stag(1), expected: Stag(2) };
        for fault in [Fault::LocalCatastrophic, Fault::CqOverflow, Fault::BadClose, stag] {
            assert_eq!(kind_of(&fault), event::QP_FATAL);
        }
    }
}
