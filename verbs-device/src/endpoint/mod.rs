//! One connection: an id of the connection manager, a queue pair and its completions, behind one
//! descriptor.
//!
//! | file | subject |
//! |---|---|
//! | `opening` | from an address to a connection |
//! | `posting` | requests |
//! | `completing` | completions, and what wakes their reader |
//! | `outstanding` | requests that the device has |
//! | `returning` | receives that an end leaves with the device |
//! | `link` | what a thread shares that waits in `rdma_connect` |

mod completing;
mod link;
mod opening;
mod outstanding;
mod posting;
mod returning;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rddp_rdma::{Access, Completion, QpNum};
use rddp_verbs_layout::{ibv_sge, ibv_wc};

use self::link::Link;
use self::outstanding::Sends;
use crate::device::{Device, Transport};
use crate::error::{ConnectFailed, DeviceError};
use crate::shared::SharedReceives;
use crate::sys::{Id, Shape, Windows};

/// Lengths of the queues of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    /// Requests that the send queue holds.
    pub sends: usize,
    /// Receives that the receive queue holds.
    pub receives: usize,
    /// Octets that are wanted inline; a device may take fewer.
    pub inline: usize,
}

/// The terms that this end asks for, or agrees to.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Octets for the peer's program, as many as the device's capabilities say at most.
    pub private_data: Vec<u8>,
    /// Reads and atomics of the peer that this end answers at a time.
    pub ird: u16,
    /// Reads and atomics that this end asks for at a time.
    pub ord: u16,
    /// Rights that peers have at all, whatever the memory allows. Linux's siw keeps to the rights
    /// of memory alone, and lets peers read what is registered without any. On InfiniBand, peers
    /// have all rights for a moment before these hold: a key that is not to be used should not be
    /// in private data.
    pub inbound: Access,
    /// InfiniBand: a packet is taken for lost after 4.096 µs times 2 to this power, 14 to 17 on a
    /// near network; `None` leaves it to the connection manager (19).
    pub ack_timeout: Option<u8>,
}

impl Default for Offer {
    fn default() -> Self {
        Offer { private_data: Vec::new(), ird: 16, ord: 16, inbound: Access::REMOTE, ack_timeout: None }
    }
}

/// The terms that both ends have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Private data of the peer's program; on InfiniBand with zeros behind it.
    pub private_data: Vec<u8>,
    /// Reads and atomics of the peer that this end answers at a time, at least.
    pub ird: u16,
    /// Reads and atomics that this end may ask for at a time.
    pub ord: u16,
}

/// A change of a connection.
#[derive(Debug)]
pub enum Event {
    /// The way to the peer is known and the queue pair is there: receives may be posted, and then
    /// [`Endpoint::connect`] goes on.
    Resolved,
    /// There is a connection.
    Connected(Agreed),
    /// There will be no connection.
    Failed(ConnectFailed),
    /// The connection is over.
    Disconnected,
    /// The device is gone.
    Removed,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer's address is being looked up.
    Address,
    /// The route is.
    Route,
    /// The queue pair is there.
    Resolved,
    /// The peer waits for an answer of this end, the passive one.
    Asked,
    /// The peer is being told what this end wants, or that it agrees.
    Opening,
    Connected,
    /// The send queue runs empty, until this moment at the latest.
    Closing(Instant),
    /// The end has been told to the device, and is still to be told to the owner.
    Ended,
    Over,
    /// The peer has refused: there was no connection.
    Refused,
}

/// Time in which the send queue may run empty before a close ends it.
const LINGER: Duration = Duration::from_secs(2);

/// Time for acknowledgements that the peer gave before it disconnected. They are not in order with
/// that: rxe may handle them milliseconds later. Those of a peer that gave none never come.
const GRACE: Duration = Duration::from_millis(250);

/// Completions that are taken at a time.
const BATCH: usize = 16;

/// Requests of the endpoint's own that may be outstanding beside the program's.
const OWN: usize = 4;

/// A connection by a device, from the look-up of the peer's address to its end.
///
/// Dropped, it is gone, in whatever stage it was, and the device touches no memory of its requests
/// any more: at once, but for the receives that the device has then to give back, where they are
/// shared or a thread still connects. A thread that still waits for a silent peer ends by itself,
/// and so does one that on InfiniBand has the peer told of the end until it answers.
#[derive(Debug)]
pub struct Endpoint {
    device: Device,
    link: Arc<Link>,
    descriptor: Epoll,
    /// Readable when completions were found that no event tells of.
    bell: EventFd,
    has_rung: bool,
    active: bool,
    stage: Stage,
    /// A message was the first word of the connection, of which the owner is still to be told.
    has_untold_start: bool,
    /// The peer has disconnected.
    has_left: bool,
    /// Time for each step of finding the peer, in milliseconds.
    resolving: i32,
    queues: Queues,
    offer: Offer,
    agreed: Agreed,
    sends: Sends,
    /// Receives of its own that the device has.
    receives: usize,
    /// The queue that receives are taken from, if the endpoint has none of its own.
    shared: Option<SharedReceives>,
    ready: Vec<Completion>,
    /// Memory for what is taken at a time, and for the pieces of a request.
    batch: Box<[ibv_wc; BATCH]>,
    pieces: Vec<ibv_sge>,
    /// A request has failed otherwise than by the end of the connection.
    failed: bool,
    /// Windows that are for the peer of this connection.
    windows: Windows,
}

