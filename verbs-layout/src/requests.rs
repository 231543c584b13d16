//! Work requests and completions.

use std::ffi::{c_int, c_void};

use super::*;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
layout!(ibv_sge: 16, length 8, lkey 12);

#[repr(C)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}
layout!(ibv_data_buf: 16, length 8);

#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}
layout!(ibv_recv_wr: 32, next 8, sg_list 16, num_sge 24);

/// The union of what operations need, as the fields that ours have. A Write and a Read have
/// `remote_addr` and `rkey`; an atomic has all but `rkey`, and its key in `atomic_rkey`; a datagram
/// has its address handle in `remote_addr`, and number and `Q_Key` of the peer in the two behind.
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    pub imm_data: u32,
    pub remote_addr: u64,
    /// Key of the peer's memory for RDMA; `atomic.compare_add`, of eight octets, begins here too.
    pub rkey: u32,
    pub rest_of_compare_add: u32,
    pub swap: u64,
    pub atomic_rkey: u32,
    pub qp_type: [u32; 2],
    pub mw: *mut ibv_mw,
    pub mw_rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}
layout!(ibv_send_wr: 128, next 8, sg_list 16, num_sge 24, opcode 28, send_flags 32, imm_data 36, remote_addr 40,
    rkey 48, rest_of_compare_add 52, swap 56, atomic_rkey 64, mw 80, mw_rkey 88, bind_info 96);

impl ibv_send_wr {
    /// Returns `wr.atomic.compare_add`: of a FetchAdd what is added, of a CmpSwap what is compared.
    pub fn compare_add(&self) -> u64 {
        let [a, b, c, d] = self.rkey.to_ne_bytes();
        let [e, f, g, h] = self.rest_of_compare_add.to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns `wr.ud`: the address handle, the number of the peer's queue pair, and its `Q_Key`.
    pub fn ud(&self) -> (*mut ibv_ah, u32, u32) {
        let handle = std::ptr::with_exposed_provenance_mut(self.remote_addr as usize);
        (handle, self.rkey, self.rest_of_compare_add)
    }

    pub fn set_ud(&mut self, handle: *mut ibv_ah, number: u32, qkey: u32) {
        self.remote_addr = handle.expose_provenance() as u64;
        (self.rkey, self.rest_of_compare_add) = (number, qkey);
    }

    /// Sets the fields of an atomic.
    pub fn set_atomic(&mut self, rkey: u32, to: u64, compare_add: u64, swap: u64) {
        let [a, b, c, d, e, f, g, h] = compare_add.to_ne_bytes();
        self.rkey = u32::from_ne_bytes([a, b, c, d]);
        self.rest_of_compare_add = u32::from_ne_bytes([e, f, g, h]);
        (self.remote_addr, self.swap, self.atomic_rkey) = (to, swap, rkey);
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_mw_bind_info {
    pub mr: *mut c_void,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: u32,
}
layout!(ibv_mw_bind_info: 32, addr 8, length 16, mw_access_flags 24);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}
layout!(ibv_wc: 48, status 8, opcode 12, vendor_err 16, byte_len 20, imm_data 24, qp_num 28, src_qp 32,
    wc_flags 36, pkey_index 40, slid 42, sl 44, dlid_path_bits 45);

#[repr(C)]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: u32,
    pub bind_info: ibv_mw_bind_info,
}
layout!(ibv_mw_bind: 48, wr_id 0, send_flags 8, bind_info 16);
