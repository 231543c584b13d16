//! Clumsy programs: handles that are wrong, gone, or in use (the manual pages' error numbers).

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::Mutex;

use super::abi::*;
use super::asynchronous::*;
use super::cm::entries::*;
use super::completion::*;
use super::device::*;
use super::handle::find;
use super::memory::*;
use super::modify::*;
use super::query::*;
use super::queue_pair::*;
use super::shared::*;

/// Held by each test: the address of what one has destroyed may be that of another's object.
pub(super) static TURN: Mutex<()> = Mutex::new(());

const EINVAL: c_int = Errno::EINVAL as c_int;
const EBUSY: c_int = Errno::EBUSY as c_int;

fn open() -> *mut ibv_context {
    let mut count = 0;
    // SAFETY: a number's room; the list is freed once, and has at least one device.
    unsafe {
        let list = ibv_get_device_list(&raw mut count);
        assert!(count > 0 && (*list.offset(count as isize)).is_null());
        let context = ibv_open_device(*list);
        ibv_free_device_list(list);
        assert!(!context.is_null());
        context
    }
}

fn init(cq: *mut ibv_cq) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        qp_type: qp_type::RC,
        sq_sig_all: 1,
    }
}

/// Makes a queue pair, and leaves it to the process.
pub(super) fn made() -> Arc<Qp> {
    let context = open();
    let (pd, cq) = (ibv_alloc_pd(context), ibv_create_cq(context, 4, null_mut(), null_mut(), 0));
    // SAFETY: the structure is there.
    find::<Qp>(unsafe { ibv_create_qp(pd, &mut init(cq)) }).unwrap()
}

#[test]
fn a_handle_is_destroyed_once() {
    let _turn = TURN.lock();
    let context = open();
    let pd = ibv_alloc_pd(context);
    assert_eq!([ibv_dealloc_pd(pd), ibv_dealloc_pd(pd), ibv_dealloc_pd(null_mut())], [0, EINVAL, EINVAL]);
    let cq = ibv_create_cq(context, 4, null_mut(), null_mut(), 0);
    assert_eq!([ibv_destroy_cq(cq), ibv_destroy_cq(cq)], [0, EINVAL]);
    let channel = ibv_create_comp_channel(context);
    // One kind of handle is not taken for another.
    assert_eq!(ibv_dealloc_pd(channel.cast()), EINVAL);
    assert_eq!([ibv_destroy_comp_channel(channel), ibv_destroy_comp_channel(channel)], [0, EINVAL]);
    assert_eq!([ibv_close_device(context), ibv_close_device(context)], [0, -1]);
    assert!(ibv_alloc_pd(context).is_null() && Errno::last() == Errno::EINVAL);
}

#[test]
fn what_others_use_stays() {
    let _turn = TURN.lock();
    let context = open();
    let (pd, channel) = (ibv_alloc_pd(context), ibv_create_comp_channel(context));
    let cq = ibv_create_cq(context, 4, null_mut(), channel, 0);
    let mut attr = init(cq);
    // SAFETY: the structure is there.
    let qp = unsafe { ibv_create_qp(pd, &raw mut attr) };
    assert!(!qp.is_null() && attr.cap.max_inline_data > 0);
    let mut octets = [0_u8; 64];
    // SAFETY: the array outlives the region, and nobody has a reference to it.
    let mr = unsafe { ibv_reg_mr(pd, octets.as_mut_ptr().cast(), 64, access::LOCAL_WRITE as c_int) };
    assert_eq!([ibv_dealloc_pd(pd), ibv_destroy_cq(cq), ibv_destroy_comp_channel(channel)], [EBUSY; 3]);
    assert_eq!([ibv_destroy_qp(qp), ibv_destroy_qp(qp)], [0, EINVAL]);
    assert_eq!([ibv_dealloc_pd(pd), ibv_destroy_cq(cq), ibv_destroy_comp_channel(channel)], [EBUSY, 0, 0]);
    assert_eq!([ibv_dereg_mr(mr), ibv_dereg_mr(mr), ibv_dealloc_pd(pd)], [0, EINVAL, 0]);
}

