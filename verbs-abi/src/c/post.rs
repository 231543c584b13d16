//! Requests: from C's structures to the words of `rddp-rnic`, and to the queues.

use std::ffi::c_int;

use nix::errno::Errno;
use rddp_rnic::{Gather, Operation, PostError, PostListError, RecvWr, Remote, SendWr, Sge, SgeList, Stag};

use super::abi::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, qp_state, qp_type, send, wr};
use super::gate::pass;
use super::handle::{Object, follow};
use super::query::mtu_octets;
use super::queue_pair::Qp;
use super::{immediate, unreliable, window};
use crate::errors::{Outcome, of_post};
use crate::refusal::{Cause, because, told};

/// Reasons of refused requests.
pub(super) const NO_OPERATION: &str = "an operation that the device does not have";
pub(super) const TOO_LONG_INLINE: &str =
    "more inline data than the queue pair was made for (max_inline_data)";

/// Returns the elements of a list.
///
/// # Safety
/// `list` names as many elements as `count` says.
pub(super) unsafe fn elements<'a, T>(
    list: *const T,
    count: impl TryInto<usize>,
    most: u32,
) -> Outcome<&'a [T]> {
    match count.try_into() {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= most as usize && !list.is_null() => {
            // SAFETY: promised by the caller.
            Ok(unsafe { std::slice::from_raw_parts(list, count) })
        }
        _ => {
            Err(because(Errno::EINVAL, "more elements than the queue pair was made for, or no list of them"))
        }
    }
}

fn piece(sge: &ibv_sge) -> Sge {
    Sge { stag: Stag(sge.lkey), addr: sge.addr, len: u64::from(sge.length) }
}

/// Returns a list of the device's. Elements without octets need no key, and are left out.
fn pieces(list: &[ibv_sge]) -> SgeList {
    match list {
        [one] if one.length > 0 => piece(one).into(),
        list => list.iter().filter(|sge| sge.length > 0).map(piece).collect::<Vec<_>>().into(),
    }
}

/// Copies octets that a request carries itself.
///
/// # Safety
/// The elements name memory of the program's.
unsafe fn inline(list: &[ibv_sge], most: u32) -> Outcome<Gather> {
    let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if total > u64::from(most) {
        return Err(because(Errno::ENOMEM, TOO_LONG_INLINE));
    }
    let mut octets: Vec<u8> = Vec::with_capacity(total as usize);
    for sge in list {
        let (len, from) = (sge.length as usize, std::ptr::with_exposed_provenance::<u8>(sge.addr as usize));
        // SAFETY: there is room for `total` octets; the caller promises the source.
        unsafe {
            std::ptr::copy_nonoverlapping(from, octets.as_mut_ptr().add(octets.len()), len);
            octets.set_len(octets.len() + len);
        }
    }
    Ok(Gather::Inline(octets))
}

