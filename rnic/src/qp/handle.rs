//! The handle by which a program holds a queue pair.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rddp_mpa::Negotiated;
use rddp_rdma::{ConnectOptions, RecvWr, SendWr};
use rddp_rdmap::TerminateRepr;

use super::QpInner;
use super::core::Core;
use crate::config::QpConfig;
use crate::conn::socket::DeviceSocket;
use crate::counters::Counters;
use crate::cq::CqInner;
use crate::device::DeviceInner;
use crate::error::{ConnectError, Error, PostError, PostListError};
use crate::home::Home;
use crate::io::driver::Source;
use crate::kernel::{KernelCounts, Placement};
use crate::mem::{Access, HostDevice, PdId, QpNum, unacknowledged};
use crate::pd::PdUser;
use crate::queues::attributes::{Inbound, QpAttributes};
use crate::queues::options::{NoReceive, Transport};
use crate::queues::patience::Patience;
use crate::queues::rq::RecvQueue;
use crate::queues::sq::SendQueue;
use crate::queues::srq::User;
use crate::queues::state::QpState;
use crate::queues::unpolled::Unpolled;
use crate::wire::Connection;
use crate::wire::opening::Terms;

/// A queue pair: one end of an RDMA connection.
///
/// Cloning gives another handle to the same QP: threads share it so, or by reference. Dropping the
/// last handle closes the connection, if there is one: what TCP has taken or begun to take still
/// goes out, then FIN, and whatever the peer sends is discarded until its own FIN, for five seconds
/// at most. Requests that wait in the send queue are not sent. [`abort`](Self::abort) resets.
///
/// ```
/// use rddp_rnic::{QpConfig, QpState, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// assert_eq!(qp.state(), QpState::Idle);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueuePair {
    /// Beside `_last`, so that a call need not go through it.
    pub(crate) inner: Home<Arc<QpInner>>,
    _last: Arc<Last>,
}

/// The end of a QP, which all its handles share: dropped with the last of them. Others hold the QP
/// itself, for a moment.
#[derive(Debug)]
struct Last {
    inner: Home<Arc<QpInner>>,
    /// Dropped once the QP has ended.
    _of_pd: PdUser,
}

