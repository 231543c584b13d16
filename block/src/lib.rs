//! Protocols of block devices as values and machines: no socket, file, clock or thread.
//!
//! | module | what |
//! |---|---|
//! | [`export`] | what is served, and what may be asked of it |
//! | [`nbd`] | NBD, the Network Block Device protocol: both ends |
//! | [`nvme`] | NVMe over Fabrics, by RDMA |
#![forbid(unsafe_code)]

pub mod export;
pub mod nbd;
pub mod nvme;
