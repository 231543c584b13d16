//! Ids of the connection manager.

use std::io;
use std::net::SocketAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rddp_verbs_layout::{ibv_context, ibv_qp, option, port_space, rdma_cm_id, rdma_conn_param};
use socket2::{SockAddr, SockAddrStorage};

use super::by_errno;
use super::context::Domain;
use super::events::{CmEvent, EventChannel};
use super::library::Library;
use super::parting::Last;
use super::queues::{Completions, Pair, Shape, attributes};
use super::shared::SharedQueue;

/// The terms that an end tells the device when it connects, or accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) private_data: Vec<u8>,
    pub(crate) ird: u8,
    pub(crate) ord: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

impl Parameters {
    /// Returns C's structure, which names the private data of this one.
    fn raw(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len() as u8,
            responder_resources: self.ird,
            initiator_depth: self.ord,
            flow_control: 0,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: 0,
            qp_num: 0,
        }
    }
}

/// An id of the connection manager with its channel, which it may share with others, and its queue
/// pair once it has one.
#[derive(Debug)]
pub(crate) struct Id {
    raw: NonNull<rdma_cm_id>,
    pair: OnceLock<Pair>,
    /// The peer was told that the connection is over, and has not answered.
    is_parting: AtomicBool,
    pub(crate) events: Arc<EventChannel>,
}

// SAFETY: functions on an id may be called from several threads at a time (see the module).
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

impl Id {
    /// Makes an id with a channel of its own.
    pub(crate) fn new(library: &'static Library) -> io::Result<Self> {
        Self::on(&Arc::new(EventChannel::new(library)?))
    }

