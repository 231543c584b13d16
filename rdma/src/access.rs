//! Rights to registered memory (draft-hilland-rddp-verbs §7.5).

use std::fmt;

bitflags::bitflags! {
    /// Rights to a region or window, and the start of its Tagged Offsets. The owner may always
    /// read.
    ///
    /// ```
    /// use rddp_rdma::Access;
    /// let served = Access::LOCAL_WRITE | Access::REMOTE_READ;
    /// assert!(served.intersects(Access::REMOTE) && !served.contains(Access::REMOTE_WRITE));
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// Receives and Read sinks of the owner may be placed here.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may Read from here.
        const REMOTE_READ = 1 << 1;
        /// Peers may Write here. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 1 << 2;
        /// Peers may do atomic operations here. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to the region. Not together with `ZERO_BASED`.
        const BIND = 1 << 4;
        /// A peer may invalidate the STag with a Send. Not for STags that several streams share
        /// (RFC 5042 §6.4.5).
        const REMOTE_INVALIDATE = 1 << 5;
        /// The Tagged Offset of the first octet is 0 instead of its address.
        const ZERO_BASED = 1 << 6;
        /// The octets are stable: nobody changes them while a peer may Read them, or while a
        /// request of the owner that sends them is outstanding. The owner promises it, also for
        /// other processes and for other registrations of the memory. A software device then sends
        /// them without a copy of its own, which with CRC saves one.
        ///
        /// Not together with a right by which octets change. A window needs it of its region, too.
        /// Should the octets change nevertheless while they are sent with CRC, the receiver finds a
        /// wrong CRC and ends the connection, and none of these octets are delivered. Without CRC
        /// it gets a mixture, as it would from any memory that is changed.
        const STABLE = 1 << 7;
    }
}

impl Access {
    /// All rights by which a peer reaches the octets.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// All rights by which octets may change.
    const WRITING: Self = Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// Returns whether any of these rights lets octets change.
    #[inline]
    #[must_use]
    pub const fn writes(self) -> bool {
        self.intersects(Self::WRITING)
    }
}

/// The number of a queue pair, as completions and events name it.
///
/// ```
/// assert_eq!(rddp_rdma::QpNum(7).to_string(), "QP 7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(pub u32);

impl fmt::Display for QpNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_changes_nothing() {
        let reading = Access::REMOTE_READ | Access::BIND | Access::REMOTE_INVALIDATE;
        let reading = reading | Access::ZERO_BASED | Access::STABLE;
        assert!(!reading.writes() && !Access::empty().writes());
        for right in [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert!((reading | right).writes(), "{right:?}");
        }
    }
}
