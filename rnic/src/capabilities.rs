//! Limits of the software device. Every check of one reads it from here.

use rddp_mpa::MAX_ENHANCED_PRIVATE_DATA;
use rddp_rdma::{Access, Atomics, Capabilities, Protocol};
use rddp_rdmap::IMMEDIATE_LEN;

/// The limits of this device, as [`Rnic::capabilities`](crate::Rnic::capabilities) returns them.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    protocol: Protocol::Iwarp,
    max_qps: None,
    max_requests: None,
    max_cqes: 1 << 22,
    max_stags: 1 << 20,
    max_sge: 32,
    max_inline: 512,
    // RFC 5041 §5.2: a DDP message is shorter than 2^32 octets.
    max_message: u32::MAX as u64,
    max_ird: 1024,
    max_ord: 1024,
    // Revision 1 has room for four more, where revision 2 has the depths (RFC 6581 §9).
    max_request_data: MAX_ENHANCED_PRIVATE_DATA,
    max_reply_data: MAX_ENHANCED_PRIVATE_DATA,
    max_reject_data: MAX_ENHANCED_PRIVATE_DATA,
    atomics: Atomics::Masked,
    immediate_len: IMMEDIATE_LEN,
    read_sink: Access::LOCAL_WRITE,
    windows: true,
    send_invalidate: true,
    shared_receives: true,
    zero_based: true,
    data_in_order: true,
};