#[test]
fn memory_that_is_not_there_or_not_writable_is_a_fault() {
    let _turn = TURN.lock();
    let (context, text) = (open(), "no program writes here");
    let pd = ibv_alloc_pd(context);
    let register = |addr: *const u8, flags: u32| {
        // SAFETY: memory that is not there, or whose registration is refused.
        let mr = unsafe { ibv_reg_mr(pd, addr.cast_mut().cast(), 16, flags as c_int) };
        if mr.is_null() { Err(Errno::last()) } else { Ok(ibv_dereg_mr(mr)) }
    };
    assert_eq!(register(text.as_ptr(), access::LOCAL_WRITE), Err(Errno::EFAULT));
    assert_eq!(register(text.as_ptr(), access::REMOTE_READ), Ok(0));
    assert_eq!(register(std::ptr::without_provenance(4096), 0), Err(Errno::EFAULT));
    assert_eq!(register(null(), 0), Err(Errno::EINVAL));
    assert_eq!(register(text.as_ptr(), access::REMOTE_WRITE), Err(Errno::EINVAL));
}

#[test]
fn limits_are_kept_and_told() {
    let _turn = TURN.lock();
    let context = open();
    let (pd, cq) = (ibv_alloc_pd(context), ibv_create_cq(context, 4, null_mut(), null_mut(), 0));
    let mut said = MaybeUninit::<ibv_device_attr>::uninit();
    // SAFETY: room for the structure.
    let said = unsafe {
        assert_eq!(ibv_query_device(context, said.as_mut_ptr()), 0);
        said.assume_init()
    };
    let refuses = |change: &dyn Fn(&mut ibv_qp_init_attr)| {
        let mut attr = init(cq);
        change(&mut attr);
        // SAFETY: the structure is there.
        let qp = unsafe { ibv_create_qp(pd, &raw mut attr) };
        if qp.is_null() {
            Some(Errno::last())
        } else {
            assert_eq!(ibv_destroy_qp(qp), 0);
            None
        }
    };
    assert_eq!(refuses(&|attr| attr.cap.max_send_wr = said.max_qp_wr as u32), None);
    assert_eq!(refuses(&|attr| attr.cap.max_send_wr = said.max_qp_wr as u32 + 1), Some(Errno::EINVAL));
    assert_eq!(refuses(&|attr| attr.cap.max_recv_sge = said.max_sge as u32 + 1), Some(Errno::EINVAL));
    assert_eq!(refuses(&|attr| attr.qp_type = 4), Some(Errno::EOPNOTSUPP));
    assert_eq!(refuses(&|attr| attr.send_cq = null_mut()), Some(Errno::EINVAL));
    for (cqe, vector) in [(0, 0), (-1, 0), (said.max_cqe + 1, 0), (4, 1), (4, -1)] {
        assert!(ibv_create_cq(context, cqe, null_mut(), null_mut(), vector).is_null(), "{cqe} {vector}");
    }
    assert_eq!(
        [ibv_resize_cq(cq, 8), ibv_resize_cq(cq, 0), ibv_resize_cq(cq, said.max_cqe + 1)],
        [0, EINVAL, EINVAL]
    );
}

/// Programs that look for devices of hardware refuse the library by this name.
#[test]
fn the_library_has_a_symbol_to_be_known_by() {
    let names =
        include_str!("../../symbols/public.txt").lines().filter_map(|line| line.split_whitespace().next());
    assert!(names.into_iter().any(|name| name.as_bytes() == MARKER.to_bytes()));
}

