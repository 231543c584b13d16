//! RDMA devices of the host: RNICs, RoCE and InfiniBand adapters, by libibverbs and librdmacm.
//!
//! Both libraries are loaded when a device is first asked for, and not before: there is nothing to
//! link, and a host without them has no devices ([`LoadError`]). Requests and completions are those
//! of `rddp-rdma`. Devices differ in more than their limits; what differs and is the device's own
//! affair is made equal here, and what a program must know stands in [`Device::capabilities`] or is
//! refused with a reason.
//!
//! | module | subject |
//! |---|---|
//! | `device` | the devices of a host, and their limits |
//! | `endpoint` | a connection: an id of the connection manager, a queue pair, its completions |
//! | `listener` | requests of peers for connections |
//! | `shared` | receives that several connections take from |
//! | `last` | what a device tells of shared receives when a connection ends |
//! | `presence` | a watch over a device |
//! | `words` | numbers of C's headers and the words of `rddp-rdma` |
//! | `error` | errors, each with its cause and what helps |
//! | `sys` | the two libraries: all raw calls, and memory that a device reads and writes |
//!
//! An [`Endpoint`] takes no lock and has no thread, but for one that waits in `rdma_connect`. It is
//! driven by its owner: its descriptor is readable when [`Endpoint::event`] or [`Endpoint::poll`]
//! may have something.
//!
//! ```
//! use rddp_verbs_device::{Device, DeviceError};
//!
//! match Device::named("siw0") {
//!     Ok(device) => println!("{device:?}: {:?}", device.capabilities()),
//!     // Each error says what is missing, and what helps.
//!     Err(error) => println!("{error}"),
//! }
//! ```
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod device;
mod endpoint;
mod error;
mod last;
mod listener;
mod presence;
mod shared;
mod sys;
mod words;

pub use device::{Device, Transport};
pub use endpoint::{Agreed, Endpoint, Event, Offer, Queues};
pub use error::{ConnectFailed, DeviceError, LoadError, PostError};
pub use listener::{Asked, Listener, Request};
pub use presence::Presence;
pub use shared::SharedReceives;
pub use sys::{DeviceEvent, Domain, Library, Registration, Window};
