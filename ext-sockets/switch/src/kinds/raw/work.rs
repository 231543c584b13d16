//! Works: from C structures to the RNIC's work requests, with all checks that are possible in
//! advance.

use std::ffi::c_int;

use rddp_rnic::{Access, Gather, Operation, PostError, RecvWr, Remote, SendWr, SgeFault, Stag};
use rddp_stream::Errno;

use super::endpoint::{self, Endpoint};
use super::memory::View;
use crate::sys::raw::{One, Works};

/// `struct ddp_sge`: a piece of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// The Tagged Offset of the piece; an address for `flag::INLINE`.
    pub to: u64,
    /// The length in octets.
    pub len: u32,
    /// The STag of the region.
    pub stag: u32,
}

/// `struct ddp_work`: a work for a send or receive queue.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Work {
    /// The program's mark of the work.
    pub tag: u64,
    /// The operation, one of `op`.
    pub op: u32,
    /// A set of `flag`.
    pub flags: u32,
    /// The local memory.
    pub list: *const Sge,
    /// The number of pieces in `list`.
    pub count: u32,
    /// The STag of the peer's memory, or the one that is invalidated or bound.
    pub stag: u32,
    /// The Tagged Offset in the peer's memory.
    pub to: u64,
    /// The operation's other arguments.
    pub args: [u64; 4],
}

/// `enum ddp_op`.
pub(super) mod op {
    pub(crate) const RECEIVE: u32 = 1;
    pub(crate) const SEND: u32 = 2;
    pub(crate) const SEND_INVALIDATE: u32 = 3;
    pub(crate) const WRITE: u32 = 4;
    pub(crate) const WRITE_IMMEDIATE: u32 = 5;
    pub(crate) const IMMEDIATE: u32 = 6;
    pub(crate) const READ: u32 = 7;
    pub(crate) const READ_INVALIDATE: u32 = 8;
    pub(crate) const FETCH_ADD: u32 = 9;
    pub(crate) const CMP_SWAP: u32 = 10;
    pub(crate) const BIND: u32 = 11;
    pub(crate) const INVALIDATE: u32 = 12;
}

/// `DDP_WORK_*`.
mod flag {
    pub(super) const INLINE: u32 = 1;
    pub(super) const SOLICITED: u32 = 2;
    pub(super) const QUIET: u32 = 4;
    pub(super) const READ_FENCE: u32 = 8;
    pub(super) const FENCE: u32 = 16;
    pub(super) const ALL: u32 = 31;
}

/// A work that has passed the checks.
pub(super) enum Posting {
    Receive(RecvWr),
    Send(SendWr),
}

/// Posts works to an endpoint and returns how many were taken: `ddp_post`.
///
/// # Errors
/// The error of the first, if it was not taken.
pub fn post(fd: c_int, works: Works<'_>) -> Result<usize, Errno> {
    let (adapter, endpoint) = endpoint::of(fd)?;
    let view = View::new(adapter, endpoint.domain);
    let mut taken = 0;
    let mut sends = Vec::new();
    let mut fault = None;
    for one in works.iter() {
        match one.and_then(|one| posting(&one, &view)) {
            Ok(Posting::Send(wr)) => sends.push(wr),
            Ok(Posting::Receive(wr)) => {
                if let Err(errno) =
                    flush(&endpoint, &mut sends, &mut taken).and_then(|()| endpoint.receive(wr))
                {
                    fault = Some(errno);
                    break;
                }
                taken += 1;
            }
            Err(errno) => {
                fault = Some(errno);
                break;
            }
        }
    }
    let fault = flush(&endpoint, &mut sends, &mut taken).err().or(fault);
    match fault {
        Some(errno) if taken == 0 => Err(errno),
        _ => Ok(taken),
    }
}

/// Posts the works gathered for the send queue, so that they leave together.
fn flush(endpoint: &Endpoint, sends: &mut Vec<SendWr>, taken: &mut usize) -> Result<(), Errno> {
    if sends.is_empty() {
        return Ok(());
    }
    let (count, result) = endpoint.send(sends);
    sends.clear();
    *taken += count;
    result
}

