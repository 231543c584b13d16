//! Queues and sinks of asynchronous events (draft-hilland-rddp-verbs §8.3.3).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use parking_lot::Mutex;
use rddp_rdma::{AsyncEvent, AsyncEventKind, Element, QpNum};

use crate::adapter::{Adapter, Running};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::home::Home;
use crate::io::counter::Counter;
use crate::io::ready_set::epoll_timeout;

/// A receiver of asynchronous events as they happen: those of one QP
/// ([`QpConfig::event_sink`](crate::QpConfig::event_sink)), or of all QPs of a device
/// ([`RnicConfig::event_sink`](crate::RnicConfig::event_sink)).
///
/// The numbers in an event are the device's own: QPs of two devices may have the same, unless one
/// was opened beside the other ([`Rnic::open_beside`](crate::Rnic::open_beside)). So each needs a
/// sink of its own, unless the sink can do without the numbers.
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use rddp_rnic::{AsyncEvent, Rnic, RnicConfig, EventSink};
///
/// #[derive(Debug)]
/// struct Forward(mpsc::Sender<AsyncEvent>);
///
/// impl EventSink for Forward {
///     fn take(&self, event: AsyncEvent) {
///         let _ = self.0.send(event); // for a thread that may call the device
///     }
/// }
///
/// let (sender, _events) = mpsc::channel();
/// let event_sink: Option<Arc<dyn EventSink>> = Some(Arc::new(Forward(sender)));
/// let rnic = Rnic::with_config(&RnicConfig { event_sink, ..Default::default() })?;
/// # Ok::<(), rddp_rnic::Error>(())
/// ```
pub trait EventSink: Debug + Send + Sync {
    /// Takes one event. The calling thread is the one that noticed it, and holds locks of the
    /// device and of the QP: this must return soon, or it delays the QP. It must not call the
    /// device, and above all not a QP (no [`state`](crate::QueuePair::state), no drop of a
    /// [`QueuePair`](crate::QueuePair)), which would wait for ever: hand the event to another
    /// thread. The event is in the queue already. A panic is logged.
    fn take(&self, event: AsyncEvent);

    /// Takes note that a QP is gone and reports nothing more. Another QP may have its number later.
    fn forget(&self, qp: QpNum) {
        let _ = qp;
    }
}

/// A queue of asynchronous events: the device's own, or one that a [`QpConfig`](crate::QpConfig)
/// names. Its descriptor is readable while there are events. Cloning gives another handle to the
/// same queue. It serves QPs of one device, and of those beside it
/// ([`Rnic::open_beside`](crate::Rnic::open_beside)), as long as any of them lives.
///
/// A program that takes events slowly loses none that it may wait for. Of several events of one
/// kind about one object only the latest is kept, and the events of a QP are removed when it is
/// dropped, except the limit of a shared receive queue, which others may use. So there are never
/// more than a few for each object.
///
/// ```
/// use std::time::Duration;
/// use rddp_rnic::{ConnectOptions, EventQueue, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq, events) = (rnic.alloc_pd(), rnic.create_cq(16)?, EventQueue::new()?);
/// let qp = pd.create_qp(&QpConfig { events: Some(events.clone()), ..QpConfig::new(&cq) })?;
/// let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// qp.begin_to(nobody, &ConnectOptions::default())?;
/// let event = events.wait(Some(Duration::from_secs(5)))?.ok_or("no event")?;
/// assert!(event.qp == qp.num() && event.kind.is_end());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventQueue(Home<Arc<Events>>);

#[derive(Debug)]
struct Events {
    pending: Mutex<Pending>,
    /// The kinds of events that the queue takes.
    wanted: fn(&AsyncEventKind) -> bool,
    /// The number of events, outside the lock: whether there are any is asked without it.
    len: AtomicUsize,
    notify: Counter,
    /// The background thread of the device whose QPs report to the queue, the first that does, and
    /// of those beside it.
    device: Mutex<Weak<Running>>,
}

/// The events that the program has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    /// Events by their places, which count up in the order in which the events happened.
    events: BTreeMap<u64, AsyncEvent>,
    /// The places in `events` of each owner's events: see [`owner`].
    places: HashMap<Element, Vec<u64>>,
    /// The place of the next event.
    next: u64,
}

