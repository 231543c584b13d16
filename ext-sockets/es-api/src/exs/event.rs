//! Types of events: the numbers of `EXS_EVT_*`.

use std::ffi::c_int;

use rddp_real::Errno;

/// `exs_evt_type`: the operation whose end an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[expect(missing_docs, reason = "each is the call of its name")]
pub enum EventType {
    Poll = 1,
    Connect = 2,
    Accept = 3,
    Send = 4,
    Recv = 5,
    SendMsg = 6,
    RecvMsg = 7,
    SendFile = 8,
}

/// `EXS_EVT_SENDTIMEOUT`: a send of any kind, or a connect, that took too long.
pub(super) const SEND_TIMEOUT: c_int = 9;
/// `EXS_EVT_RECVTIMEOUT`: a receive or an accept that took too long.
pub(super) const RECEIVE_TIMEOUT: c_int = 10;

/// Returns the `errno` of an event: 0 for success.
pub(super) fn number(result: Result<(), Errno>) -> c_int {
    result.err().map_or(0, |errno| errno.0)
}