    /// Makes an id whose events come by this channel.
    pub(crate) fn on(events: &Arc<EventChannel>) -> io::Result<Self> {
        let mut raw = null_mut();
        // SAFETY: a pointer can be stored; the channel is there.
        by_errno(unsafe {
            let (channel, space) = (events.raw.as_ptr(), port_space::TCP);
            (events.library.table.rdma_create_id)(channel, &raw mut raw, null_mut(), space)
        })?;
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self::of(raw, events))
    }

    /// Takes the id that a peer's request has made, whose events come by the listener's channel.
    pub(crate) fn of_request(event: &mut CmEvent, events: &Arc<EventChannel>) -> Option<Self> {
        let raw = event.take_request()?;
        Some(Self::of(raw, events))
    }

    fn of(raw: NonNull<rdma_cm_id>, events: &Arc<EventChannel>) -> Self {
        Id { raw, pair: OnceLock::new(), is_parting: AtomicBool::new(false), events: events.clone() }
    }

    /// Gives the id a channel of its own.
    pub(crate) fn separate(&mut self) -> io::Result<()> {
        let events = Arc::new(EventChannel::new(self.library())?);
        // SAFETY: the id is there, and so are both channels, until it uses the new one alone.
        by_errno(unsafe { (self.library().table.rdma_migrate_id)(self.raw.as_ptr(), events.raw.as_ptr()) })?;
        self.events = events;
        Ok(())
    }

    fn library(&self) -> &'static Library {
        self.events.library
    }

    /// Returns the device that the id uses, null before it uses one.
    pub(crate) fn context(&self) -> *const ibv_context {
        // SAFETY: a field of the id, which the library changes in calls and events of ours alone.
        unsafe { (&raw const (*self.raw.as_ptr()).verbs).read() }
    }

    /// Returns the address of this end, and that of the other one.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let raw = self.raw.as_ptr();
        // SAFETY: fields of the id, as above.
        let (source, destination) =
            unsafe { ((&raw const (*raw).route.src_addr).read(), (&raw const (*raw).route.dst_addr).read()) };
        (socket_address(source), socket_address(destination))
    }

    pub(crate) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let address = SockAddr::from(address);
        // SAFETY: the function copies the address.
        by_errno(unsafe {
            (self.library().table.rdma_bind_addr)(self.raw.as_ptr(), address.as_ptr().cast_mut().cast())
        })
    }

    /// Begins to look for the way to an address.
    pub(crate) fn resolve_address(
        &self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        milliseconds: i32,
    ) -> io::Result<()> {
        let (from, to) = (from.map(SockAddr::from), SockAddr::from(to));
        let from = from.as_ref().map_or(null_mut(), |from| from.as_ptr().cast_mut().cast());
        // SAFETY: the function copies the addresses.
        by_errno(unsafe {
            let to = to.as_ptr().cast_mut().cast();
            (self.library().table.rdma_resolve_addr)(self.raw.as_ptr(), from, to, milliseconds)
        })
    }

    pub(crate) fn resolve_route(&self, milliseconds: i32) -> io::Result<()> {
        // SAFETY: the id is there.
        by_errno(unsafe { (self.library().table.rdma_resolve_route)(self.raw.as_ptr(), milliseconds) })
    }

    /// Sets how long a device waits for an acknowledgement: 4.096 µs times 2 to this power.
    pub(crate) fn set_ack_timeout(&self, mut exponent: u8) -> io::Result<()> {
        // SAFETY: the option is one octet, which the function copies.
        by_errno(unsafe {
            (self.library().table.rdma_set_option)(
                self.raw.as_ptr(),
                option::LEVEL_ID,
                option::ACK_TIMEOUT,
                (&raw mut exponent).cast(),
                1,
            )
        })
    }

    /// Makes the queue pair, which takes its receives from a shared queue if there is one, and its
    /// completion queue. How many octets a device takes inline it does not tell: it refuses. Of a
    /// call that fails, the name comes with the error.
    pub(crate) fn make_pair(
        &self,
        domain: &Arc<Domain>,
        mut shape: Shape,
        shared: Option<&Arc<SharedQueue>>,
    ) -> Result<(), (&'static str, io::Error)> {
        let completions = Completions::new(&domain.context, shape.sends + shape.receives)?;
        let raw = loop {
            match self.create_pair(domain, &completions, shape, shared) {
                Ok(raw) => break raw,
                Err(error) => {
                    let is_argument = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM));
                    if !is_argument || shape.inline == 0 {
                        return Err(("rdma_create_qp", error));
                    }
                    shape.inline /= 2;
                }
            }
        };
        let _ = self.pair.set(Pair::new(raw, completions, shape.inline, domain, shared.cloned()));
        Ok(())
    }

    fn create_pair(
        &self,
        domain: &Domain,
        completions: &Completions,
        shape: Shape,
        shared: Option<&Arc<SharedQueue>>,
    ) -> io::Result<NonNull<ibv_qp>> {
        let mut attributes = attributes(completions, shape, shared);
        let table = &self.library().table;
        // SAFETY: the id has its device, of which domain and queue are.
        by_errno(unsafe {
            (table.rdma_create_qp)(self.raw.as_ptr(), domain.raw.as_ptr(), &raw mut attributes)
        })?;
        // SAFETY: a field of the id, as above.
        let raw = unsafe { (&raw const (*self.raw.as_ptr()).qp).read() };
        NonNull::new(raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(crate) fn pair(&self) -> Option<&Pair> {
        self.pair.get()
    }

    /// Connects. This may block for minutes.
    pub(crate) fn connect(&self, parameters: &Parameters) -> io::Result<()> {
        let mut raw = parameters.raw();
        // SAFETY: the id is there; the function copies the parameters and what they name.
        by_errno(unsafe { (self.library().table.rdma_connect)(self.raw.as_ptr(), &raw mut raw) })
    }

    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: the id is there.
        by_errno(unsafe { (self.library().table.rdma_listen)(self.raw.as_ptr(), backlog) })
    }

    pub(crate) fn accept(&self, parameters: &Parameters) -> io::Result<()> {
        let mut raw = parameters.raw();
        // SAFETY: as for `connect`.
        by_errno(unsafe { (self.library().table.rdma_accept)(self.raw.as_ptr(), &raw mut raw) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = private_data.len() as u8;
        // SAFETY: the function copies the private data.
        by_errno(unsafe {
            (self.library().table.rdma_reject)(self.raw.as_ptr(), private_data.as_ptr().cast(), len)
        })
    }

    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the id is there.
        by_errno(unsafe { (self.library().table.rdma_disconnect)(self.raw.as_ptr()) })
    }

    /// Notes whether the peer has still to answer that the connection is over: the id then outlives
    /// its owner.
    pub(crate) fn set_parting(&self, is_parting: bool) {
        self.is_parting.store(is_parting, Ordering::Relaxed);
    }
}

/// Returns an address, unless it is not set: then its family is 0.
fn socket_address(storage: libc::sockaddr_storage) -> Option<SocketAddr> {
    let len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: one type is a wrapper of the other; all octets are there, whatever the family.
    unsafe { SockAddr::new(std::mem::transmute::<libc::sockaddr_storage, SockAddrStorage>(storage), len) }
        .as_socket()
}

impl Drop for Id {
    fn drop(&mut self) {
        if self.pair.get().is_some() {
            // SAFETY: no call on the id is under way: a thread in `connect` holds it. The queue
            // pair goes before its completion queue.
            unsafe { (self.library().table.rdma_destroy_qp)(self.raw.as_ptr()) };
        }
        // SAFETY: as above; nobody else has the id from here on.
        let last = unsafe { Last::new(self.raw, &self.events) };
        if self.is_parting.load(Ordering::Relaxed) {
            last.wait();
        }
    }
}
