//! The Sockets Direct Protocol over an RDMA device: the software RNIC.
//!
//! [`Endpoint`] is the [`Transport`](rddp_sdp::transport::Transport) of `rddp-sdp` over a
//! [`QueuePair`](rddp_rnic::QueuePair). [`Registry`] keeps registrations of the program's memory.
#![deny(unsafe_code)]

mod endpoint;
mod memory;
mod registration;
mod stream;

pub use endpoint::{Endpoint, EndpointConfig};
pub use memory::ProgramMemory;
pub use registration::{Lease, RegistrationCounters, Registry, Scheme};
pub use stream::{SdpDevice, SdpListener, SdpStream};
