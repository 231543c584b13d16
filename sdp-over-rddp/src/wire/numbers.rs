//! Arithmetic of sequence numbers and service identifiers.

/// Returns whether the message numbered `a` comes before `b`. Numbers wrap, so the nearer way
/// round the circle counts.
#[must_use]
pub const fn seq_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) >= 1 << 31
}

/// The bits of a service identifier that tell that it is one of SDP.
pub const SERVICE_ID_MASK: u64 = 0xffff_ffff_ffff_0000;

/// Returns the service identifier that stands for a port on InfiniBand and RoCE, where connections
/// have no ports.
#[must_use]
pub const fn service_id(port: u16) -> u64 {
    0x1_0000 | port as u64
}