impl Endpoint {
    fn new(device: &Device, id: Id, active: bool, queues: Queues) -> Result<Self, DeviceError> {
        let make = || -> io::Result<_> {
            let link = Arc::new(Link::new(id)?);
            let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
            let descriptor = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            for fd in [link.id.events.as_fd(), link.alarm.as_fd(), bell.as_fd()] {
                descriptor.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            Ok((link, bell, descriptor))
        };
        let (link, bell, descriptor) = make().map_err(|error| device.failed("epoll_ctl", error))?;
        Ok(Endpoint {
            device: device.clone(),
            link,
            descriptor,
            bell,
            has_rung: false,
            active,
            stage: if active { Stage::Address } else { Stage::Asked },
            resolving: 0,
            queues,
            offer: Offer::default(),
            agreed: Agreed { private_data: Vec::new(), ird: 0, ord: 0 },
            sends: Sends::new(queues.sends),
            receives: 0,
            shared: None,
            ready: Vec::new(),
            batch: Box::default(),
            pieces: Vec::new(),
            has_untold_start: false,
            has_left: false,
            failed: false,
            windows: Windows::default(),
        })
    }

    /// Makes the queue pair.
    fn make_pair(&mut self) -> Result<(), DeviceError> {
        let limits = self.device.capabilities();
        let receives = self.shared.as_ref().map_or(self.queues.receives, SharedReceives::capacity);
        let shape = Shape {
            sends: (self.queues.sends + OWN) as u32,
            receives: receives as u32,
            send_pieces: limits.max_sge as u32,
            receive_pieces: limits.max_sge as u32,
            inline: self.queues.inline as u32,
        };
        if self.queues.sends + OWN + receives > limits.max_cqes {
            let (what, device) = ("completion queues that are so long", self.device.name().to_owned());
            return Err(DeviceError::Unsupported { what, device });
        }
        let shared = self.shared.as_ref().map(SharedReceives::queue);
        let made = self.link.id.make_pair(self.device.domain(), shape, shared);
        made.map_err(|(call, error)| self.device.failed(call, error))?;
        let events = self.link.id.pair().map(|pair| pair.completions.as_fd());
        let added = events.map(|fd| self.descriptor.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)));
        added.transpose().map_err(|error| self.device.failed("epoll_ctl", error.into()))?;
        if let (Some(_), Some(pair)) = (&self.shared, self.link.id.pair()) {
            self.device.last().forget(pair.number());
        }
        Ok(())
    }

    /// Has receives be taken from a shared queue of the device. To be called before the peer's
    /// address is [resolved](Event::Resolved), at which the queue pair is made.
    #[must_use]
    pub fn sharing(mut self, shared: Option<SharedReceives>) -> Self {
        self.shared = shared;
        self
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of the queue pair, once there is one.
    #[must_use]
    pub fn number(&self) -> Option<QpNum> {
        self.link.id.pair().map(|pair| QpNum(pair.number()))
    }

    /// Returns how many octets the device takes inline, at most as many as were asked for.
    #[must_use]
    pub fn max_inline(&self) -> usize {
        self.link.id.pair().map_or(0, |pair| pair.inline as usize)
    }

    /// Returns the address of this end, and that of the other one, as far as they are known.
    #[must_use]
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.link.id.addresses()
    }

    /// Returns IRD and ORD that both ends have agreed on: at the passive end, once it has
    /// [accepted](Self::accept).
    #[must_use]
    pub fn depths(&self) -> (u16, u16) {
        (self.agreed.ird, self.agreed.ord)
    }

    /// Returns whether requests may be posted to the send queue.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.stage == Stage::Connected
    }

    /// Returns whether a request has failed otherwise than by the end of the connection: one of the
    /// endpoint's own, too, of which no completion tells.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the moment at which the owner has to call [`poll`](Self::poll), whatever comes.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Closing(until) => Some(until),
            _ => None,
        }
    }

    /// Begins to end the connection in order: no more requests are taken, and those that were are
    /// carried out, for two seconds at most. The end comes as [`Event::Disconnected`].
    pub fn close(&mut self) {
        // Of a queue that is broken, there is nothing to wait for.
        let _ = self.fetch();
        if self.stage == Stage::Connected {
            // Behind requests whose success nobody asked for, one that tells.
            if self.sends.ends_silently() {
                self.post_own();
            }
            self.stage = Stage::Closing(Instant::now() + LINGER);
        }
        self.end_if_due();
    }

    /// Ends a connection that is closing when its send queue is empty, or will not be in time: on
    /// InfiniBand, to disconnect takes the requests with it that the peer has not acknowledged.
    #[inline]
    fn end_if_due(&mut self) {
        if let Stage::Closing(until) = self.stage
            && (self.sends.is_empty() || Instant::now() >= until)
        {
            self.end();
        }
    }

    /// Returns whether to disconnect would flush requests that the peer may have acknowledged: on
    /// InfiniBand the queue pair of an end goes on until that end disconnects, too.
    fn has_unacknowledged(&self) -> bool {
        !self.is_iwarp() && self.sends.are_awaited()
    }

    /// Tells the device that the connection is over, and by it the peer.
    fn end(&mut self) {
        self.stage = Stage::Ended;
        // It fails where the peer was first.
        let is_told = self.link.id.disconnect().is_ok();
        self.link.id.set_parting(is_told && !self.is_iwarp() && !self.has_left);
        self.ring();
    }

    /// Makes the descriptor readable until it is armed.
    fn ring(&mut self) {
        self.has_rung = true;
        let _ = self.bell.write(1);
    }

    /// Returns whether the owner has to be told of an end without waiting for the device's event.
    /// On InfiniBand that comes when the peer has answered, which one that stands still does not do
    /// for minutes, while the queue pair is over at once.
    fn has_untold_end(&self) -> bool {
        self.stage == Stage::Ended && !self.is_iwarp()
    }

    fn is_iwarp(&self) -> bool {
        self.device.transport() == Transport::Iwarp
    }
}

/// The descriptor that is readable when there may be an event or a completion.
impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.0.as_fd()
    }
}
