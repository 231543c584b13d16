//! A software RNIC: RDMA over plain TCP, in user space, with iWARP's own octets on the wire.
//!
//! The names are those of the RDMA verbs:
//!
//! - A [`Rnic`] is a device. It has limits ([`RnicConfig`]), [`Capabilities`] and [`Counters`].
//! - A [`ProtectionDomain`] holds memory and the QPs that may use it: [`MemoryRegion`]s,
//!   [`MemoryWindow`]s, [`QueuePair`]s and [`SharedReceiveQueue`]s.
//! - A [`QueuePair`] is one end of a connection. Work requests ([`SendWr`], [`RecvWr`]) are posted
//!   to it, and end in [`Completion`]s, which a [`CompletionQueue`] hands to the program.
//! - A QP is connected by its [`connect`](QueuePair::connect), by a [`Listener`]'s
//!   [`ConnectRequest`], or over a TCP connection of the program's own
//!   ([`begin`](QueuePair::begin)). The peer is any RNIC with iWARP, Linux's `siw`, or another
//!   `Rnic`.
//! - Whatever happens to a QP and no completion tells is an [`AsyncEvent`], in an [`EventQueue`] or
//!   handed to an [`EventSink`].
//!
//! # Example
//!
//! Two QPs of one device are connected, and one sends a message to the other:
//!
//! ```
//! use std::time::Duration;
//! use rddp_rnic::{Access, ConnectOptions, QpConfig, RecvWr, Rnic, SendWr};
//!
//! let rnic = Rnic::open()?;
//! let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64)?);
//! let options = ConnectOptions::default();
//! let listener = rnic.listen("127.0.0.1:0".parse()?, &options)?;
//! let addr = listener.local_addr()?;
//!
//! let passive = pd.create_qp(&QpConfig::new(&cq))?;
//! let active = pd.create_qp(&QpConfig::new(&cq))?;
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     let connecting = scope.spawn(|| active.connect(addr, &options).map(drop));
//!     let request = listener.accept(Some(Duration::from_secs(5)))?.ok_or("nobody came")?;
//!     request.accept(&passive, b"")?;
//!     connecting.join().map_err(|_| "the connecting thread panicked")??;
//!     Ok(())
//! })?;
//!
//! let inbox = pd.allocate(64, Access::LOCAL_WRITE)?;
//! passive.post_recv(RecvWr::one(1, inbox.whole()))?;
//! active.post_send(&SendWr::send_inline(2, b"hello").unsignaled())?;
//! while !cq.wait(Some(Duration::from_secs(5)))? {}
//! let received = cq.poll_one().ok_or("no completion")?;
//! assert_eq!((received.wr_id, received.byte_len), (1, 5));
//! assert_eq!(inbox.read(0, 5)?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Plain TCP
//!
//! A QP may speak plain TCP in place of iWARP ([`Transport::Tcp`]): its peer is any TCP program. It
//! shares completion queues and receive queues with QPs of iWARP.
//!
//! ```
//! use std::io::Write;
//! use rddp_rnic::{Access, ConnectOptions, QpConfig, RecvWr, Rnic, Transport};
//!
//! let rnic = Rnic::open()?;
//! let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64)?);
//! let qp = pd.create_qp(&QpConfig { transport: Transport::Tcp, ..QpConfig::new(&cq) })?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! qp.connect(listener.local_addr()?, &ConnectOptions::default())?;
//!
//! let inbox = pd.allocate(5, Access::LOCAL_WRITE)?;
//! qp.post_recv(RecvWr::one(1, inbox.whole()).until_full())?;
//! listener.accept()?.0.write_all(b"hello, world")?;
//! while !cq.wait(None)? {}
//! let received = cq.poll_one().ok_or("no completion")?;
//! assert_eq!((received.byte_len, inbox.read(0, 5)?), (5, b"hello".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where messages are wanted on both ends, [`Transport::Record`] puts the length of each in front.
//! [`Transport::Udp`] sends and receives datagrams: see [`QueuePair::bind`].
//!
//! # Threads
//!
//! A thread that posts a request writes to the socket, and a thread that polls a completion queue
//! or waits on it reads the sockets of the queue's QPs. For programs whose threads do something
//! else, one background thread of the device does both, from its
//! first connection or listener on. So a one-sided operation of the peer needs
//! no call of this program, and a program that polls is not slowed down by another thread. All
//! types can be shared by threads. `rnic/README.md` describes the design.
//!
//! # `fork`
//!
//! A child of `fork` cannot use its parent's objects: calls on them fail with [`Forked`], and the
//! child opens a device of its own.
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod adapter;
mod budget;
mod capabilities;
mod channel;
mod config;
mod conn;
mod counters;
mod cq;
mod deadline;
mod device;
mod error;
mod event;
mod home;
mod host;
mod io;
mod kernel;
mod local;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod mem;
#[cfg(not(feature = "internals"))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "what only the feature shows is unused without it"
)]
mod mem;
mod mpa;
mod pd;
mod qp;
mod queues;
mod region;
mod scratch;
mod srq;
mod stat;
mod sys;
mod trace;
mod wire;

pub use channel::CompletionChannel;
pub use config::{QpConfig, RnicConfig};
pub use conn::answer::Answer;
pub use conn::connect::Connected;
pub use conn::listen::Listener;
// For `rddp doctor`.
#[doc(hidden)]
pub use conn::port_mapper::{MapperAnswer, ask as ask_port_mapper, ask_at as ask_port_mapper_at};
pub use conn::request::ConnectRequest;
pub use counters::Counters;
pub use cq::CompletionQueue;
pub use device::Rnic;
pub use error::{AnswerError, ConnectError, Error, NamedBy, PostError, PostListError, SgeFault};
pub use event::{EventQueue, EventSink};
pub use home::Forked;
pub use io::counter::Counter;
pub use kernel::{KERNEL_BLOCK, KernelCounts, KernelPlacement, LeftToUser, Placement};
pub use mem::{FileMapping, MemError, PdId, RegionOptions};
pub use pd::ProtectionDomain;
pub use qp::QueuePair;
pub use queues::options::{DatagramOptions, NoReceive, RecordOptions, Transport, WithoutReceive};
pub use queues::patience::Patience;
pub use queues::srq::SrqConfig;
pub use queues::state::QpState;
pub use rddp_mpa::{Negotiated, Request};
pub use rddp_rdma::{
    Access, AsyncEvent, AsyncEventKind, Atomics, Capabilities, Completed, Completion, CompletionError,
    ConnectOptions, CqNum, Datagram, Element, Fault, Gather, Keepalive, Operation, PortMapper, Protocol,
    QpNum, RecvWr, Remote, Revision, Rtr, RtrSet, SendWr, Sge, SgeList, SrqNum, Stag, Status, TerminateCode,
    UdPeer,
};
pub use rddp_rdmap::TerminateRepr;
pub use rddp_verbs_device::{ConnectFailed, DeviceError};
pub use region::{MemoryRegion, MemoryWindow};
pub use srq::SharedReceiveQueue;

// Has `cargo test` build the program of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/first-steps/rust.md")]
mod first_steps {}
