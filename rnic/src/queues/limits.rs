//! Requests that a device of the host does not have, or not as long: refused when they are posted.

use rddp_rdma::{Atomics, Capabilities, Gather, Operation, RecvWr, SendWr, Sge};

use crate::error::PostError;
use crate::local::LocalMemory;

/// Refuses a request that the device cannot carry out.
pub(super) fn check_send(
    limits: &Capabilities,
    wr: &SendWr,
    memory: LocalMemory<'_>,
) -> Result<(), PostError> {
    let is_there = match &wr.operation {
        Operation::Send { gather, invalidate } if invalidate.is_none() || limits.send_invalidate => {
            return check_message(limits, gather);
        }
        Operation::SendImmediate { gather, data } if fits(limits, data) => {
            return check_message(limits, gather);
        }
        Operation::Write { .. } => true,
        Operation::WriteImmediate { data, .. } | Operation::Immediate { data } => fits(limits, data),
        Operation::Read { invalidate_sink, .. } => !invalidate_sink,
        Operation::FetchAdd { mask, .. } => has_atomics(limits, *mask == 0),
        Operation::CmpSwap { compare_mask, swap_mask, .. } => {
            has_atomics(limits, [*compare_mask, *swap_mask] == [u64::MAX; 2])
        }
        // The device's key is known when the request is handed over.
        Operation::Bind { key, .. } => limits.windows && key.is_none(),
        Operation::Invalidate { stag } => limits.windows && !memory.table.has_region(*stag),
        _ => false,
    };
    if is_there { Ok(()) } else { Err(PostError::Unsupported) }
}

/// Refuses a message of a Send that the device does not have so long, or of so many pieces.
fn check_message(limits: &Capabilities, gather: &Gather) -> Result<(), PostError> {
    let len = gather.total();
    match gather {
        _ if len > limits.max_message => Err(PostError::MessageTooLong { len }),
        // Short ones are copied, and a Write goes in several.
        Gather::List(list) if len > limits.max_inline as u64 => check_pieces(limits, list),
        _ => Ok(()),
    }
}

/// Refuses a receive that the device does not take.
pub(super) fn check_receive(limits: &Capabilities, wr: &RecvWr) -> Result<(), PostError> {
    if wr.full {
        return Err(PostError::Transport);
    }
    check_pieces(limits, &wr.scatter)
}

fn check_pieces(limits: &Capabilities, pieces: &[Sge]) -> Result<(), PostError> {
    let (count, max) = (pieces.len(), limits.max_sge);
    if count > max { Err(PostError::TooManySges { count, max }) } else { Ok(()) }
}

/// Returns whether the device carries so much Immediate Data: what it does not must be 0.
fn fits(limits: &Capabilities, data: &[u8; 8]) -> bool {
    limits.immediate_len > 0 && data.iter().skip(limits.immediate_len).all(|octet| *octet == 0)
}

fn has_atomics(limits: &Capabilities, is_plain: bool) -> bool {
    match limits.atomics {
        Atomics::None => false,
        Atomics::Plain => is_plain,
        _ => true,
    }
}