/// Returns a request in the device's words. `key` is what earlier requests that are posted together
/// with it make the key of the window that it binds.
///
/// # Safety
/// The request's list names its elements, and inline ones memory of the program's; of a datagram,
/// it names an address handle that the program has.
pub(super) unsafe fn request(qp: &Qp, from: &ibv_send_wr, key: Option<u32>) -> Outcome<SendWr> {
    // SAFETY: promised by the caller.
    let list = unsafe { elements(from.sg_list, from.num_sge, qp.cap.max_send_sge)? };
    let most = qp.pd.context.device.device.limits.message;
    if list.iter().map(|sge| u64::from(sge.length)).sum::<u64>() > u64::from(most) {
        return Err(because(Errno::EINVAL, "longer than any message of the device (max_msg_sz)"));
    }
    let flags = from.send_flags;
    let gather = || match flags & send::INLINE {
        0 => Ok(Gather::List(pieces(list))),
        // SAFETY: promised by the caller.
        _ => unsafe { inline(list, qp.cap.max_inline_data) },
    };
    let remote = Remote { stag: Stag(from.rkey), to: from.remote_addr };
    let operation = match from.opcode {
        // SAFETY: promised by the caller.
        _ if qp.datagrams.is_some() => unsafe {
            unreliable::operation(from, gather()?, mtu_octets(&qp.pd.context.device.device))?
        },
        wr::RDMA_READ | wr::ATOMIC_FETCH_AND_ADD | wr::ATOMIC_CMP_AND_SWP if qp.kind() == qp_type::UC => {
            return Err(because(Errno::EINVAL, "queue pairs of type UC have no Reads and no atomics"));
        }
        wr::SEND => Operation::Send { gather: gather()?, invalidate: None },
        wr::SEND_WITH_INV => Operation::Send { gather: gather()?, invalidate: Some(Stag(from.imm_data)) },
        wr::RDMA_WRITE => Operation::Write { gather: gather()?, remote },
        wr::RDMA_READ => Operation::Read { sink: sink(list)?, remote, invalidate_sink: false },
        wr::LOCAL_INV => Operation::Invalidate { stag: Stag(from.imm_data) },
        wr::BIND_MW => window::operation(from.mw, from.mw_rkey, &from.bind_info, key)?,
        // RFC 7306 §1.1: nobody may use its messages unless both ends have agreed to.
        wr::SEND_WITH_IMM | wr::RDMA_WRITE_WITH_IMM | wr::ATOMIC_FETCH_AND_ADD | wr::ATOMIC_CMP_AND_SWP
            if !qp.has_extensions() =>
        {
            return Err(Cause::Extensions.refuse(Errno::EOPNOTSUPP));
        }
        wr::SEND_WITH_IMM => immediate::send(gather()?, from.imm_data, qp.is_managed())?,
        wr::RDMA_WRITE_WITH_IMM => {
            let data = immediate::behind_a_write(from.imm_data);
            Operation::WriteImmediate { gather: gather()?, remote, data }
        }
        wr::ATOMIC_FETCH_AND_ADD => {
            let (sink, remote) = atomic(list, from)?;
            Operation::FetchAdd { sink, remote, add: from.compare_add(), mask: 0 }
        }
        wr::ATOMIC_CMP_AND_SWP => {
            let (sink, remote) = atomic(list, from)?;
            let (compare, swap, whole) = (from.compare_add(), from.swap, u64::MAX);
            Operation::CmpSwap { sink, remote, compare, compare_mask: whole, swap, swap_mask: whole }
        }
        _ => return Err(because(Errno::EOPNOTSUPP, NO_OPERATION)),
    };
    let fenced = flags & send::FENCE != 0;
    let is_local = matches!(from.opcode, wr::LOCAL_INV | wr::BIND_MW);
    Ok(SendWr {
        wr_id: from.wr_id,
        operation,
        signaled: qp.signals_all || flags & send::SIGNALED != 0,
        solicited: flags & send::SOLICITED != 0,
        read_fence: fenced && !is_local,
        local_fence: fenced && is_local,
    })
}

/// Returns the one place for what a Read brings.
fn sink(list: &[ibv_sge]) -> Outcome<Sge> {
    match list {
        [] => Ok(Sge { stag: Stag(0), addr: 0, len: 0 }),
        [one] => Ok(piece(one)),
        _ => Err(because(Errno::EINVAL, "a Read or an atomic has one element (max_sge_rd)")),
    }
}

/// Returns the one place for what an atomic brings, and the peer's number.
fn atomic(list: &[ibv_sge], from: &ibv_send_wr) -> Outcome<(Sge, Remote)> {
    let remote = Remote { stag: Stag(from.atomic_rkey), to: from.remote_addr };
    Ok((sink(list)?, remote))
}

impl Qp {
    fn post_sends(&self, list: &[SendWr]) -> Result<(), PostListError> {
        if self.state() == qp_state::SQD
            && let Some(held) = self.hold(list, false)
        {
            return held;
        }
        self.post_now(list)
    }

    /// Posts requests, whatever the state is.
    pub(super) fn post_now(&self, list: &[SendWr]) -> Result<(), PostListError> {
        match &self.demanded {
            None => self.queues.post_sends(list),
            Some(demanded) => demanded.post_sends(list),
        }
    }

    /// Posts all requests, or none; but faults on demand may come between them.
    pub(super) fn post_batch(&self, list: &[SendWr]) -> Result<(), PostError> {
        if self.state() == qp_state::SQD
            && let Some(held) = self.hold(list, true)
        {
            return held.map_err(PostError::from);
        }
        match &self.demanded {
            None => self.queues.post_batch(list),
            Some(demanded) => demanded.post_sends(list).map_err(|refused| refused.error),
        }
    }

    fn post_receive(&self, wr: RecvWr) -> Result<(), PostError> {
        match &self.demanded {
            None => self.queues.post_recv(wr),
            Some(demanded) => demanded.post_recv(wr),
        }
    }
}

