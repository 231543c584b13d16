//! The connection manager's structures.

use std::ffi::{c_char, c_int, c_void};

use super::*;

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}
layout!(rdma_event_channel: 4);

#[repr(C)]
pub struct rdma_route {
    pub src_addr: libc::sockaddr_storage,
    pub dst_addr: libc::sockaddr_storage,
    pub sgid: [u64; 2],
    pub dgid: [u64; 2],
    pub pkey: u16,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: u32,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: u32,
}
layout!(rdma_cm_id: 416, channel 8, context 16, qp 24, route 32, route.src_addr 32, route.dst_addr 160,
    route.sgid 288, route.dgid 304, route.pkey 320, route.path_rec 328, route.num_paths 336, ps 344,
    port_num 348, event 352, send_cq_channel 360, send_cq 368, recv_cq_channel 376, recv_cq 384, srq 392,
    pd 400, qp_type 408);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}
layout!(rdma_conn_param: 24, private_data_len 8, responder_resources 9, initiator_depth 10, flow_control 11,
    retry_count 12, rnr_retry_count 13, srq 14, qp_num 16);

/// An event. Its parameters are those of a connection; those of a datagram's are longer.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: u32,
    pub status: c_int,
    pub param: rdma_conn_param,
    pub room: [u64; 4],
}
layout!(rdma_cm_event: 80, listen_id 8, event 16, status 20, param 24);

#[repr(C)]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: libc::socklen_t,
    pub ai_dst_len: libc::socklen_t,
    pub ai_src_addr: *mut libc::sockaddr,
    pub ai_dst_addr: *mut libc::sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut rdma_addrinfo,
}
layout!(rdma_addrinfo: 96, ai_family 4, ai_qp_type 8, ai_port_space 12, ai_src_len 16, ai_dst_len 20,
    ai_src_addr 24, ai_dst_addr 32, ai_src_canonname 40, ai_dst_canonname 48, ai_route_len 56, ai_route 64,
    ai_connect_len 72, ai_connect 80, ai_next 88);