impl QueuePair {
    pub(crate) fn create(
        device: &Arc<DeviceInner>,
        pd: PdId,
        config: &QpConfig,
        of_pd: PdUser,
    ) -> Result<Self, Error> {
        let (send_cq, recv_cq) = (config.send_cq.0.here()?, config.recv_cq.0.here()?);
        if [send_cq, recv_cq].iter().any(|cq| !cq.is_of(&device.driver)) {
            return Err(Error::Foreign("a completion queue"));
        }
        if let Some(cq) = [send_cq, recv_cq].into_iter().find(|cq| cq.is_overflowed()) {
            return Err(Error::CqOverflow { cq: cq.num });
        }
        if config.no_receive == NoReceive::Wait && (config.srq.is_some() || config.inbound_read) {
            return Err(Error::Conflict(
                "Sends that wait for receives exclude inbound Reads and shared receive queues",
            ));
        }
        let transport = transport(device, config)?;
        if config.no_receive == NoReceive::Wait && config.transport == Transport::Acknowledged {
            return Err(Error::Conflict("Sends that wait for receives exclude acknowledgements"));
        }
        let has_port = config.num.is_some_and(|num| num.0 >> 8 != 0 && num.0 >> 24 == 0);
        if config.transport == Transport::Unreliable && !has_port {
            return Err(Error::Conflict("the number of a QP of unreliable datagrams has its port in it"));
        }
        if let Some(events) = &config.events {
            events.adopt(&device.adapter)?;
        }
        let srq = config.srq.as_ref().map(|srq| srq.inner.here().cloned()).transpose()?;
        if srq.as_ref().is_some_and(|srq| !srq.is_of(&device.adapter)) {
            return Err(Error::Foreign("a shared receive queue"));
        }
        if let (Some(srq), Some(host)) = (&srq, &device.host) {
            srq.on_device(host, pd)?;
        }
        let num = match config.num {
            Some(num) => device.free_qp(num)?,
            None => device.next_qp(),
        };
        let limits = device.host.as_ref().map(HostDevice::capabilities);
        let unpolled = |cq: &CqInner| if config.until_polled { cq.unpolled() } else { Unpolled::default() };
        let inner = Arc::new_cyclic(|weak: &Weak<QpInner>| {
            let source: Weak<dyn Source> = weak.clone();
            let token = device.driver.add(source);
            QpInner {
                attrs: QpAttributes {
                    num,
                    token,
                    pd,
                    inbound: Inbound::new(config.inbound()),
                    no_receive: config.no_receive,
                    placement: config.placement,
                    transport,
                    acknowledges: AtomicBool::new(config.transport == Transport::Acknowledged),
                    records: config.records,
                    forgets_completions: config.forgets_completions,
                    qkey: AtomicU32::default(),
                    max_requests: AtomicU32::default(),
                    events: config.events.as_ref().unwrap_or(&device.events).clone(),
                    event_sink: config.event_sink.clone(),
                    send_cq: send_cq.clone(),
                    recv_cq: recv_cq.clone(),
                    device: device.adapter.clone(),
                },
                device: device.clone(),
                startup: Mutex::default(),
                core: Mutex::new(Core::new(
                    SendQueue::new(
                        config.max_send,
                        unpolled(send_cq).counting_quiet(config.quiet_until_polled),
                        transport,
                    )
                    .limited(limits),
                    RecvQueue::new(config.max_recv, unpolled(recv_cq), srq.clone(), transport)
                        .limited(limits),
                )),
            }
        });
        // From here on dropping `qp` undoes what has been done, if a later step fails.
        let inner = Home::new(inner);
        let qp = QueuePair { inner: inner.clone(), _last: Arc::new(Last { inner, _of_pd: of_pd }) };
        let inner = qp.inner.here()?;
        for cq in inner.attrs.cqs() {
            cq.add_member(inner.attrs.token, inner.clone())
                .map_err(Error::host("watching the sockets of many QPs"))?;
        }
        let receives = if srq.is_some() { 0 } else { config.max_recv };
        inner.attrs.say_what_may_overflow(config.max_send, receives);
        device.names.qps.lock().insert(inner.attrs.num, Arc::downgrade(inner));
        if let Some(srq) = srq {
            let user: Weak<dyn User> = Arc::downgrade(inner) as _;
            srq.join(inner.attrs.num, user);
        }
        Ok(qp)
    }

    /// Returns the number of the QP, as completions and events name it.
    pub fn num(&self) -> QpNum {
        self.inner.anywhere().attrs.num
    }

    /// Returns the state of the QP.
    pub fn state(&self) -> QpState {
        self.inner.here().map_or(QpState::Error, |inner| inner.core.lock().state)
    }

    /// Returns the rights that the QP gives its peer, where regions give them, too.
    pub fn inbound(&self) -> Access {
        self.inner.anywhere().attrs.inbound.get()
    }

    /// Sets the rights that the QP gives its peer, in place of
    /// [`QpConfig::inbound_read`](crate::QpConfig::inbound_read) and `inbound_write`
    /// (draft-hilland-rddp-verbs §7.6.3). Rights that are not a peer's are ignored.
    ///
    /// # Errors
    /// The QP is not idle, or is being connected. Or its Sends wait for receives, which excludes
    /// inbound Reads.
    pub fn set_inbound(&self, rights: Access) -> Result<(), Error> {
        let inner = self.inner.here()?;
        if inner.attrs.waits() && rights.intersects(Access::REMOTE_READ | Access::REMOTE_ATOMIC) {
            return Err(Error::Conflict("Sends that wait for receives exclude inbound Reads"));
        }
        let _place = inner.claim().map_err(|_| Error::InUse("a queue pair that is connected"))?;
        inner.attrs.inbound.set(rights);
        Ok(())
    }

