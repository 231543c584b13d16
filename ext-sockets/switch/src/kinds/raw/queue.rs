//! Event queues: completions of works, and changes of connections, in one order and behind one
//! descriptor.
//!
//! The descriptor is that of an epoll set, which the program polls and closes like any other. It is
//! readable while there are events: the completion queue is armed each time after events are taken.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::{Mutex, RwLock};
use rddp_real::deadline;
use rddp_rnic::{
    AsyncEvent, AsyncEventKind, Completion, CompletionChannel, CompletionQueue, EventQueue, QpNum,
};
use rddp_stream::Errno;

use super::adapter::{Adapter, errno_of};
use super::endpoint::{Ending, Endpoint};
use super::event::{CLOSED, CONNECTED, Event, LIMIT, REQUESTED};
use super::reserved::{CAPACITY, Reserved};
use crate::{process, socket, table};

/// The entry of a queue in the table of descriptors: no socket has this index.
const IN_TABLE: NonZeroU32 = NonZeroU32::MAX;

/// The flag for a queue whose descriptor is never waited on.
const UNWATCHED: c_int = 1;

pub(super) struct Queue {
    pub(super) cq: CompletionQueue,
    /// The channel that makes the descriptor readable; `None` for a queue that is never waited on.
    channel: Option<CompletionChannel>,
    pub(super) events: EventQueue,
    /// An eventfd that is readable while `left` is not 0.
    more: EventFd,
    /// The count of events that were put in order and not taken yet.
    left: AtomicUsize,
    order: Mutex<Order>,
    endpoints: RwLock<HashMap<QpNum, Arc<Endpoint>>>,
    reserved: Mutex<Reserved>,
}

#[derive(Default)]
struct Order {
    ready: VecDeque<Event>,
    batch: Vec<Completion>,
    /// `more` is readable.
    told: bool,
}

/// Opens an event queue and returns its descriptor: `ddp_queue`.
///
/// # Errors
/// EINVAL: unknown flags; or the error of making the descriptors.
pub fn open(flags: c_int) -> Result<c_int, Errno> {
    if flags & !UNWATCHED != 0 {
        return Err(Errno::INVALID);
    }
    let adapter = Adapter::get()?;
    if !process::owns_table() {
        return Err(Errno::ABORTED);
    }
    let (queue, epoll) = Queue::new(adapter, flags)?;
    let fd = epoll.as_raw_fd();
    socket::forget(fd);
    table::set(fd, IN_TABLE).map_err(|_| Errno(libc::EMFILE))?;
    let before = adapter.queues.write().insert(epoll.into_raw_fd(), Arc::new(queue));
    if let Some(before) = before {
        before.close();
    }
    Ok(fd)
}

/// Returns the queue behind a descriptor.
pub(super) fn of(adapter: &Adapter, fd: c_int) -> Result<Arc<Queue>, Errno> {
    let found = adapter.queues.read().get(&fd).filter(|_| is_queue(fd)).cloned();
    found.ok_or_else(|| if rddp_real::is_open(fd) { Errno::INVALID } else { Errno::NO_DESCRIPTOR })
}

fn is_queue(fd: c_int) -> bool {
    table::entry(fd) == Some(IN_TABLE)
}

/// Ends the endpoints of `fd`, which is about to be closed, if it is a queue.
pub(in crate::kinds) fn closing(fd: c_int) {
    if !is_queue(fd) || !process::owns_table() {
        return;
    }
    table::clear(fd);
    let queue = Adapter::existing().and_then(|adapter| adapter.queues.write().remove(&fd));
    if let Some(queue) = queue {
        queue.close();
    }
}

/// Takes events, after waiting at most `timeout` milliseconds (negative: no limit), and returns
/// their number: `ddp_events`.
///
/// # Errors
/// EBADF, EINVAL: `fd` is no queue; EINTR: a signal came first.
pub fn events(fd: c_int, out: &mut [MaybeUninit<Event>], timeout: c_int) -> Result<usize, Errno> {
    let adapter = Adapter::existing().ok_or(Errno::NO_DESCRIPTOR)?;
    let queue = of(adapter, fd)?;
    if out.is_empty() {
        return Err(Errno::INVALID);
    }
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let deadline = deadline::after(timeout);
    loop {
        let count = queue.take(adapter, out);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if count > 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(count);
        }
        queue.wait(left)?;
    }
}

