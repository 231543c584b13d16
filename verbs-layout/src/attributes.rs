//! Attributes that programs ask for, and with which they make objects.

use std::ffi::{c_char, c_int, c_void};

use super::*;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}
layout!(ibv_device_attr: 232, node_guid 64, sys_image_guid 72, max_mr_size 80, page_size_cap 88, vendor_id 96,
    vendor_part_id 100, hw_ver 104, max_qp 108, max_qp_wr 112, device_cap_flags 116, max_sge 120,
    max_sge_rd 124, max_cq 128, max_cqe 132, max_mr 136, max_pd 140, max_qp_rd_atom 144, max_ee_rd_atom 148,
    max_res_rd_atom 152, max_qp_init_rd_atom 156, max_ee_init_rd_atom 160, atomic_cap 164, max_ee 168,
    max_rdd 172, max_mw 176, max_raw_ipv6_qp 180, max_raw_ethy_qp 184, max_mcast_grp 188,
    max_mcast_qp_attach 192, max_total_mcast_qp_attach 196, max_ah 200, max_fmr 204, max_map_per_fmr 208,
    max_srq 212, max_srq_wr 216, max_srq_sge 220, max_pkeys 224, local_ca_ack_delay 226, phys_port_cnt 227);

/// The extended attributes; of what this device lacks there is only the room.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub tso_caps: [u32; 2],
    pub rss_caps: [u64; 4],
    pub max_wq_type_rq: u32,
    pub packet_pacing_caps: [u32; 3],
    pub raw_packet_caps: u32,
    pub tm_caps: [u32; 5],
    pub cq_mod_caps: [u16; 2],
    pub max_dm_size: u64,
    pub pci_atomic_caps: [u16; 3],
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}
layout!(ibv_device_attr_ex: 400, comp_mask 232, odp_caps 240, completion_timestamp_mask 264,
    hca_core_clock 272, device_cap_flags_ex 280, tso_caps 288, rss_caps 296, max_wq_type_rq 328,
    packet_pacing_caps 332, raw_packet_caps 344, tm_caps 348, cq_mod_caps 368, max_dm_size 376,
    pci_atomic_caps 384, xrc_odp_caps 392, phys_port_cnt_ex 396);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_port_attr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    pub active_speed_ex: u32,
}
layout!(ibv_port_attr: 56, gid_tbl_len 12, port_cap_flags 16, max_msg_sz 20, pkey_tbl_len 32, lid 34, sm_lid 36,
    lmc 38, max_vl_num 39, active_width 43, active_speed 44, phys_state 45, link_layer 46, flags 47,
    port_cap_flags2 48, active_speed_ex 52);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}
layout!(ibv_qp_cap: 20, max_recv_wr 4, max_send_sge 8, max_recv_sge 12, max_inline_data 16);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}
layout!(ibv_qp_init_attr: 64, send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52, sq_sig_all 56);

/// The first fields are those of [`ibv_qp_init_attr`], at the same places.
#[repr(C)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub unused: [u64; 5],
    pub send_ops_flags: u64,
}
layout!(ibv_qp_init_attr_ex: 136, send_cq 8, srq 24, cap 32, qp_type 52, sq_sig_all 56, comp_mask 60, pd 64,
    create_flags 80, send_ops_flags 128);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ah_attr {
    pub grh: [u64; 3],
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}
layout!(ibv_ah_attr: 32, dlid 24, sl 26, static_rate 28, is_global 29, port_num 30);

impl ibv_ah_attr {
    /// Returns `grh.dgid`, by its octets.
    pub fn gid(&self) -> [u8; 16] {
        let [high, low, _] = self.grh.map(u64::to_ne_bytes);
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&high);
        gid[8..].copy_from_slice(&low);
        gid
    }

    pub fn set_gid(&mut self, gid: [u8; 16]) {
        for (half, octets) in self.grh.iter_mut().zip(gid.as_chunks::<8>().0) {
            *half = u64::from_ne_bytes(*octets);
        }
    }

    /// Sets `grh.hop_limit` and `grh.traffic_class`, with flow label and GID index 0.
    pub fn set_route(&mut self, hop_limit: u8, traffic_class: u8) {
        self.grh[2] = u64::from_ne_bytes([0, 0, 0, 0, 0, hop_limit, traffic_class, 0]);
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}
layout!(ibv_qp_attr: 144, path_mtu 8, qkey 16, dest_qp_num 28, qp_access_flags 32, cap 36, ah_attr 56,
    alt_ah_attr 88, pkey_index 120, en_sqd_async_notify 124, max_rd_atomic 126, max_dest_rd_atomic 127,
    min_rnr_timer 128, port_num 129, timeout 130, retry_cnt 131, rnr_retry 132, alt_port_num 133,
    alt_timeout 134, rate_limit 136);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}
layout!(ibv_srq_attr: 12, max_sge 4, srq_limit 8);

#[repr(C)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}
layout!(ibv_srq_init_attr: 24, attr 8);

#[repr(C)]
pub struct ibv_srq_init_attr_ex {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
    pub comp_mask: u32,
    pub srq_type: u32,
    pub pd: *mut ibv_pd,
    pub lacking: [*mut c_void; 3],
}
layout!(ibv_srq_init_attr_ex: 64, attr 8, comp_mask 20, srq_type 24, pd 32);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_gid_entry {
    pub gid: [u64; 2],
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}
layout!(ibv_gid_entry: 32, gid_index 16, port_num 20, gid_type 24, ndev_ifindex 28);

#[repr(C)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}
layout!(ibv_cq_init_attr_ex: 56, cqe 0, cq_context 8, channel 16, comp_vector 24, wc_flags 32, comp_mask 40,
    flags 44, parent_domain 48);