    /// Sets the `Q_Key` of a QP of [`Transport::Unreliable`], without which datagrams are not for
    /// it: 0 until then.
    pub fn set_qkey(&self, qkey: u32) {
        self.inner.anywhere().attrs.qkey.store(qkey, Ordering::Relaxed);
    }

    /// Sets the most Reads and atomics that the QP has outstanding, 1 at least: others wait. It has
    /// no effect but where requests are acknowledged, and the peer is not asked: it refuses what
    /// are too many for it. Until then it is what both ends have agreed on.
    pub fn set_max_requests(&self, most: u8) {
        self.inner.anywhere().attrs.max_requests.store(u32::from(most.max(1)), Ordering::Relaxed);
    }

    /// Posts a request to the send queue. When this returns, it has been handed to TCP as far as
    /// TCP took it.
    pub fn post_send(&self, wr: &SendWr) -> Result<(), PostError> {
        self.post_sends(std::slice::from_ref(wr)).map_err(|refused| refused.error)
    }

    /// Posts a list of requests, which leave together.
    ///
    /// # Errors
    /// A request was refused: the error says why, and how many were posted before it.
    pub fn post_sends(&self, list: &[SendWr]) -> Result<(), PostListError> {
        match self.inner.here() {
            Ok(inner) => inner.post_sends(list),
            Err(forked) => Err(PostListError { posted: 0, error: forked.into() }),
        }
    }

    /// Posts all requests of a list, which leave together, or on an error none.
    pub fn post_batch(&self, list: &[SendWr]) -> Result<(), PostError> {
        self.inner.here()?.post_batch(list)
    }

