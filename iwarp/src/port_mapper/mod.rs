//! The iWARP port mapper (UDP port 3935): which TCP port an RNIC really listens on.
//!
//! Drivers of hardware RNICs listen on ports of their own choice, because the kernel's TCP may have
//! the port that a program asked for. The mapper of a host is asked for a service's port before a
//! connection is made to it: REQ names the port, ACC the one to connect to, ACK confirms; REJ says
//! that there is no mapping. Everything is as `iwpmd` of rdma-core has it, which follows the iWARP
//! draft of SDP; the draft is not public.
//!
//! [`Frame`] is a message, [`Query`] the client and [`Server`] the server, both without sockets and
//! clocks: datagrams and the time go in, datagrams and the next time come out. Times are lengths
//! since a moment that the caller chooses.

mod frame;
mod query;
mod server;

pub use frame::{Frame, FrameError, FrameOctets, Kind};
pub use query::{Answer, Query};
pub use server::{LONGEST_KEPT, Server};

use core::time::Duration;

/// The port at which port mappers answer.
pub const PORT: u16 = 3935;

/// The time that each try waits for its answer, as `iwpmd` does.
pub const TRIES: [Duration; 3] = [Duration::from_secs(10); 3];