#[test]
fn requests_behind_a_bad_one_are_not_posted() {
    let _turn = TURN.lock();
    let context = open();
    let (pd, cq) = (ibv_alloc_pd(context), ibv_create_cq(context, 16, null_mut(), null_mut(), 0));
    let mut attr = init(cq);
    // SAFETY: all structures are there while they are used.
    unsafe {
        let qp = ibv_create_qp(pd, &raw mut attr);
        let mut octets = [7_u8; 8];
        let mut sge = ibv_sge { addr: octets.as_mut_ptr() as u64, length: 8, lkey: 0 };
        let mut list: [ibv_send_wr; 3] = std::mem::zeroed();
        for (id, request) in list.iter_mut().enumerate() {
            request.wr_id = id as u64;
            (request.sg_list, request.num_sge) = (&raw mut sge, 1);
            (request.opcode, request.send_flags) = (wr::SEND, send::INLINE);
        }
        list[1].opcode = wr::ATOMIC_CMP_AND_SWP;
        let wanted = ibv_qp_attr { qp_state: qp_state::ERR, ..ibv_qp_attr::default() };
        assert_eq!(ibv_modify_qp(qp, &raw const wanted, qp_mask::STATE as c_int), 0);
        let (first, rest) = list.split_at_mut(1);
        let (second, third) = rest.split_at_mut(1);
        (first[0].next, second[0].next) = (second.as_mut_ptr(), third.as_mut_ptr());
        let mut bad = null_mut();
        let posted = super::post::post_send(qp, list.as_mut_ptr(), &raw mut bad);
        assert_eq!((posted, (*bad).wr_id), (Errno::EOPNOTSUPP as c_int, 1));
        // What was posted is flushed, and counts.
        let mut entries = [ibv_wc::default(); 4];
        assert_eq!(poll_cq(cq, 4, entries.as_mut_ptr()), 1);
        assert_eq!((entries[0].wr_id, entries[0].status), (0, status::WR_FLUSH_ERR));
        assert_eq!(ibv_destroy_qp(qp), 0);
    }
}

#[test]
fn tables_have_one_entry() {
    let _turn = TURN.lock();
    let context = open();
    let mut gid = [0; 16];
    // SAFETY: room for a GID, a key, and an entry.
    unsafe {
        assert_eq!(ibv_query_gid(context, 1, 0, &raw mut gid), 0);
        assert!(gid[8..] != [0; 8] && gid[0] & 2 != 0, "locally administered");
        assert_eq!((ibv_query_gid(context, 1, 1, &raw mut gid), Errno::last()), (-1, Errno::ENODATA));
        assert_eq!((ibv_query_gid(context, 2, 0, &raw mut gid), Errno::last()), (-1, Errno::EINVAL));
        let mut entry = MaybeUninit::<ibv_gid_entry>::uninit();
        let len = size_of::<ibv_gid_entry>();
        assert_eq!(_ibv_query_gid_table(context, entry.as_mut_ptr(), 0, 0, len), -(EINVAL as isize));
        assert_eq!(_ibv_query_gid_table(context, entry.as_mut_ptr(), 1, 0, len), 1);
        assert_eq!(_ibv_query_gid_ex(context, 1, 5, entry.as_mut_ptr(), 0, len), Errno::ENODATA as c_int);
    }
}

#[test]
fn a_shared_queue_is_resized_and_is_kept_by_its_users() {
    let _turn = TURN.lock();
    let context = open();
    let (pd, cq) = (ibv_alloc_pd(context), ibv_create_cq(context, 4, null_mut(), null_mut(), 0));
    let mut shared = ibv_srq_init_attr {
        srq_context: null_mut(),
        attr: ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 },
    };
    // SAFETY: all structures are there.
    unsafe {
        let srq = ibv_create_srq(pd, &raw mut shared);
        let mut attr = ibv_qp_init_attr { srq, ..init(cq) };
        let qp = ibv_create_qp(pd, &raw mut attr);
        assert_eq!(ibv_destroy_srq(srq), EBUSY);
        let modify = |max_wr, srq_limit, mask| {
            let mut attr = ibv_srq_attr { max_wr, max_sge: 9, srq_limit };
            let changed = ibv_modify_srq(srq, &raw const attr, mask as c_int);
            assert_eq!((ibv_query_srq(srq, &raw mut attr), attr.max_sge), (0, 1));
            (changed, attr.max_wr, attr.srq_limit)
        };
        let both = srq_mask::MAX_WR | srq_mask::LIMIT;
        assert_eq!(modify(16, 9, srq_mask::LIMIT), (EINVAL, 8, 0));
        assert_eq!(modify(16, 17, both), (EINVAL, 8, 0), "both or none");
        assert_eq!(modify(16, 17, srq_mask::MAX_WR), (0, 16, 0));
        assert_eq!(modify(0, 0, both), (EINVAL, 16, 0));
        assert_eq!(modify(u32::MAX, 0, both), (EINVAL, 16, 0));
        assert_eq!(modify(16, 0, 4), (EINVAL, 16, 0));
        let mut receive: ibv_recv_wr = std::mem::zeroed();
        assert_eq!([(); 2].map(|()| super::shared::post_srq_recv(srq, &raw mut receive, null_mut())), [0; 2]);
        assert_eq!(modify(1, 0, both), (EINVAL, 16, 0), "it holds two");
        assert_eq!(modify(2, 2, both), (0, 2, 2));
        assert_eq!(modify(1, 0, srq_mask::MAX_WR), (EINVAL, 2, 2));
        assert_eq!(super::shared::post_srq_recv(srq, &raw mut receive, null_mut()), Errno::ENOMEM as c_int);
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        assert_eq!([ibv_destroy_qp(qp), ibv_destroy_srq(srq), ibv_destroy_srq(srq)], [0, 0, EINVAL]);
        assert_eq!(ibv_query_srq(srq, &raw mut attr), EINVAL);
    }
}

