//! The connection manager's structures.

use std::ffi::{c_char, c_int, c_void};

use super::*;

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}
layout!(rdma_event_channel: 4);

#[repr(C)]
pub(crate) struct rdma_route {
    pub(crate) src_addr: libc::sockaddr_storage,
    pub(crate) dst_addr: libc::sockaddr_storage,
    pub(crate) sgid: [u64; 2],
    pub(crate) dgid: [u64; 2],
    pub(crate) pkey: u16,
    pub(crate) path_rec: *mut c_void,
    pub(crate) num_paths: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: u32,
    pub(crate) port_num: u8,
    pub(crate) event: *mut rdma_cm_event,
    pub(crate) send_cq_channel: *mut ibv_comp_channel,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq_channel: *mut ibv_comp_channel,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_type: u32,
}
layout!(rdma_cm_id: 416, channel 8, context 16, qp 24, route 32, route.src_addr 32, route.dst_addr 160,
    route.sgid 288, route.dgid 304, route.pkey 320, route.path_rec 328, route.num_paths 336, ps 344,
    port_num 348, event 352, send_cq_channel 360, send_cq 368, recv_cq_channel 376, recv_cq 384, srq 392,
    pd 400, qp_type 408);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}
layout!(rdma_conn_param: 24, private_data_len 8, responder_resources 9, initiator_depth 10, flow_control 11,
    retry_count 12, rnr_retry_count 13, srq 14, qp_num 16);

/// An event. Its parameters are those of a connection; those of a datagram's are longer.
#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: u32,
    pub(crate) status: c_int,
    pub(crate) param: rdma_conn_param,
    pub(crate) room: [u64; 4],
}
layout!(rdma_cm_event: 80, listen_id 8, event 16, status 20, param 24);

#[repr(C)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: libc::socklen_t,
    pub(crate) ai_dst_len: libc::socklen_t,
    pub(crate) ai_src_addr: *mut libc::sockaddr,
    pub(crate) ai_dst_addr: *mut libc::sockaddr,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut rdma_addrinfo,
}
layout!(rdma_addrinfo: 96, ai_family 4, ai_qp_type 8, ai_port_space 12, ai_src_len 16, ai_dst_len 20,
    ai_src_addr 24, ai_dst_addr 32, ai_src_canonname 40, ai_dst_canonname 48, ai_route_len 56, ai_route 64,
    ai_connect_len 72, ai_connect 80, ai_next 88);
