//! The program's answer to a peer's Request.

use std::ffi::c_int;

use rddp_mpa::StartupMisuse;
use rddp_rnic::{Answer, AnswerError};
use rddp_stream::Errno;

use super::endpoint;
use crate::sys::raw::Reply;

/// `enum ddp_answer`.
const ACCEPT: c_int = 1;
const REJECT: c_int = 2;

/// Answers the peer's Request: `ddp_answer`.
///
/// # Errors
/// As `include/rddp/raw.h` says.
pub fn answer(fd: c_int, answer: c_int, reply: Reply<'_>) -> Result<(), Errno> {
    let (_, endpoint) = endpoint::of(fd)?;
    let answer = match answer {
        ACCEPT => Answer::Accept,
        REJECT => Answer::Reject,
        _ => return Err(Errno::INVALID),
    };
    if !endpoint.asks {
        return Err(Errno::INVALID);
    }
    let private_data = reply.octets().unwrap_or(&endpoint.options.private_data);
    endpoint.qp.answer(answer, private_data).map_err(|error| match error {
        AnswerError::Answered => Errno(libc::EALREADY),
        AnswerError::Misuse(StartupMisuse::PrivateDataTooLong { .. }) => Errno(libc::EMSGSIZE),
        AnswerError::Misuse(_) => Errno::PROTOCOL,
        _ => Errno(libc::ENOTCONN),
    })
}