impl Queue {
    fn new(adapter: &Adapter, flags: c_int) -> Result<(Self, std::os::fd::OwnedFd), Errno> {
        let rnic = &adapter.rnic;
        let (channel, cq) = if flags & UNWATCHED == 0 {
            let channel = rnic.create_channel().map_err(|error| errno_of(&error))?;
            let cq = rnic.create_cq_on(&channel, CAPACITY).map_err(|error| errno_of(&error))?;
            (Some(channel), cq)
        } else {
            (None, rnic.create_cq(CAPACITY).map_err(|error| errno_of(&error))?)
        };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let queue = Queue {
            cq,
            channel,
            // No event says that the endpoint may send, as works may be posted before. Each
            // endpoint has only a few events of the other kinds.
            events: EventQueue::of(|kind| *kind != AsyncEventKind::Established)
                .map_err(|error| errno_of(&error))?,
            more: EventFd::from_value_and_flags(0, flags).map_err(|errno| Errno(errno as c_int))?,
            left: AtomicUsize::new(0),
            order: Mutex::default(),
            endpoints: RwLock::default(),
            reserved: Mutex::default(),
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|errno| Errno(errno as c_int))?;
        let channel = queue.channel.as_ref().map(CompletionChannel::watch);
        for part in [Some(queue.events.as_fd()), Some(queue.more.as_fd()), channel].into_iter().flatten() {
            epoll
                .add(part, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(|errno| Errno(errno as c_int))?;
        }
        queue.arm();
        Ok((queue, epoll.0))
    }

    /// Makes the descriptor readable at the next completion, or at once if there is one.
    fn arm(&self) {
        if self.channel.is_some() {
            self.cq.arm(false);
        }
    }

    /// Adds an endpoint to the queue.
    pub(super) fn admit(&self, endpoint: &Arc<Endpoint>) -> Result<(), Errno> {
        if !self.reserved.lock().take(endpoint.share()) {
            return Err(Errno(libc::ENOBUFS));
        }
        if let Err(errno) = endpoint.shared.as_ref().map_or(Ok(()), |shared| shared.enter()) {
            self.reserved.lock().give(endpoint.share());
            return Err(errno);
        }
        self.endpoints.write().insert(endpoint.qp.num(), endpoint.clone());
        Ok(())
    }

    /// Gives back the room of an endpoint that has left the queue, when none of its completions is
    /// left.
    fn dismiss(&self, endpoint: &Endpoint) {
        self.reserved.lock().give(endpoint.share());
        if let Some(shared) = &endpoint.shared {
            shared.release();
        }
    }

    /// Ends all endpoints, as the program will take no more events.
    fn close(&self) {
        let endpoints: Vec<_> = self.endpoints.write().drain().map(|(_, endpoint)| endpoint).collect();
        endpoints.iter().for_each(Endpoint::abandon);
        // Shared receives that were taken are outstanding until their completions are polled.
        self.cq.poll(CAPACITY, &mut Vec::new());
        for endpoint in endpoints {
            self.dismiss(&endpoint);
            if let Some(adapter) = Adapter::existing() {
                adapter.linger(endpoint);
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<(), Errno> {
        let other = || !self.events.is_empty() || self.left.load(Ordering::SeqCst) > 0;
        match self.cq.wait_or(timeout, other) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Errno::INTERRUPTED),
            Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    fn take(&self, adapter: &Adapter, out: &mut [MaybeUninit<Event>]) -> usize {
        let mut order = self.order.lock();
        let room = out.len().saturating_sub(order.ready.len());
        self.gather(adapter, &mut order, room);
        let count = out.len().min(order.ready.len());
        for (place, event) in out.iter_mut().zip(order.ready.drain(..count)) {
            place.write(event);
        }
        self.tell(&mut order);
        drop(order);
        self.arm();
        count
    }

    /// Puts the events in order: a connection's beginning before the messages on it, its end behind
    /// all its works.
    fn gather(&self, adapter: &Adapter, order: &mut Order, room: usize) {
        if let Some(channel) = &self.channel {
            while channel.next_event().is_some() {}
        }
        let mut batch = std::mem::take(&mut order.batch);
        self.cq.poll(room, &mut batch);
        // Read after the completions: the beginning of each one's connection is reported by now.
        // After an end more works may have completed, which `finish` polls.
        let ended = self.connections(order);
        self.completions(order, &mut batch);
        self.finish(adapter, order, batch, ended);
    }

    /// Queues the events of endpoints that have ended: first those of their flushed works, then the
    /// end.
    fn finish(
        &self,
        adapter: &Adapter,
        order: &mut Order,
        mut batch: Vec<Completion>,
        ended: Vec<(Arc<Endpoint>, Ending)>,
    ) {
        if !ended.is_empty() {
            self.cq.poll(CAPACITY, &mut batch);
            self.completions(order, &mut batch);
        }
        order.batch = batch;
        ended.into_iter().for_each(|(endpoint, ending)| self.end(adapter, order, endpoint, ending));
    }

    fn connections(&self, order: &mut Order) -> Vec<(Arc<Endpoint>, Ending)> {
        let mut ended = Vec::new();
        while let Some(AsyncEvent { qp, kind, .. }) = self.events.next_event() {
            let Some(endpoint) = self.endpoints.read().get(&qp).cloned() else { continue };
            if let Some(ending) = endpoint.ending(&kind) {
                ended.push((endpoint, ending));
            } else if let Some(event) = news(&endpoint, &kind) {
                order.ready.push_back(event);
            }
        }
        ended
    }

    fn completions(&self, order: &mut Order, batch: &mut Vec<Completion>) {
        let endpoints = self.endpoints.read();
        for completion in batch.drain(..) {
            if let Some(endpoint) = endpoints.get(&completion.qp) {
                order.ready.push_back(endpoint.completed(&completion));
            }
        }
    }

    fn end(&self, adapter: &Adapter, order: &mut Order, endpoint: Arc<Endpoint>, ending: Ending) {
        if self.endpoints.write().remove(&endpoint.qp.num()).is_none() {
            // The queue is being closed, and has ended the endpoint already.
            return;
        }
        let Ending { status, sent, received } = ending;
        let event = Event { kind: CLOSED, status: status.0, ..endpoint.event() };
        order.ready.push_back(event.with_terminate(sent, received));
        self.dismiss(&endpoint);
        adapter.linger(endpoint);
    }

    /// Queues the end of a connection that this side has ended, which the RNIC does not report.
    pub(super) fn ended_here(&self, adapter: &Adapter, endpoint: Arc<Endpoint>, ending: Ending) {
        let mut order = self.order.lock();
        if !self.endpoints.read().contains_key(&endpoint.qp.num()) {
            return;
        }
        let mut ended = self.connections(&mut order);
        ended.push((endpoint, ending));
        let batch = std::mem::take(&mut order.batch);
        self.finish(adapter, &mut order, batch, ended);
        self.tell(&mut order);
        drop(order);
        self.cq.wake();
    }

    /// Makes the descriptor readable while events are left.
    fn tell(&self, order: &mut Order) {
        self.left.store(order.ready.len(), Ordering::SeqCst);
        let more = !order.ready.is_empty();
        if more != order.told {
            order.told = more;
            let _ = if more { self.more.write(1).map(drop) } else { self.more.read().map(drop) };
        }
    }
}

/// Returns the event for a change of an endpoint that goes on.
fn news(endpoint: &Endpoint, kind: &AsyncEventKind) -> Option<Event> {
    let event = endpoint.event();
    match kind {
        AsyncEventKind::Requested => Some(Event { kind: REQUESTED, ..event }),
        AsyncEventKind::Connected => Some(Event { kind: CONNECTED, ..event }),
        AsyncEventKind::SrqLimit => {
            let number = endpoint.shared.as_ref()?.number;
            Some(Event { kind: LIMIT, tag: number as u64, ..event })
        }
        _ => None,
    }
}