    /// Posts a receive.
    pub fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        self.inner.here()?.post_recv(wr)
    }

    /// Closes gracefully: the peer sees an orderly end. Receives are flushed at once. Nothing may
    /// be outstanding on the send queue and no Read of the peer's in service, else the connection
    /// is reset and all of it flushed (draft-hilland-rddp-verbs §6.2). What a device of the host
    /// has been given it carries out, for two seconds at most. A startup that is under way is ended
    /// as by [`abort`](Self::abort).
    pub fn disconnect(&self) {
        if let Ok(inner) = self.inner.here() {
            inner.disconnect();
        }
    }

    /// Ends the connection with a Terminate that says "local catastrophic error". A startup that is
    /// under way is ended as by [`abort`](Self::abort).
    pub fn terminate(&self) {
        if let Ok(inner) = self.inner.here() {
            inner.end_with_terminate();
        }
    }

    /// Resets the connection, or the one that is being made. Everything outstanding is flushed.
    pub fn abort(&self) {
        if let Ok(inner) = self.inner.here() {
            inner.abort();
        }
    }

    /// Goes on without the peer as if it had gone, where requests are acknowledged: the next one
    /// is not answered.
    pub fn part(&self) {
        if let Ok(inner) = self.inner.here() {
            inner.with_core(|qp, core| {
                if qp.stays(core) {
                    qp.part(core);
                }
            });
        }
    }

    /// Goes from Error to Idle, to be connected anew. Returns whether the QP is idle now.
    pub fn reset(&self) -> bool {
        let Ok(inner) = self.inner.here() else { return false };
        let mut core = inner.core.lock();
        if core.state == QpState::Error && core.connection.is_none() {
            core.reset();
            inner.forget_completions(&mut core);
        }
        core.state == QpState::Idle
    }

    /// Goes from `SendsFailed` to RTS. Returns whether the QP is ready to send now.
    pub fn resume_sends(&self) -> bool {
        self.inner.here().is_ok_and(|inner| {
            let mut core = inner.core.lock();
            if core.state == QpState::SendsFailed {
                core.set_state(QpState::ReadyToSend);
            }
            core.state == QpState::ReadyToSend
        })
    }

    /// Returns the Terminate that this end sent on the present or last connection.
    pub fn terminate_sent(&self) -> Option<TerminateRepr> {
        self.inner.here().ok()?.core.lock().terminate_sent.clone()
    }

    /// Returns the Terminate that the peer sent on the present or last connection.
    pub fn terminate_received(&self) -> Option<TerminateRepr> {
        self.inner.here().ok()?.core.lock().terminate_received.clone()
    }

    /// Returns what was counted of a connection whose segments the kernel places; `None` for one
    /// that is placed at user level, or not connected.
    ///
    /// ```
    /// # let rnic = rddp_rnic::Rnic::open()?;
    /// # let qp = rnic.alloc_pd().create_qp(&rddp_rnic::QpConfig::new(&rnic.create_cq(16)?))?;
    /// assert_eq!(qp.kernel_counts(), None);
    /// # Ok::<(), rddp_rnic::Error>(())
    /// ```
    pub fn kernel_counts(&self) -> Option<KernelCounts> {
        self.inner.here().ok()?.core.lock().connection.as_ref()?.iwarp()?.kernel_counts()
    }

    /// Returns the outcome of the MPA startup with the peer; `None` without a connection of iWARP.
    pub fn negotiated(&self) -> Option<Negotiated> {
        Some(self.inner.here().ok()?.core.lock().connection.as_ref()?.iwarp()?.negotiated().clone())
    }

    /// Returns IRD and ORD that both ends have agreed on, by whatever wire, which are 0 where that
    /// has no Reads; `None` without a connection.
    pub fn depths(&self) -> Option<(u16, u16)> {
        Some(self.inner.here().ok()?.core.lock().connection.as_ref()?.depths())
    }

    /// Makes FPDUs of up to 64,768 octets from now on (RFC 5044 §3), whatever the size of TCP
    /// segments, as the programs at both ends have agreed: by their private data, say. Returns
    /// false, and changes nothing, without a connection, or where the peer has asked for markers.
    ///
    /// Peers with which nothing was agreed need not take such: see
    /// [`ConnectOptions::large_fpdus`].
    pub fn send_large_fpdus(&self) -> bool {
        self.inner.here().is_ok_and(|inner| {
            inner.core.lock().connection.as_mut().is_some_and(Connection::send_large_fpdus)
        })
    }

    /// Sets the time for which a peer may be silent from now on, in place of
    /// [`ConnectOptions::user_timeout`]. Returns false, and changes nothing, without a connection.
    pub fn set_user_timeout(&self, limit: Duration) -> bool {
        self.inner.here().is_ok_and(|inner| {
            let mut core = inner.core.lock();
            let connection = core.connection.as_mut();
            connection.map(|connection| connection.watch.set_user_timeout(&inner.attrs, limit)).is_some()
        })
    }

    /// Sets how long the QP waits for a peer that has no receive for a message, or does not answer.
    /// It has no effect where requests are not acknowledged.
    pub fn set_patience(&self, patience: Patience) {
        if let Ok(inner) = self.inner.here() {
            inner.core.lock().sq.patience = patience;
        }
    }

    /// Sets whether the requests of an idle QP that was made with [`Transport::Acknowledged`] are
    /// acknowledged on its next connection: without, that is plain iWARP, with any peer.
    ///
    /// # Errors
    /// The QP is of another kind, is not idle, or is being connected.
    pub fn set_acknowledged(&self, acknowledges: bool) -> Result<(), ConnectError> {
        let inner = self.inner.here()?;
        if inner.attrs.transport != Transport::Acknowledged {
            return Err(ConnectError::Transport);
        }
        let _place = inner.claim()?;
        inner.attrs.acknowledges.store(acknowledges, Ordering::Relaxed);
        inner.core.lock().sq.acknowledges = acknowledges;
        Ok(())
    }

    /// Makes an idle QP its own peer, without a socket: its Sends take its own receives, and its
    /// other requests the memory that it lets a peer have. Each is carried out when it is posted.
    /// The QP is one whose requests are acknowledged ([`Transport::Acknowledged`]).
    ///
    /// ```
    /// use rddp_rnic::{Access, QpConfig, RecvWr, Rnic, SendWr, Transport};
    /// let rnic = Rnic::open()?;
    /// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
    /// let transport = Transport::Acknowledged;
    /// let qp = pd.create_qp(&QpConfig { transport, ..QpConfig::new(&cq) })?;
    /// qp.connect_to_itself()?;
    /// let inbox = pd.allocate(5, Access::LOCAL_WRITE)?;
    /// qp.post_recv(RecvWr::one(1, inbox.whole()))?;
    /// qp.post_send(&SendWr::send_inline(2, b"hello"))?;
    /// assert_eq!(cq.poll_one().map(|done| done.wr_id), Some(1));
    /// assert_eq!(inbox.read(0, 5)?, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The QP is of another kind, is not idle, or is being connected.
    pub fn connect_to_itself(&self) -> Result<(), ConnectError> {
        let inner = self.inner.here()?;
        let _place = inner.claim_place()?;
        inner.connect_to_itself()
    }

    /// Returns counts of what the QP has sent and received since it was connected.
    pub fn counters(&self) -> Counters {
        self.inner.here().map_or_else(|_| Counters::default(), |inner| inner.counters())
    }

    /// Adds to a count that `rddp stat` shows: for programs of this workspace that count more than
    /// the device does.
    #[doc(hidden)]
    pub fn count(&self, counter: rddp_stat::Counter, count: u64) {
        if let Ok(inner) = self.inner.here() {
            inner.core.lock().tally.add(counter, count);
        }
    }

    /// Returns one of the counts that `rddp stat` shows.
    #[doc(hidden)]
    pub fn counted(&self, counter: rddp_stat::Counter) -> u64 {
        self.inner.here().map_or(0, |inner| inner.core.lock().tally.of(counter))
    }

    /// Returns the peer's address; `None` without a connection.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.here().ok()?.core.lock().connection.as_ref()?.addresses().1
    }

    /// Returns the local address; `None` without a connection.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.here().ok()?.core.lock().connection.as_ref()?.addresses().0
    }

    /// Returns the number of octets that TCP has been given and the peer's TCP has not
    /// acknowledged; `None` without a connection.
    pub fn unacknowledged(&self) -> Option<usize> {
        let core = self.inner.here().ok()?.core.lock();
        unacknowledged(core.connection.as_ref()?.watch.socket().as_fd()).ok()
    }

    /// Puts an idle QP to work on a stream on which the MPA startup is over: `negotiated` is its
    /// outcome and `active` says whether this side sent the Request. No octet behind the startup
    /// frames may have been read.
    ///
    /// # Errors
    /// The QP is not idle, or is being connected already; or `stream` is no TCP socket, or listens.
    pub fn attach(
        &self,
        stream: impl Into<OwnedFd>,
        negotiated: Negotiated,
        options: &ConnectOptions,
        active: bool,
    ) -> Result<(), ConnectError> {
        let inner = self.inner.here()?;
        inner.attrs.device.only_software("connections over a program's own socket")?;
        // If the QP is not idle, the peer is told: its startup is over (RFC 6581 §9.3).
        let _place = inner.claim_place()?;
        inner.attach(DeviceSocket::of(stream, options)?, Terms::Iwarp(negotiated), options, active, || ())
    }
}

/// Returns the wire of a QP: on a device of the host, there is one.
fn transport(device: &DeviceInner, config: &QpConfig) -> Result<Transport, Error> {
    if device.host.is_none() {
        return match config.transport {
            Transport::Device => Err(Error::Conflict("only an Rnic with a device of the host has its wire")),
            other => Ok(other),
        };
    }
    for (is_asked, what) in [
        (!matches!(config.transport, Transport::Iwarp | Transport::Device), "this transport"),
        (config.no_receive == NoReceive::Wait, "Sends that wait for receives"),
        (config.placement != Placement::User, "placement in the kernel"),
    ] {
        if is_asked {
            device.only_software(what)?;
        }
    }
    Ok(Transport::Device)
}

impl Drop for Last {
    fn drop(&mut self) {
        if let Ok(inner) = self.inner.here() {
            inner.destroy();
        }
    }
}