/// Posts a list of requests. On failure `bad` is the first that was not posted.
///
/// # Safety
/// As [`request`] says, of each request of the list.
unsafe fn post_list(qp: &Qp, first: *mut ibv_send_wr, bad: &mut *mut ibv_send_wr) -> Outcome<()> {
    *bad = first;
    pass("ibv_post_send")?;
    qp.takes_requests()?;
    while !bad.is_null() {
        // SAFETY: promised by the caller.
        unsafe { post_run(qp, bad)? };
    }
    Ok(())
}

/// Posts requests from `next` on, up to a bind, the list's end, or one more than the queue holds,
/// and moves `next` behind them. A bind decides by which key the next one knows the window.
///
/// # Safety
/// As [`request`] says, of each request of the list; `next` is not NULL.
unsafe fn post_run(qp: &Qp, next: &mut *mut ibv_send_wr) -> Outcome<()> {
    // SAFETY: promised by the caller.
    let from = unsafe { &**next };
    // SAFETY: promised by the caller.
    let one = unsafe { request(qp, from, None)? };
    if from.next.is_null() || from.opcode == wr::BIND_MW {
        qp.post_sends(std::slice::from_ref(&one)).map_err(|refused| of_post(refused.error))?;
        if from.opcode == wr::BIND_MW {
            window::note(qp.handle(), from.mw, from.mw_rkey);
        }
        *next = from.next;
        return Ok(());
    }
    let (mut list, mut places, mut refused) = (vec![one], vec![*next], Ok(()));
    let mut place = from.next;
    // SAFETY: promised by the caller.
    while let Some(from) = unsafe { place.as_ref() }.filter(|from| from.opcode != wr::BIND_MW) {
        // A list without an end takes no more memory than the queue.
        if list.len() > qp.cap.max_send_wr as usize {
            break;
        }
        // SAFETY: as above.
        match unsafe { request(qp, from, None) } {
            Ok(request) => list.push(request),
            Err(error) => {
                refused = Err(error);
                break;
            }
        }
        places.push(place);
        place = from.next;
    }
    *next = place;
    match qp.post_sends(&list) {
        Ok(()) => refused,
        Err(refused) => {
            *next = places[refused.posted];
            Err(of_post(refused.error))
        }
    }
}

pub(super) unsafe extern "C" fn post_send(
    handle: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut failed = first;
    // SAFETY: the function's contract.
    let posted = unsafe { follow::<Qp>(handle).and_then(|qp| post_list(qp, first, &mut failed)) };
    // SAFETY: the program has room for a pointer there.
    unsafe { answer("ibv_post_send", posted, failed, bad) }
}

/// Returns 0, or the error number, with the first request that was not posted.
///
/// # Safety
/// `bad` is NULL, or a pointer can be stored there.
pub(super) unsafe fn answer<T>(verb: &str, posted: Outcome<()>, failed: *mut T, bad: *mut *mut T) -> c_int {
    let Err(error) = posted else { return 0 };
    let error = told(verb, error);
    if !bad.is_null() {
        // SAFETY: promised by the caller.
        unsafe { bad.write(failed) };
    }
    error as c_int
}

/// Posts a list of receives by `post`, each with at most `most` elements. On failure `bad` is the
/// first that was not posted.
///
/// # Safety
/// The list of each receive names its elements.
pub(super) unsafe fn post_receives(
    first: *mut ibv_recv_wr,
    most: u32,
    bad: &mut *mut ibv_recv_wr,
    post: impl Fn(RecvWr) -> Outcome<()>,
) -> Outcome<()> {
    *bad = first;
    // SAFETY: promised by the caller.
    while let Some(from) = unsafe { bad.as_ref() } {
        // SAFETY: as above.
        let list = unsafe { elements(from.sg_list, from.num_sge, most)? };
        post(RecvWr::new(from.wr_id, pieces(list)))?;
        *bad = from.next;
    }
    Ok(())
}

pub(super) unsafe extern "C" fn post_recv(
    handle: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut failed = first;
    // SAFETY: the function's contract.
    let posted = unsafe {
        pass("ibv_post_recv").and_then(|()| follow::<Qp>(handle)).and_then(|qp| {
            qp.takes_receives()?;
            let post = |wr| qp.post_receive(wr).map_err(of_post);
            post_receives(first, qp.cap.max_recv_sge, &mut failed, post)
        })
    };
    // SAFETY: the program has room for a pointer there.
    unsafe { answer("ibv_post_recv", posted, failed, bad) }
}