impl Pending {
    /// Adds an event, in place of one like it. Returns whether there is one more now.
    fn push(&mut self, event: AsyncEvent) -> bool {
        let places = self.places.entry(owner(&event)).or_default();
        let before = places.len();
        places.retain(|place| {
            let differs = self.events.get(place).is_some_and(|other| !is_like(other, &event));
            if !differs {
                self.events.remove(place);
            }
            differs
        });
        places.push(self.next);
        self.events.insert(self.next, event);
        self.next += 1;
        places.len() > before
    }

    fn pop(&mut self) -> Option<AsyncEvent> {
        let (place, event) = self.events.pop_first()?;
        if let Some(places) = self.places.get_mut(&owner(&event)) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.places.remove(&owner(&event));
            }
        }
        Some(event)
    }

    /// Drops the events of a QP. Returns their number.
    fn forget(&mut self, qp: QpNum) -> usize {
        let places = self.places.remove(&Element::Qp(qp)).unwrap_or_default();
        places.iter().filter(|place| self.events.remove(place).is_some()).count()
    }
}

/// Returns the object that an event goes with. The limit of a shared receive queue is news for the
/// QPs that are left, whichever of them has reported it. An overflow of a completion queue is the
/// end of each of its QPs.
fn owner(event: &AsyncEvent) -> Element {
    match event.element {
        Element::Srq(_) => event.element,
        _ => Element::Qp(event.qp),
    }
}

/// Returns whether both events, of one owner, say the same kind of thing about the same object.
fn is_like(one: &AsyncEvent, other: &AsyncEvent) -> bool {
    one.element == other.element && std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind)
}

impl EventQueue {
    /// Makes a queue for events of all kinds.
    pub fn new() -> Result<Self, Error> {
        Self::of(|_| true)
    }

    /// Makes a queue for the kinds of events that are `wanted`. Others are dropped.
    pub fn of(wanted: fn(&AsyncEventKind) -> bool) -> Result<Self, Error> {
        let notify = Counter::new().map_err(Error::host("making the event descriptor"))?;
        let (pending, len, device) = Default::default();
        Ok(EventQueue(Home::new(Arc::new(Events { pending, wanted, len, notify, device }))))
    }

    /// Takes the queue for the QPs of a device, and of those beside it. Numbers are these devices'
    /// own, so events of another would be taken for those of one of them.
    pub(crate) fn adopt(&self, device: &Arc<Adapter>) -> Result<(), Error> {
        let mut user = self.0.here()?.device.lock();
        if user.strong_count() == 0 {
            *user = Arc::downgrade(&device.running);
        }
        if std::ptr::eq(user.as_ptr(), Arc::as_ptr(&device.running)) {
            return Ok(());
        }
        Err(Error::Foreign("an event queue"))
    }

