//! Queue pairs (draft-hilland-rddp-verbs chapter 6).
//!
//! | file | what |
//! |---|---|
//! | `state` | the states |
//! | `sq`, `rq` | the two queues |
//! | `link` | the connection: socket and protocol state |
//! | `core` | all of it behind one lock, and how the state changes |
//! | `arena`, `segments`, `train`, `tx` | sending |
//! | `rx`, `direct`, `parked` | receiving |

mod arena;
mod core;
mod direct;
mod link;
mod parked;
mod rq;
mod rx;
mod segments;
mod sq;
mod state;
mod train;
mod tx;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::EpollFlags;
use parking_lot::{Mutex, MutexGuard};
use rddp_mpa::Negotiated;
use rddp_rdmap::{Fault, TerminateRepr};
use socket2::Socket;

use self::core::Core;
use self::link::{Link, RtrRead};
use self::rq::RecvQueue;
use self::rx::{Pulled, TURN};
use self::sq::SendQueue;
pub use self::state::QpState;
use crate::config::{ConnectOptions, NoReceive, QpConfig};
use crate::conn::socket::TcpSocket;
use crate::conn::startup::Startup;
use crate::counters::Counters;
use crate::cq::CqInner;
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::{ConnectError, Error, PostError};
use crate::event::{AsyncEvent, AsyncEventKind, Element, EventQueue, Sink};
use crate::home::Home;
use crate::io::driver::{Driver, Failure, Holder, Source};
use crate::io::lease::Lease;
use crate::local::LocalMemory;
use crate::mem::{Access, PdId, QpNum};
use crate::wr::{RecvWr, SendWr};

/// A queue pair: one end of an RDMA connection.
///
/// Dropping it closes the connection, if there still is one: what TCP has taken or begun to take
/// still goes out, behind it FIN, and whatever the peer sends is thrown away until its own FIN,
/// for five seconds at most. What waits in the send queue does not go out.
/// [`abort`](Self::abort) resets.
///
/// ```
/// use rddp_rnic::{QpConfig, QpState, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
/// let qp = pd.create_qp(&QpConfig::new(&cq))?;
/// assert_eq!(qp.state(), QpState::Idle);
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) inner: Home<Arc<QpInner>>,
}

impl QueuePair {
    pub(crate) fn create(device: &Arc<DeviceInner>, pd: PdId, config: &QpConfig) -> Result<Self, Error> {
        let (send_cq, recv_cq) = (config.send_cq.0.here()?, config.recv_cq.0.here()?);
        if [send_cq, recv_cq].iter().any(|cq| !cq.is_of(&device.driver)) {
            return Err(Error::Foreign("a completion queue"));
        }
        if config.no_receive == NoReceive::Wait && (config.srq.is_some() || config.inbound_read) {
            return Err(Error::Conflict(
                "Sends that wait for receives exclude inbound Reads and shared receive queues",
            ));
        }
        let srq = config.srq.as_ref().map(|srq| srq.0.here().cloned()).transpose()?;
        let inner = Arc::new_cyclic(|weak: &std::sync::Weak<QpInner>| {
            let source: std::sync::Weak<dyn Source> = weak.clone();
            let token = device.driver.add(source);
            QpInner {
                num: device.next_qp(),
                token,
                pd,
                inbound: config.inbound(),
                no_receive: config.no_receive,
                events: config.events.as_ref().unwrap_or(&device.events).clone(),
                sink: config.sink.clone(),
                startup: Mutex::default(),
                send_cq: send_cq.clone(),
                recv_cq: recv_cq.clone(),
                core: Mutex::new(Core::new(
                    SendQueue::new(config.max_send),
                    RecvQueue::new(config.max_recv, srq.clone()),
                )),
                device: device.clone(),
            }
        });
        // From here on it is taken apart again if something fails.
        let qp = QueuePair { inner: Home::new(inner) };
        let inner = qp.inner.here()?;
        for cq in inner.cqs() {
            cq.add_member(inner.token, inner.clone())
                .map_err(Error::host("watching the sockets of many QPs"))?;
        }
        device.qps.lock().insert(inner.num, Arc::downgrade(inner));
        if let Some(srq) = srq {
            srq.join(inner.num, inner);
        }
        Ok(qp)
    }

    /// Its number, as completions and events name it.
    pub fn num(&self) -> QpNum {
        self.inner.anywhere().num
    }

    /// Where it stands.
    pub fn state(&self) -> QpState {
        self.inner.here().map_or(QpState::Error, |inner| inner.core.lock().state)
    }

