//! Counters of a QP and of the whole device.

use std::ops::AddAssign;

/// Counts of what one QP, or all QPs of a device together, has done since it was connected.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/pair.rs")); }
/// # let (active, passive) = doc::pair()?;
/// use rddp_rnic::SendWr;
/// passive.qp.post_recv(rddp_rnic::RecvWr::new(1, []))?;
/// let before = active.qp.counters();
/// active.qp.post_send(&SendWr::send_inline(1, b""))?;
/// assert_eq!(active.qp.counters().fpdus_sent, before.fpdus_sent + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// FPDUs sent.
    pub fpdus_sent: u64,
    /// FPDUs received with nothing wrong in MPA.
    pub fpdus_received: u64,
    /// Octets handed to TCP, headers and all.
    pub octets_sent: u64,
    /// Octets taken from TCP, headers and all.
    pub octets_received: u64,
    /// Calls that handed octets to TCP.
    pub send_calls: u64,
    /// Calls that took octets from TCP, or found none.
    pub receive_calls: u64,
    /// Payload octets received straight into registered memory.
    pub octets_placed_directly: u64,
    /// Payload octets of long segments (above 2 KiB) that were copied before they were sent,
    /// because others may change them meanwhile.
    pub octets_copied: u64,
    /// Payload octets that the kernel had put into their place.
    pub octets_placed_by_kernel: u64,
    /// Terminates sent.
    pub terminates_sent: u64,
    /// Terminates received.
    pub terminates_received: u64,
    /// Datagrams dropped by this end: without a receive, without room in the socket, or, of
    /// [`Transport::Unreliable`](crate::Transport::Unreliable), for another QP.
    pub dropped: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.fpdus_sent += other.fpdus_sent;
        self.fpdus_received += other.fpdus_received;
        self.octets_sent += other.octets_sent;
        self.octets_received += other.octets_received;
        self.send_calls += other.send_calls;
        self.receive_calls += other.receive_calls;
        self.octets_placed_directly += other.octets_placed_directly;
        self.octets_copied += other.octets_copied;
        self.octets_placed_by_kernel += other.octets_placed_by_kernel;
        self.terminates_sent += other.terminates_sent;
        self.terminates_received += other.terminates_received;
        self.dropped += other.dropped;
    }
}