    /// Takes the oldest event, if there is one. Never sleeps.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        let queue = self.0.here().ok()?;
        let mut pending = queue.pending.lock();
        let event = pending.pop()?;
        queue.len.store(pending.events.len(), Ordering::SeqCst);
        queue.notify.take();
        Some(event)
    }

    /// Returns an iterator that takes events as [`next_event`](Self::next_event) does, until there
    /// is none.
    pub fn events(&self) -> impl Iterator<Item = AsyncEvent> + '_ {
        std::iter::from_fn(|| self.next_event())
    }

    /// Returns whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.0.anywhere().len.load(Ordering::SeqCst) == 0
    }

    /// Takes the oldest event. Sleeps until there is one, for at most `timeout` (`None`: no limit).
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<AsyncEvent>> {
        let deadline = Deadline::after_any(timeout);
        loop {
            if let Some(event) = self.next_event() {
                return Ok(Some(event));
            }
            let left = deadline.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let mut fds = [PollFd::new(self.0.here()?.notify.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, epoll_timeout(left)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl EventSink for EventQueue {
    fn take(&self, event: AsyncEvent) {
        let Ok(queue) = self.0.here() else { return };
        if !(queue.wanted)(&event.kind) {
            return;
        }
        let mut pending = queue.pending.lock();
        if pending.push(event) {
            queue.notify.give();
        }
        queue.len.store(pending.events.len(), Ordering::SeqCst);
    }

    fn forget(&self, qp: QpNum) {
        let Ok(queue) = self.0.here() else { return };
        let mut pending = queue.pending.lock();
        for _ in 0..pending.forget(qp) {
            queue.notify.take();
        }
        queue.len.store(pending.events.len(), Ordering::SeqCst);
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.anywhere().notify.as_fd()
    }
}

impl AsRawFd for EventQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use rddp_rdma::{CqNum, SrqNum, TerminateCode};

    use super::*;

    fn event(qp: u32, kind: AsyncEventKind) -> AsyncEvent {
        AsyncEvent::new(QpNum(qp), Element::Qp(QpNum(qp)), kind)
    }

    fn is_readable(queue: &EventQueue) -> bool {
        nix::poll::poll(&mut [PollFd::new(queue.as_fd(), PollFlags::POLLIN)], 0_u8) == Ok(1)
    }

    #[test]
    fn a_slow_program_loses_no_event_of_any_qp() {
        let queue = EventQueue::new().unwrap();
        for turn in 0..3 {
            (0..5000).for_each(|qp| queue.take(event(qp, AsyncEventKind::Connected)));
            (0..5000).for_each(|qp| queue.take(event(qp, AsyncEventKind::BadClose)));
            assert_eq!(queue.0.anywhere().len.load(Ordering::SeqCst), 10_000, "after {turn} before");
        }
        for kind in [AsyncEventKind::Connected, AsyncEventKind::BadClose] {
            (0..5000).for_each(|qp| assert_eq!(queue.next_event(), Some(event(qp, kind.clone()))));
        }
        assert!(queue.next_event().is_none() && !is_readable(&queue));
    }

    #[test]
    fn of_one_kind_about_one_object_the_latest_is_kept() {
        let queue = EventQueue::new().unwrap();
        let overflow =
            |number| AsyncEvent::new(QpNum(1), Element::Cq(CqNum(number)), AsyncEventKind::CqOverflow);
        let received = |code| event(1, AsyncEventKind::TerminateReceived(code));
        queue.take(received(TerminateCode::BOUNDS));
        [overflow(1), overflow(2), overflow(1)].into_iter().for_each(|event| queue.take(event));
        queue.take(received(TerminateCode::CANNOT_INVALIDATE_PROTECTION));
        let taken: Vec<_> = queue.events().collect();
        let last = received(TerminateCode::CANNOT_INVALIDATE_PROTECTION);
        assert_eq!(taken, [overflow(2), overflow(1), last]);
        assert!(!is_readable(&queue));
    }

    #[test]
    fn events_of_a_qp_go_with_it() {
        let queue = EventQueue::new().unwrap();
        for kind in [AsyncEventKind::Connected, AsyncEventKind::BadClose] {
            (1..=2).for_each(|qp| queue.take(event(qp, kind.clone())));
        }
        queue.forget(QpNum(1));
        assert_eq!(queue.next_event(), Some(event(2, AsyncEventKind::Connected)));
        queue.forget(QpNum(2));
        assert!(queue.is_empty() && !is_readable(&queue));
    }

    /// draft-hilland-rddp-verbs §6.3: the limit is that of the SRQ, which other QPs still use.
    #[test]
    fn events_of_a_shared_queue_stay_when_their_reporter_goes() {
        let queue = EventQueue::new().unwrap();
        let limit = |qp| AsyncEvent::new(QpNum(qp), Element::Srq(SrqNum(1)), AsyncEventKind::SrqLimit);
        (1..=2).for_each(|qp| queue.take(limit(qp)));
        (1..=2).for_each(|qp| queue.forget(QpNum(qp)));
        assert_eq!(queue.next_event(), Some(limit(2)));
        assert!(queue.is_empty() && !is_readable(&queue));
    }

    #[test]
    fn an_event_that_is_not_wanted_makes_nothing_readable() {
        let queue = EventQueue::of(|kind| *kind == AsyncEventKind::Connected).unwrap();
        queue.take(event(1, AsyncEventKind::Established));
        assert!(queue.is_empty() && queue.wait(Some(Duration::ZERO)).unwrap().is_none());
        queue.take(event(2, AsyncEventKind::Connected));
        assert_eq!(queue.wait(Some(Duration::ZERO)).unwrap().unwrap().qp, QpNum(2));
    }
}
