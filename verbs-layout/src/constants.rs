//! Numbers of `infiniband/verbs.h` and `rdma/rdma_cma.h`, under C's names.

/// Makes a module of constants of one type.
macro_rules! numbers {
    ($($(#[$doc:meta])* $module:ident: $type:ty { $($name:ident = $value:expr),* $(,)? })*) => { $(
        $(#[$doc])*
        pub mod $module {
            $(pub const $name: $type = $value;)*
        }
    )* };
}

numbers! {
    /// `enum ibv_wr_opcode`
    wr: u32 {
        RDMA_WRITE = 0, RDMA_WRITE_WITH_IMM = 1, SEND = 2, SEND_WITH_IMM = 3, RDMA_READ = 4,
        ATOMIC_CMP_AND_SWP = 5, ATOMIC_FETCH_AND_ADD = 6, LOCAL_INV = 7, BIND_MW = 8,
        SEND_WITH_INV = 9,
    }
    /// `enum ibv_send_flags`
    send: u32 { FENCE = 1, SIGNALED = 2, SOLICITED = 4, INLINE = 8 }
    /// `enum ibv_wc_opcode`
    wc: u32 {
        SEND = 0, RDMA_WRITE = 1, RDMA_READ = 2, COMP_SWAP = 3, FETCH_ADD = 4, BIND_MW = 5,
        LOCAL_INV = 6, RECV = 0x80, RECV_RDMA_WITH_IMM = 0x81,
    }
    /// `enum ibv_wc_flags`
    wc_flags: u32 { GRH = 1, WITH_IMM = 2, WITH_INV = 8 }
    /// `enum ibv_wc_status`
    status: u32 {
        SUCCESS = 0, LOC_LEN_ERR = 1, LOC_QP_OP_ERR = 2, LOC_PROT_ERR = 4, WR_FLUSH_ERR = 5,
        MW_BIND_ERR = 6, BAD_RESP_ERR = 7, REM_INV_REQ_ERR = 9, REM_ACCESS_ERR = 10, REM_OP_ERR = 11, RETRY_EXC_ERR = 12,
        RNR_RETRY_EXC_ERR = 13,
        GENERAL_ERR = 21,
    }
    /// `enum ibv_access_flags`
    access: u32 {
        LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8, MW_BIND = 16,
        ZERO_BASED = 32, HUGETLB = 128,
        // Hints, which a device may ignore.
        OPTIONAL = 0x3ff0_0000,
    }
    /// Extended queues: `enum ibv_create_cq_wc_flags`, `ibv_cq_init_attr_mask` and
    /// `ibv_create_cq_attr_flags`.
    wc_ex: u32 { STANDARD = 0x7f, MASK_FLAGS = 1, SINGLE_THREADED = 1 }
    /// `enum ibv_mw_type`
    mw_type: u32 { TYPE_1 = 1, TYPE_2 = 2 }
    /// `enum ibv_rereg_mr_flags`
    rereg: u32 { TRANSLATION = 1, PD = 2, ACCESS = 4, ALL = 7 }
    /// `enum ibv_qp_type`
    qp_type: u32 { RC = 2, UC = 3, UD = 4, XRC_SEND = 9, XRC_RECV = 10 }
    /// `enum ibv_qp_state`
    qp_state: u32 { RESET = 0, INIT = 1, RTR = 2, RTS = 3, SQD = 4, SQE = 5, ERR = 6 }
    /// `enum ibv_qp_attr_mask`
    qp_mask: u32 {
        STATE = 1, CUR_STATE = 2, EN_SQD_NOTIFY = 4, ACCESS_FLAGS = 8, PKEY_INDEX = 0x10, PORT = 0x20, QKEY = 0x40, AV = 0x80,
        PATH_MTU = 0x100, TIMEOUT = 0x200, RETRY_CNT = 0x400, RNR_RETRY = 0x800, RQ_PSN = 0x1000,
        MAX_QP_RD_ATOMIC = 0x2000, ALT_PATH = 0x4000, MIN_RNR_TIMER = 0x8000, SQ_PSN = 0x1_0000,
        MAX_DEST_RD_ATOMIC = 0x2_0000, PATH_MIG_STATE = 0x4_0000, CAP = 0x8_0000,
        DEST_QPN = 0x10_0000, RATE_LIMIT = 0x200_0000,
    }
    /// `enum ibv_qp_init_attr_mask`
    qp_init: u32 { PD = 1, XRCD = 2, CREATE_FLAGS = 4, SEND_OPS_FLAGS = 0x40 }
    /// `enum ibv_srq_init_attr_mask` and `enum ibv_srq_type`
    srq_init: u32 { TYPE = 1, XRC = 1 }
    /// `enum ibv_srq_attr_mask`
    srq_mask: u32 { MAX_WR = 1, LIMIT = 2 }
    /// `enum ibv_event_type`
    event: u32 {
        CQ_ERR = 0, QP_FATAL = 1, QP_REQ_ERR = 2, QP_ACCESS_ERR = 3, COMM_EST = 4, SQ_DRAINED = 5,
        DEVICE_FATAL = 8, PORT_ACTIVE = 9, PORT_ERR = 10, SRQ_ERR = 14, SRQ_LIMIT_REACHED = 15,
        QP_LAST_WQE_REACHED = 16, GID_CHANGE = 18,
    }
    /// `enum rdma_port_space`
    port_space: u32 { TCP = 0x106, UDP = 0x111 }
    /// `enum rdma_cm_event_type`
    cm: u32 {
        ADDR_RESOLVED = 0, ADDR_ERROR = 1, ROUTE_RESOLVED = 2, ROUTE_ERROR = 3,
        CONNECT_REQUEST = 4, CONNECT_RESPONSE = 5, CONNECT_ERROR = 6, UNREACHABLE = 7,
        REJECTED = 8, ESTABLISHED = 9, DISCONNECTED = 10, DEVICE_REMOVAL = 11, TIMEWAIT_EXIT = 15,
    }
    /// Flags of `struct rdma_addrinfo`.
    rai: i32 { PASSIVE = 1, NUMERICHOST = 2, NOROUTE = 4, FAMILY = 8 }
    /// Options of `rdma_set_option`: the level, then names.
    option: i32 { LEVEL_ID = 0, TOS = 0, REUSEADDR = 1, AFONLY = 2, ACK_TIMEOUT = 3 }
    /// `ibv_device_attr.device_cap_flags`
    device_cap: u32 { RESIZE_MAX_WR = 1, SRQ_RESIZE = 0x2000, MEM_WINDOW = 0x2_0000, MEM_MGT_EXTENSIONS = 0x20_0000,
        MEM_WINDOW_TYPE_2A = 0x80_0000, MEM_WINDOW_TYPE_2B = 0x100_0000,
    }
    /// `enum ibv_node_type`, `ibv_transport_type`, `ibv_port_state`, link layers, MTUs.
    device: i32 { NODE_CA = 1, NODE_RNIC = 4, TRANSPORT_IB = 0, TRANSPORT_IWARP = 1, PORT_DOWN = 1, PORT_ACTIVE = 4,
        LINK_LAYER_ETHERNET = 2, MTU_1024 = 3, MTU_4096 = 5,
        // `enum ibv_atomic_cap`
        ATOMIC_NONE = 0, ATOMIC_HCA = 1, ATOMIC_GLOB = 2,
    }
    /// `enum ibv_gid_type` of an entry of the table
    gid_type: u32 { INFINIBAND = 0, ROCE_V2 = 2 }
    /// `enum ibv_fork_status`
    fork: i32 { UNNEEDED = 2 }
}