pub(super) fn posting(one: &One<'_>, view: &View<'_>) -> Result<Posting, Errno> {
    let work = one.work();
    if work.flags & !flag::ALL != 0 {
        return Err(Errno::INVALID);
    }
    if work.op == op::RECEIVE {
        let list = one.list()?;
        view.check(&list, true)?;
        let scatter: Vec<_> = list.iter().map(piece).collect();
        return Ok(Posting::Receive(RecvWr::new(work.tag, scatter)));
    }
    let wr = SendWr::new(work.tag, operation(one, view)?);
    let has = |flag| work.flags & flag != 0;
    Ok(Posting::Send(SendWr {
        solicited: has(flag::SOLICITED),
        signaled: !has(flag::QUIET),
        read_fence: has(flag::READ_FENCE),
        local_fence: has(flag::FENCE),
        ..wr
    }))
}

fn operation(one: &One<'_>, view: &View<'_>) -> Result<Operation, Errno> {
    let work = one.work();
    let remote = Remote { stag: Stag(work.stag), to: work.to };
    let [a, b, c, d] = work.args;
    Ok(match work.op {
        op::SEND => Operation::Send { gather: gather(one, view)?, invalidate: None },
        op::SEND_INVALIDATE => {
            Operation::Send { gather: gather(one, view)?, invalidate: Some(Stag(work.stag)) }
        }
        op::WRITE => Operation::Write { gather: gather(one, view)?, remote },
        op::WRITE_IMMEDIATE => {
            Operation::WriteImmediate { gather: gather(one, view)?, remote, data: a.to_ne_bytes() }
        }
        op::IMMEDIATE => Operation::Immediate { data: a.to_ne_bytes() },
        op::READ | op::READ_INVALIDATE => Operation::Read {
            sink: sink(one, view, None)?,
            remote,
            invalidate_sink: work.op == op::READ_INVALIDATE,
        },
        op::FETCH_ADD => Operation::FetchAdd { sink: sink(one, view, Some(8))?, remote, add: a, mask: b },
        op::CMP_SWAP => Operation::CmpSwap {
            sink: sink(one, view, Some(8))?,
            remote,
            compare: a,
            compare_mask: b,
            swap: c,
            swap_mask: d,
        },
        op::BIND => {
            view.check_stag(work.stag)?;
            let access = u8::try_from(a).ok().and_then(Access::from_bits).ok_or(Errno::INVALID)?;
            let range = single(one)?;
            view.check(&[range], false)?;
            Operation::Bind { window: Stag(work.stag), range: piece(&range), access, key: None }
        }
        op::INVALIDATE => {
            view.check_stag(work.stag)?;
            Operation::Invalidate { stag: Stag(work.stag) }
        }
        _ => return Err(Errno::INVALID),
    })
}

fn gather(one: &One<'_>, view: &View<'_>) -> Result<Gather, Errno> {
    if one.work().flags & flag::INLINE != 0 {
        return one.inline_octets().map(Gather::Inline);
    }
    let list = one.list()?;
    view.check(&list, false)?;
    Ok(match &list[..] {
        [only] => piece(only).into(),
        _ => list.iter().map(piece).collect::<Vec<_>>().into(),
    })
}

/// Returns the only piece, which octets of the peer's go to; there are `len` of them if that is
/// given.
fn sink(one: &One<'_>, view: &View<'_>, len: Option<u32>) -> Result<rddp_rnic::Sge, Errno> {
    let sink = single(one)?;
    if len.is_some_and(|len| sink.len != len) {
        return Err(Errno::INVALID);
    }
    view.check(&[sink], true)?;
    Ok(piece(&sink))
}

fn single(one: &One<'_>) -> Result<Sge, Errno> {
    match one.list()?[..] {
        [only] => Ok(only),
        _ => Err(Errno::INVALID),
    }
}

fn piece(sge: &Sge) -> rddp_rnic::Sge {
    rddp_rnic::Sge { stag: Stag(sge.stag), addr: sge.to, len: u64::from(sge.len) }
}

pub(super) fn post_errno(error: PostError) -> Errno {
    match error {
        PostError::QueueFull { .. } => Errno::WOULD_BLOCK,
        PostError::CqOverflow { .. } => Errno(libc::EIO),
        PostError::InlineTooLong { .. } | PostError::MessageTooLong { .. } => Errno(libc::EMSGSIZE),
        // The errnos are those of `View::check`: the memory may have gone since.
        PostError::Memory { fault: SgeFault::OtherPd | SgeFault::ReadOnly, .. } => Errno(libc::EACCES),
        PostError::Memory { fault: SgeFault::OutOfBounds, .. } => Errno::FAULT,
        _ => Errno::INVALID,
    }
}