    /// Posts a request to the send queue. It is on its way when this returns, if TCP takes it.
    pub fn post_send(&self, wr: &SendWr) -> Result<(), PostError> {
        self.post_sends(std::slice::from_ref(wr)).map_err(|(error, _)| error)
    }

    /// Posts a list of requests, which leave together.
    ///
    /// # Errors
    /// The first that could not be posted, and how many were before it.
    pub fn post_sends(&self, list: &[SendWr]) -> Result<(), (PostError, usize)> {
        match self.inner.here() {
            Ok(inner) => inner.post_sends(list),
            Err(forked) => Err((forked.into(), 0)),
        }
    }

    /// Posts a receive.
    pub fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        self.inner.here()?.post_recv(wr)
    }

    /// Closes gracefully: the peer sees an orderly end. Receives are flushed at once. Nothing may be outstanding on the send
    /// queue and no Read of the peer's in service, else the connection is reset and all of it flushed
    /// (draft-hilland-rddp-verbs §6.2).
    pub fn disconnect(&self) {
        if let Ok(inner) = self.inner.here() {
            inner.disconnect();
        }
    }

    /// Ends the connection with a Terminate that says "local catastrophic error".
    pub fn terminate(&self) {
        if let Ok(inner) = self.inner.here() {
            inner.with_core(|qp, core| {
                qp.terminate(core, Fault::local_catastrophic(), None);
                qp.pump(core);
            });
        }
    }

    /// Resets the connection, or the one that is being made. Everything outstanding is flushed.
    pub fn abort(&self) {
        let Ok(inner) = self.inner.here() else { return };
        let startup = inner.startup.lock().clone();
        if let Some(startup) = startup {
            startup.abort(&inner.device.driver);
        }
        inner.with_core(|qp, core| qp.lose(core, None));
    }

    /// From Error to Idle, to be connected anew. Whether it is idle now.
    pub fn reset(&self) -> bool {
        let Ok(inner) = self.inner.here() else { return false };
        let mut core = inner.core.lock();
        if core.state == QpState::Error && core.link.is_none() {
            core.reset();
        }
        core.state == QpState::Idle
    }

    /// The Terminate that this side sent on the present or last connection.
    pub fn terminate_sent(&self) -> Option<TerminateRepr> {
        self.inner.here().ok()?.core.lock().terminate_sent.clone()
    }

    /// The Terminate that the peer sent on the present or last connection.
    pub fn terminate_received(&self) -> Option<TerminateRepr> {
        self.inner.here().ok()?.core.lock().terminate_received.clone()
    }

    /// What was agreed with the peer; `None` without a connection.
    pub fn negotiated(&self) -> Option<Negotiated> {
        self.inner.here().ok()?.core.lock().link.as_ref().map(|link| link.negotiated.clone())
    }

    /// What it has sent and received since it was connected.
    pub fn counters(&self) -> Counters {
        self.inner.here().map_or_else(|_| Counters::default(), |inner| inner.counters())
    }

    /// The peer's address; `None` without a connection.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.here().ok()?.core.lock().link.as_ref()?.socket.peer_addr().ok()?.as_socket()
    }

    /// This side's address; `None` without a connection.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.here().ok()?.core.lock().link.as_ref()?.socket.local_addr().ok()?.as_socket()
    }

    /// Puts an idle QP to work on a stream on which the MPA startup is over: `negotiated` is its outcome and `active`
    /// says whether this side sent the Request. No octet behind the startup frames may have been read.
    pub fn attach(
        &self,
        stream: Socket,
        negotiated: Negotiated,
        options: &ConnectOptions,
        active: bool,
    ) -> Result<(), ConnectError> {
        self.inner.here()?.attach(TcpSocket::new(stream), negotiated, options, active, || ())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let Ok(inner) = self.inner.here() {
            inner.destroy();
        }
    }
}

#[derive(Debug)]
pub(crate) struct QpInner {
    num: QpNum,
    token: u64,
    pd: PdId,
    /// What the QP's own switches let its peer do, where memory allows it, too.
    inbound: Access,
    no_receive: NoReceive,
    events: EventQueue,
    sink: Option<Arc<dyn Sink>>,
    /// The startup that the background thread sees to, or has seen to: see [`QueuePair::begin`].
    startup: Mutex<Option<Arc<Startup>>>,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    core: Mutex<Core>,
    device: Arc<DeviceInner>,
}

impl QpInner {
    fn with_core<T>(&self, f: impl FnOnce(&Self, &mut Core) -> T) -> T {
        f(self, &mut self.core.lock())
    }

    pub(crate) fn counters(&self) -> Counters {
        self.core.lock().counters
    }

