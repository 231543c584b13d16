//! Devices and contexts.

use std::ffi::{c_char, c_int, c_void};

use super::*;

#[repr(C)]
pub struct ibv_device {
    pub unused: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}
layout!(ibv_device: 664, node_type 16, transport_type 20, name 24, dev_name 88, dev_path 152, ibdev_path 408);

/// A function slot that stays empty.
pub type Empty = Option<unsafe extern "C" fn()>;

/// Functions that the inline functions of `verbs.h` call through the context.
#[repr(C)]
pub struct ibv_context_ops {
    pub empty_0: [Empty; 7],
    pub alloc_mw: extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw,
    pub bind_mw: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *const ibv_mw_bind) -> c_int,
    pub dealloc_mw: extern "C" fn(*mut ibv_mw) -> c_int,
    pub empty_10: [Empty; 1],
    pub poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub empty_13: [Empty; 7],
    pub post_srq_recv: unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    pub empty_21: [Empty; 4],
    pub post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    pub empty_27: [Empty; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: usize,
}
layout!(ibv_context: 328, device 0, ops 8, ops.alloc_mw 64, ops.bind_mw 72, ops.dealloc_mw 80, ops.poll_cq 96,
    ops.req_notify_cq 104, ops.post_srq_recv 168, ops.post_send 208, ops.post_recv 216, cmd_fd 264,
    async_fd 268, num_comp_vectors 272, mutex 280);
#[cfg(target_arch = "x86_64")]
layout!(ibv_context: 328, abi_compat 320);

/// A context and, in front of it, the functions that newer inline functions look for. It grows at
/// its beginning; programs know a member by its distance from the end and compare it with `sz`.
#[repr(C)]
pub struct verbs_context {
    pub empty_368: [Empty; 6],
    pub query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int,
    pub from_advise_mr: [Empty; 24],
    pub create_cq_ex: unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    pub private: *mut c_void,
    pub query_device_ex:
        unsafe extern "C" fn(*mut ibv_context, *const c_void, *mut ibv_device_attr_ex, usize) -> c_int,
    pub from_destroy_flow: [Empty; 5],
    pub create_qp_ex: unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    pub get_srq_num: extern "C" fn(*mut ibv_srq, *mut u32) -> c_int,
    pub create_srq_ex: unsafe extern "C" fn(*mut ibv_context, *const ibv_srq_init_attr_ex) -> *mut ibv_srq,
    pub from_open_xrcd: [Empty; 2],
    pub abi_placeholder: u64,
    pub sz: usize,
    pub context: ibv_context,
}
// Distances before the context: 368 less the offset.
layout!(verbs_context: 696, query_port 48, from_advise_mr 56, create_cq_ex 248,
    private 256, query_device_ex 264, from_destroy_flow 272, create_qp_ex 312, get_srq_num 320,
    create_srq_ex 328, from_open_xrcd 336, sz 360, context 368);