/// `ibv_destroy_qp` waits for whoever has an event about the queue pair: that may be a thread which
/// the program has for events.
#[test]
fn an_event_is_acknowledged_while_its_object_is_destroyed() {
    let _turn = TURN.lock();
    let context = open();
    let pd = ibv_alloc_pd(context);
    let cq = ibv_create_cq(context, 8, null_mut(), null_mut(), 0);
    // SAFETY: all structures are there, and the queue pair until its destruction ends.
    unsafe {
        let qp = ibv_create_qp(pd, &mut init(cq));
        super::context::context(context).unwrap().report(qp, event::QP_FATAL);
        let mut taken = MaybeUninit::<ibv_async_event>::uninit();
        assert_eq!(ibv_get_async_event(context, taken.as_mut_ptr()), 0);
        let address = qp.expose_provenance();
        let (sender, destroyed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let qp = std::ptr::with_exposed_provenance_mut(address);
            sender.send(ibv_destroy_qp(qp)).unwrap();
        });
        while (&raw const (*qp).state).read_volatile() != qp_state::ERR {
            std::thread::yield_now();
        }
        ibv_ack_async_event(taken.as_mut_ptr());
        assert_eq!(destroyed.recv_timeout(std::time::Duration::from_secs(20)), Ok(0));
        assert_eq!([ibv_destroy_qp(qp), ibv_destroy_cq(cq), ibv_dealloc_pd(pd)], [EINVAL, 0, 0]);
    }
}

#[test]
fn an_id_refuses_steps_out_of_turn() {
    let _turn = TURN.lock();
    let (channel, mut id) = (rdma_create_event_channel(), null_mut());
    let fails = |outcome: c_int, error: Errno| assert_eq!((outcome, Errno::last()), (-1, error));
    // SAFETY: all structures and rooms are there.
    unsafe {
        fails(rdma_create_id(channel, &raw mut id, null_mut(), 7), Errno::EPROTONOSUPPORT);
        assert_eq!(rdma_create_id(channel, &raw mut id, null_mut(), port_space::TCP), 0);
        fails(rdma_resolve_route(id, 100), Errno::EINVAL);
        fails(rdma_connect(id, null()), Errno::EINVAL);
        fails(rdma_accept(id, null()), Errno::EINVAL);
        fails(rdma_reject(id, null(), 0), Errno::EINVAL);
        fails(rdma_disconnect(id), Errno::EINVAL);
        fails(rdma_create_qp(id, null_mut(), &mut init(null_mut())), Errno::EINVAL);
        fails(rdma_bind_addr(id, null()), Errno::EINVAL);
        fails(rdma_set_option(id, 0, 99, (&raw const channel).cast::<c_void>(), 4), Errno::ENOSYS);
        let event: *mut rdma_cm_event = id.cast();
        fails(rdma_ack_cm_event(event), Errno::EINVAL);
        assert_eq!(rdma_destroy_id(id), 0);
        fails(rdma_destroy_id(id), Errno::EINVAL);
        fails(rdma_listen(id, 1), Errno::EINVAL);
        rdma_destroy_event_channel(channel);
        let mut event = null_mut();
        fails(rdma_get_cm_event(channel, &raw mut event), Errno::EINVAL);
        let mut taken = MaybeUninit::<ibv_async_event>::uninit();
        fails(ibv_get_async_event(null_mut(), taken.as_mut_ptr()), Errno::EINVAL);
    }
}