    pub(crate) fn device(&self) -> &Arc<DeviceInner> {
        &self.device
    }

    pub(crate) fn startup(&self) -> &Mutex<Option<Arc<Startup>>> {
        &self.startup
    }

    /// Tells the program what happened, and wakes who waits for that.
    pub(crate) fn report(&self, kind: AsyncEventKind) {
        self.report_about(Element::Qp(self.num), kind);
    }

    /// The same of something that the QP uses. Events are rare, and are kept out of the hot paths' code.
    #[cold]
    pub(crate) fn report_about(&self, element: Element, kind: AsyncEventKind) {
        let event = AsyncEvent { qp: self.num, element, kind };
        tracing::debug!(?event, "asynchronous event");
        if let Some(sink) = &self.sink {
            sink.take(event.clone());
        }
        self.events.take(event);
        self.cqs().for_each(|cq| cq.ready.bell.ring());
    }

    fn local_memory(&self) -> LocalMemory<'_> {
        LocalMemory { table: &self.device.mem, pd: self.pd }
    }

    fn post_sends(&self, list: &[SendWr]) -> Result<(), (PostError, usize)> {
        let mut core = self.core.lock();
        let mut result = Ok(());
        for (posted, wr) in list.iter().enumerate() {
            if let Err(error) = core.sq.push(wr, self.local_memory()) {
                result = Err((error, posted));
                break;
            }
        }
        match core.state {
            // While TCP is full, whoever makes progress next sends it along with the rest.
            QpState::ReadyToSend
                if core.link.as_ref().is_some_and(|link| link.blocked) && !core.sq.is_at_local() => {}
            QpState::ReadyToSend => self.pump(&mut core),
            QpState::Idle => {}
            // draft-hilland-rddp-verbs §6.2: work in Closing makes it a bad close; elsewhere it is flushed.
            QpState::Closing if !core.sq.is_empty() => self.lose(&mut core, Some(AsyncEventKind::BadClose)),
            _ => self.flush(&mut core, None),
        }
        result
    }

    fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        let mut core = self.core.lock();
        core.rq.push(wr, self.local_memory())?;
        if !core.state.takes_work() {
            self.flush(&mut core, None);
        } else if core.is_parked() {
            self.resume(&mut core);
        }
        Ok(())
    }

    fn disconnect(&self) {
        let mut core = self.core.lock();
        if core.state != QpState::ReadyToSend {
            return;
        }
        let idle = core.sq.is_empty();
        match &mut core.link {
            // Our RTR is nothing that the program knows of, or could wait for.
            Some(link) if idle && link.rtr != RtrRead::None => {
                link.rtr = RtrRead::OutBeforeClose;
                self.bound_close(link);
                self.flush(&mut core, None);
            }
            _ => self.close(&mut core),
        }
    }

    /// See [`QueuePair::disconnect`].
    fn close(&self, core: &mut Core) {
        let unread = |link: &Link| link.stream.inbound() > 0 || link.parked.is_some();
        let busy = !core.sq.is_empty() || core.link.as_ref().is_none_or(unread);
        if busy {
            self.lose(core, Some(AsyncEventKind::BadClose));
            return;
        }
        core.state = QpState::Closing;
        // Nothing can arrive any more without making it a bad close.
        self.flush(core, None);
        self.begin_close(core);
        self.pump(core);
    }

    /// See [`QueuePair::attach`]. `connected` is called before anything is sent or received.
    pub(crate) fn attach(
        &self,
        socket: TcpSocket,
        negotiated: Negotiated,
        options: &ConnectOptions,
        active: bool,
        connected: impl FnOnce(),
    ) -> Result<(), ConnectError> {
        socket.set_nonblocking(true)?;
        let negotiated = self.without_reads(negotiated);
        let mut core = self.core.lock();
        let mut link = Link::new(socket, negotiated, options, active);
        if let Err(error) = self.admit(&core, &mut link) {
            self.unwatch(&link);
            link.refuse();
            return Err(error);
        }
        if !link.may_send && link.negotiated.rtr.is_some() {
            // RFC 6581 §5: the initiator owes a first FPDU; without it the startup never ends.
            let deadline = Deadline::after(options.timeout);
            link.deadline = deadline.moment();
            self.device.driver.by(deadline, self.token);
        }
        if let Some(nudge) = link.nudge {
            self.device.driver.at(nudge.due, self.token);
        }
        self.device.mem.connect(self.num, self.pd, self.inbound);
        core.connect(link);
        connected();
        self.pump(&mut core);
        Ok(())
    }

    /// Puts a connection's socket where it is watched, if the QP is idle.
    fn admit(&self, core: &Core, link: &mut Link) -> Result<(), ConnectError> {
        if core.state != QpState::Idle || core.link.is_some() {
            return Err(ConnectError::NotIdle(core.state));
        }
        for cq in self.cqs() {
            cq.admit(link.fd(), self.token)?;
        }
        self.device.driver.watch(link.fd(), self.token, EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP)?;
        link.watched = true;
        Ok(())
    }

    fn progress(&self, core: &mut MutexGuard<'_, Core>) -> Pulled {
        if core.link.is_none() {
            return Pulled::Dry;
        }
        let (may_read, may_write) = readiness(core);
        let pulled = match may_read {
            _ if !self.unpark(core) => Pulled::Dry,
            _ if self.must_rest(core) => {
                self.rest_a_while(core);
                Pulled::Resting
            }
            true => {
                self.end_rest(core);
                self.pull(core, TURN)
            }
            false => Pulled::Dry,
        };
        self.check_queues(core);
        if (may_write || pulled == Pulled::More) && core.has_output() || core.state != QpState::ReadyToSend {
            self.pump(core);
        }
        if core.is_parked() {
            self.update_interest(core);
        }
        pulled
    }

    /// RFC 5042 §6.4.6: a completion queue that has overflowed ends the QPs that use it. Whether this one ends now.
    fn check_queues(&self, core: &mut Core) -> bool {
        let overflowed = self.send_cq.is_overflowed() || self.recv_cq.is_overflowed();
        let ends = overflowed && core.state == QpState::ReadyToSend;
        if ends {
            self.end_overflowed(core);
        }
        ends
    }

    #[cold]
    fn end_overflowed(&self, core: &mut Core) {
        for cq in self.cqs().filter(|cq| cq.is_overflowed()) {
            self.report_about(Element::Cq(cq.num), AsyncEventKind::CqOverflow);
        }
        self.terminate(core, Fault::CqOverflow, None);
    }

    /// RFC 5042 §6.4.1: while the partial FPDUs of all QPs take up all the memory that they may, no QP begins another.
    fn must_rest(&self, core: &Core) -> bool {
        let begins = |link: &Link| link.partial.is_empty() && link.direct.is_none();
        self.device.partial.is_exhausted() && core.link.as_ref().is_some_and(begins)
    }

    /// Has nobody look for octets before the timer says so: they are there, and whoever slept on
    /// them would wake at once.
    fn rest_a_while(&self, core: &mut Core) {
        self.device.relieve_partial();
        if let Some(link) = &mut core.link
            && !std::mem::replace(&mut link.resting, true)
        {
            self.device.driver.at(Instant::now() + REST, self.token);
            self.update_interest(core);
        }
    }

    /// The rest, if it was one, is over: whoever sleeps on the socket is to look for octets again.
    fn end_rest(&self, core: &mut Core) {
        if let Some(link) = &mut core.link
            && std::mem::take(&mut link.resting)
        {
            self.update_interest(core);
        }
    }

    /// RFC 5042 §6.4.2: that memory is short, and the FPDU that this QP keeps a part of has been arriving for too long:
    /// others wait for the place.
    pub(crate) fn lose_if_stalled(&self, now: Instant) {
        let Some(mut core) = self.core.try_lock() else { return };
        let Some(link) = core.link.as_ref().filter(|link| !link.partial.is_empty()) else { return };
        if link.partial_begun.is_some_and(|(_, begun)| now.duration_since(begun) >= STALLED) {
            tracing::info!(qp = self.num.0, "reset: it stopped in an FPDU while memory for such is short");
            self.lose(&mut core, Some(AsyncEventKind::ConnectionLost));
        }
    }

    /// What the background thread does with the core. After a panic nobody else sees the core as
    /// that has left it.
    fn guarded<T>(&self, work: impl FnOnce(&mut MutexGuard<'_, Core>) -> T) -> Option<T> {
        let mut core = self.core.lock();
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut core)));
        if result.is_err() {
            tracing::error!(qp = self.num.0, "a panic of the background thread: reset");
            self.abandon(&mut core);
        }
        result.ok()
    }

    /// Sends a nudge if one is due: we have sent, all of it has gone, and nothing has come back.
    fn nudge(&self, core: &mut Core, now: Instant) {
        let quiet = core.state == QpState::ReadyToSend
            && core.counters.fpdus_received == 0
            && core.sq.cursor.offset == 0
            && !core.sq.has_unsent();
        let sent = core.counters.fpdus_sent > 0;
        let Some(link) = &mut core.link else { return };
        let Some(nudge) = link.nudge.filter(|nudge| nudge.due <= now) else { return };
        if !quiet || !(sent || link.negotiated.rtr.is_some()) {
            link.nudge = None;
            return;
        }
        tracing::debug!(qp = self.num.0, ?nudge, "nothing heard yet: a Write of no octets");
        link.push_nudge();
        if let Some(next) = link.nudge {
            self.device.driver.at(next.due, self.token);
        }
        self.pump(core);
    }

    /// The program has let go of the QP.
    fn destroy(&self) {
        let startup = self.startup.lock().take();
        if let Some(startup) = startup {
            startup.forget(&self.device.driver);
        }
        self.device.driver.leave(self.token);
        self.cqs().for_each(|cq| cq.remove_member(self.token));
        self.device.qps.lock().remove(&self.num);
        let mut core = self.core.lock();
        if let Some(srq) = core.rq.srq() {
            srq.forget(self.num);
        }
        self.leave(&mut core);
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        self.events.forget(self.num);
        if let Some(sink) = &self.sink {
            sink.forget(self.num);
        }
    }
}

