//! A byte stream of SDP over an RDMA device: `rddp run --sdp --device`.
//!
//! The streams are those of `rddp-sdp-rnic`. The program's descriptor is one end of a pair of UNIX
//! sockets, put under its socket's number at `connect` and `listen`, or given by `accept`; a
//! [gauge](gauge::Gauge) keeps its readiness in the kernel that of the stream, so that waits of all
//! sorts need nothing more. A thread of the device drives the streams between the program's calls.
//!
//! | file | what |
//! |---|---|
//! | `adapter.rs` | the device of this process |
//! | `gauge.rs` | the readiness of a descriptor |
//! | `link.rs` | what is known of each descriptor, and where that is found |
//! | `socket.rs` | the socket: the answers to the program's calls |
//! | `begin.rs` | `connect` |
//! | `listen.rs` | `listen` and `accept` |
//! | `moving.rs` | calls that move octets, and how they sleep |
//! | `end.rs` | `close`, the exit of the process, and `fork` |
//!
//! Nothing is known of inherited descriptors: calls on them answer ECONNABORTED.

mod adapter;
mod begin;
mod end;
mod gauge;
mod link;
mod listen;
mod moving;
mod socket;

pub(crate) use adapter::{is_asked, load};
pub(super) use end::{after_fork, finish};
pub(crate) use socket::Device;
