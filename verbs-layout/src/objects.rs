//! Objects that programs hold by pointer.

use std::ffi::{c_int, c_void};

use super::*;

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}
layout!(ibv_pd: 16, handle 8);

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
layout!(ibv_mr: 48, pd 8, addr 16, length 24, handle 32, lkey 36, rkey 40);

#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: u32,
}
layout!(ibv_mw: 32, rkey 16, handle 20, kind 24);

#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}
layout!(ibv_ah: 24, pd 8, handle 16);

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}
layout!(ibv_comp_channel: 16, fd 8, refcnt 12);

#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}
layout!(ibv_cq: 128, channel 8, cq_context 16, handle 24, cqe 28, mutex 32);
#[cfg(target_arch = "x86_64")]
layout!(ibv_cq: 128, cond 72, comp_events_completed 120, async_events_completed 124);

/// An extended queue; a plain one has as much room.
#[repr(C)]
pub struct ibv_cq_ex {
    pub cq: ibv_cq,
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub functions: [Empty; 18],
}
layout!(ibv_cq_ex: 288);
#[cfg(target_arch = "x86_64")]
layout!(ibv_cq_ex: 288, comp_mask 128, status 132, wr_id 136, functions 144);

#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}
layout!(ibv_srq: 128, srq_context 8, pd 16, handle 24, mutex 32);

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: u32,
    pub qp_type: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}
layout!(ibv_qp: 160, qp_context 8, pd 16, send_cq 24, recv_cq 32, srq 40, handle 48, qp_num 52, state 56,
    qp_type 60, mutex 64);
#[cfg(target_arch = "x86_64")]
layout!(ibv_qp: 160, cond 104, events_completed 152);

/// An extended queue pair; a plain one has as much room.
#[repr(C)]
pub struct ibv_qp_ex {
    pub qp: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    pub functions: [Empty; 22],
}
layout!(ibv_qp_ex: 360);
#[cfg(target_arch = "x86_64")]
layout!(ibv_qp_ex: 360, comp_mask 160, wr_id 168, wr_flags 176, functions 184);

#[repr(C)]
pub struct ibv_async_event {
    pub element: *mut c_void,
    pub event_type: u32,
}
layout!(ibv_async_event: 16, event_type 8);