impl Source for QpInner {
    fn lease(&self, turn: u64) -> Option<(Lease, Arc<dyn Holder>)> {
        let (lease, cq) = self.cqs().map(|cq| (cq.lease(turn), cq)).max_by_key(|(lease, _)| *lease)?;
        lease.is_held().then(|| (lease, cq.clone() as Arc<dyn Holder>))
    }

    fn has_arrived(&self) -> bool {
        // Who holds the core is at work on the socket.
        let Some(core) = self.core.try_lock() else { return false };
        let Some(link) = &core.link else { return false };
        let mut fds = [PollFd::new(link.fd(), PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn rest(&self, driver: &Driver) -> bool {
        // Where the queue has an epoll set, one set less would not be felt.
        if self.cqs().any(|cq| cq.is_by_epoll()) {
            return true;
        }
        // Who holds the core is at work on the socket.
        let Some(mut core) = self.core.try_lock() else { return false };
        if let Some(link) = &mut core.link
            && std::mem::take(&mut link.watched)
        {
            driver.unwatch(link.fd());
        }
        true
    }

    fn on_ready(&self, _driver: &Driver) -> bool {
        let more = self.guarded(|core| match self.progress(core) {
            Pulled::More => true,
            Pulled::Dry => {
                self.rearm(core);
                false
            }
            // The timer is set.
            Pulled::Resting => false,
        });
        more == Some(true)
    }

    fn on_timer(&self, _driver: &Driver, now: Instant) {
        self.guarded(|core| {
            self.nudge(core, now);
            let due =
                core.link.as_ref().and_then(|link| link.deadline).is_some_and(|deadline| deadline <= now);
            if due {
                tracing::debug!(qp = self.num.0, state = %core.state, "the peer is too slow: reset");
                self.lose(core, Some(AsyncEventKind::ConnectionLost));
            }
            if self.check_queues(core) {
                self.pump(core);
            }
            // It may have been a rest: whatever is there now makes the socket ready again.
            self.end_rest(core);
            self.rearm(core);
        });
    }

    fn give_up(&self, _driver: &Driver, failure: Failure) {
        let mut core = self.core.lock();
        match failure {
            Failure::Panic => self.abandon(&mut core),
            Failure::Device if core.link.is_none() => {}
            Failure::Device => self.lose(&mut core, Some(AsyncEventKind::DeviceFailed)),
        }
    }
}

/// Whether to try the socket for octets, and for room. While TCP is full, building a train and having it refused would cost
/// more than to ask first; and to ask does not lock the socket, which its sender then needs.
fn readiness(core: &Core) -> (bool, bool) {
    let Some(link) = core.link.as_ref().filter(|link| link.blocked) else { return (true, true) };
    let mut fds = [PollFd::new(link.fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
    match nix::poll::poll(&mut fds, PollTimeout::ZERO) {
        Ok(_) => {
            let ready = fds[0].revents().unwrap_or(PollFlags::all());
            let ended = ready.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
            (ended || ready.contains(PollFlags::POLLIN), ended || ready.contains(PollFlags::POLLOUT))
        }
        Err(_) => (true, true),
    }
}

/// How long a QP rests that must not begin a partial FPDU.
const REST: Duration = Duration::from_millis(10);

/// How long an FPDU may take to arrive while memory for partial ones is short.
const STALLED: Duration = Duration::from_secs(2);

/// Anything a socket or a host call can fail with while a connection is made.
impl From<nix::errno::Errno> for ConnectError {
    fn from(error: nix::errno::Errno) -> Self {
        ConnectError::Tcp(io::Error::from(error))
    }
}

#[cfg(test)]
mod tests;
