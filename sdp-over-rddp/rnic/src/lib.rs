//! The Sockets Direct Protocol over an RDMA device: the software RNIC, or one of the host.
//!
//! [`Endpoint`] is the [`Transport`](rddp_sdp::transport::Transport) of `rddp-sdp` over a
//! [`QueuePair`](rddp_rnic::QueuePair). [`Registry`] makes registrations of the program's
//! memory, and keeps them.
//! [`SdpStream`] and [`SdpListener`] are sockets whose calls sleep. Several threads may use one.
//!
//! # Example
//!
//! ```
//! use std::io::{Read, Write};
//! use rddp_sdp::socket::Config;
//! use rddp_sdp_rnic::{Scheme, SdpDevice};
//!
//! let device = SdpDevice::open(Config::default(), Scheme::PerCall)?;
//! let listener = device.listen("127.0.0.1:0".parse()?)?;
//! let addr = listener.local_addr()?;
//! let server = std::thread::spawn(move || -> std::io::Result<String> {
//!     let mut greeting = String::new();
//!     listener.accept()?.read_to_string(&mut greeting)?;
//!     Ok(greeting)
//! });
//! device.connect(addr)?.write_all(b"hello")?;
//! assert_eq!(server.join().map_err(|_| "the server panicked")??, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod bell;
mod endpoint;
mod inbox;
mod listener;
mod registration;
mod service;
mod stream;
mod sys;
mod watch;
mod watcher;

pub use endpoint::{Endpoint, EndpointConfig, Octets};
pub use listener::SdpListener;
pub use registration::{Lease, RegistrationCounters, Registry, Scheme};
pub use stream::{SdpDevice, SdpStream};
pub use sys::ProgramMemory;
pub use watcher::Watcher;
