//! The bodies of the fuzz targets.
//!
//! Each module is one target: a `run` that takes the fuzzer's octets and panics when a promise of
//! the crates is broken. The bodies stand here, not in the targets, so that `tests/` can make the
//! seeds and go through the corpora without a fuzzer. `fuzz/README.md` says how to run them.

pub mod input;

pub mod block_nbd;
pub mod block_nvme;
pub mod ddp_segment;
pub mod decode_capture;
pub mod files_peer;
pub mod mem_check;
pub mod mpa_deframe;
pub mod mpa_startup;
pub mod octets_duplex;
pub mod octets_incoming;
pub mod port_mapper;
pub mod rdmap_pair;
pub mod rdmap_stream;
pub mod rdmap_terminate;
pub mod rnic_datagrams;
pub mod rnic_records;
pub mod rnic_stack;
pub mod rnic_startup;
pub mod sdp_machine;
pub mod sdp_message;
pub mod sdp_pair;
pub mod switch_policy;
pub mod switch_stream;
