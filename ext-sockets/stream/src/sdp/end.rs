//! The end of the peer's direction, as the kernel's socket tells it to those who wait.
//!
//! The end has been taken with `DisConn` and must stay readable for every holder. TCP's receiving
//! direction is closed for that (`SHUT_RD`): octets that come are still received, and the peer is
//! not told. Octets kept unread would do as well, but for a process that is killed: the kernel
//! resets a connection that is closed with octets unread, and what the peer's TCP lacks is lost.

use std::time::Duration;

use super::Shared;
use crate::base::Base;
use crate::sdp::Stream;
use crate::state::Rx;
use crate::sys::{Direction, is_confined};

/// Keeps the kernel's socket readable once the peer's `DisConn` has come, of which `now` knows
/// already. Called before its octets leave the kernel.
pub(super) fn keep_end_readable(base: &Base<'_>, now: &mut Shared) {
    if now.is_over() && now.end.is_shut == 0 {
        // A connection that is gone cannot be closed, and is readable for ever.
        let _ = base.kernel.shut(Direction::Receive);
        now.end.is_shut = 1;
    }
}

impl Stream<'_> {
    /// Returns whether the peer's FIN has come, if only to the kernel. Where this end has closed
    /// the receiving direction (`is_shut`), events do not tell.
    pub(super) fn peer_has_left(&self, is_shut: bool) -> bool {
        if is_shut {
            return self.kernel.has_peers_fin();
        }
        let told = self.kernel.poll(libc::POLLRDHUP, Some(Duration::ZERO));
        told.is_ok_and(|ready| ready & libc::POLLRDHUP != 0)
    }

    /// Returns whether TCP's FIN may follow both `DisConn`. Where the receiving direction is closed
    /// a kernel that has sent a FIN answers octets by a reset (RFC 1122 §4.2.2.13), and the peer
    /// may return credits until it has all that was sent.
    pub(super) fn may_send_fin(&self, rx: &Rx) -> bool {
        let is_there = || self.kernel.unacknowledged() == 0 || self.kernel.has_peers_fin();
        rx.sdp.end.is_shut == 0 || !is_confined() && is_there()
    }
}
