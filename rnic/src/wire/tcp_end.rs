//! The end of a connection as TCP has it: a FIN each way, and the time that the peer has for its
//! own.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::conn::socket::DeviceSocket;
use crate::mem::unacknowledged;
use crate::queues::attributes::QpAttributes;
use crate::wire::WireEvent;

/// Time that closing or terminating may take before TCP is reset. It begins again while the peer
/// takes what it was sent before.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for all of that.
const LONGEST: Duration = Duration::from_secs(120);

/// The progress of a TCP connection's end.
#[derive(Debug, Default)]
pub(crate) struct TcpEnd {
    /// Our FIN shall go out behind everything that TCP is promised.
    fin_due: bool,
    /// Our FIN has gone out.
    fin_sent: bool,
    /// The peer's FIN has come.
    peer_done: bool,
    limit: Option<Limit>,
}

/// The time that the peer has for its FIN.
#[derive(Clone, Copy, Debug)]
struct Limit {
    begun: Instant,
    deadline: Instant,
    /// Octets that the peer's TCP had not acknowledged when the deadline was set.
    left: usize,
}

impl TcpEnd {
    /// Has our FIN follow what TCP is promised, and limits the time until the peer's.
    pub(super) fn begin(&mut self, attrs: &QpAttributes) {
        self.fin_due = true;
        self.bound(attrs);
    }

    /// Has our FIN follow all that is queued, and lets the peer go on for as long as it likes.
    pub(super) fn fin_behind_all(&mut self) {
        self.fin_due = true;
    }

    /// Limits the time that the peer has from here on.
    pub(super) fn bound(&mut self, attrs: &QpAttributes) {
        self.set_limit(attrs, Instant::now(), usize::MAX);
    }

    fn set_limit(&mut self, attrs: &QpAttributes, begun: Instant, left: usize) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        self.limit = Some(Limit { begun, deadline, left });
        attrs.device.driver.at(deadline, attrs.token);
    }

    /// Returns whether the peer's FIN has come.
    pub(super) fn is_peer_done(&self) -> bool {
        self.peer_done
    }

    /// Sends FIN if it is due. Everything promised has gone (RFC 5044 §7.2).
    #[inline]
    pub(super) fn send_fin(&mut self, socket: &DeviceSocket) -> Result<(), WireEvent> {
        if self.fin_due && !self.fin_sent {
            // A peer that is gone already shows on the receiving side.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            self.fin_sent = true;
            if self.peer_done {
                return Err(WireEvent::Closed);
            }
        }
        Ok(())
    }

    /// Notes that the peer's FIN has come, which MPA makes known (RFC 5044 §7.2). Returns whether
    /// ours has gone, so that all is over.
    pub(super) fn note_peer_done(&mut self) -> bool {
        self.peer_done = true;
        self.fin_sent
    }

    /// Returns whether the peer has had all the time that it may take. One that reads slowly what
    /// was sent to it has more: a reset would discard the rest.
    pub(super) fn is_overdue(&mut self, attrs: &QpAttributes, socket: BorrowedFd<'_>, now: Instant) -> bool {
        let Some(Limit { begun, deadline, left }) = self.limit else { return false };
        if now < deadline {
            return false;
        }
        match unacknowledged(socket) {
            Ok(still) if still > 0 && still < left && now < begun + LONGEST => {
                self.set_limit(attrs, begun, still);
                false
            }
            _ => true,
        }
    }

    /// Leaves the connection to the device: `owed` still goes out, then FIN, and up to `discards`
    /// octets of the peer are thrown away meanwhile.
    pub(super) fn linger(
        self,
        attrs: &QpAttributes,
        socket: Arc<DeviceSocket>,
        owed: Vec<u8>,
        discards: usize,
    ) {
        let limit = self.limit.filter(|_| self.fin_due);
        let deadline = limit.map_or_else(|| Instant::now() + CLOSE_TIMEOUT, |limit| limit.deadline);
        attrs.device.lingering.add(&attrs.device.driver, socket, owed, discards, deadline);
    }
}
