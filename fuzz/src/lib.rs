//! What the fuzz targets do with their inputs.
//!
//! Each module is one target: a `run` that takes the fuzzer's octets and panics when a promise of the crates is broken.
//! That the body stands here and not in the target lets `tests/` make the seeds and go through the corpora without a
//! fuzzer. How to run them: `fuzz/README.md`.

pub mod input;

pub mod ddp_any_order;
pub mod ddp_segment;
pub mod mem_check;
pub mod mpa_deframe;
pub mod mpa_startup;
pub mod port_mapper;
pub mod rdmap_pair;
pub mod rdmap_stream;
pub mod rdmap_terminate;
pub mod rnic_stack;
pub mod rnic_startup;
pub mod switch_policy;
pub mod switch_stream;
