//! The attributes of a queue pair: all but the rights of its peer are fixed when it is made.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use rddp_mpa::Negotiated;
use rddp_rdma::{AsyncEvent, AsyncEventKind, ConnectOptions, Element};

use crate::adapter::Adapter;
use crate::cq::CqInner;
use crate::event::{EventQueue, EventSink};
use crate::kernel::Placement;
use crate::mem::{Access, PdId, QpNum};
use crate::queues::options::{NoReceive, RecordOptions, Transport};
use crate::trace;

/// The attributes of one queue pair: its number, its protection domain, its completion queues,
/// and what its peer may do.
#[derive(Debug)]
pub(crate) struct QpAttributes {
    pub(crate) num: QpNum,
    /// The name of this QP towards the background thread and the completion queues.
    pub(crate) token: u64,
    pub(crate) pd: PdId,
    /// The access that the QP's own switches give its peer, where memory gives it, too.
    pub(crate) inbound: Inbound,
    pub(crate) no_receive: NoReceive,
    pub(crate) placement: Placement,
    pub(crate) transport: Transport,
    /// Requests are acknowledged, which changes only while the QP is idle.
    pub(crate) acknowledges: AtomicBool,
    pub(crate) records: RecordOptions,
    /// Completions leave their queues with the QP.
    pub(crate) forgets_completions: bool,
    /// The `Q_Key` that unreliable datagrams for this QP have to carry.
    pub(crate) qkey: AtomicU32,
    /// The most Reads and atomics at a time where requests are acknowledged: 0 is what was agreed
    /// on with the peer.
    pub(crate) max_requests: AtomicU32,
    pub(crate) events: EventQueue,
    pub(crate) event_sink: Option<Arc<dyn EventSink>>,
    pub(crate) send_cq: Arc<CqInner>,
    pub(crate) recv_cq: Arc<CqInner>,
    pub(crate) device: Arc<Adapter>,
}

/// Rights of a peer, which change only while the QP has none.
#[derive(Debug)]
pub(crate) struct Inbound(AtomicU8);

impl Inbound {
    pub(crate) fn new(rights: Access) -> Self {
        let inbound = Inbound(AtomicU8::default());
        inbound.set(rights);
        inbound
    }

    #[inline]
    pub(crate) fn get(&self) -> Access {
        Access::from_bits_retain(self.0.load(Ordering::Relaxed))
    }

    /// Sets the rights, of which only those of a peer count. The caller holds the place of the QP's
    /// startup: whoever serves a peer has got the QP's locks since.
    pub(crate) fn set(&self, rights: Access) {
        self.0.store(rights.intersection(Access::REMOTE).bits(), Ordering::Relaxed);
    }
}

impl QpAttributes {
    /// Reports an event to the program, and wakes the threads that wait for events.
    pub(crate) fn report(&self, kind: AsyncEventKind) {
        self.report_about(Element::Qp(self.num), kind);
    }

    /// Tells the program what happened to something that the QP uses. Events are rare, and are kept
    /// out of the hot paths' code.
    #[cold]
    pub(crate) fn report_about(&self, element: Element, kind: AsyncEventKind) {
        let event = AsyncEvent::new(self.num, element, kind);
        tracing::debug!(?event, "asynchronous event");
        self.events.take(event.clone());
        self.tell_sinks(|sink| sink.take(event.clone()));
        // Behind the sinks: who is woken may look for what one of them has kept.
        self.cqs().for_each(|cq| cq.bell.ring());
    }

    /// Calls the sinks that take the events of the QP: the device's, and the QP's own. A panic in
    /// the program's code costs the QP nothing.
    fn tell_sinks(&self, tell: impl Fn(&dyn EventSink)) {
        for sink in self.device.event_sink.iter().chain(&self.event_sink) {
            if catch_unwind(AssertUnwindSafe(|| tell(&**sink))).is_err() {
                tracing::error!(qp = self.num.0, "a panic in the program's sink of events");
            }
        }
    }

    /// Removes what the program has not taken of the QP's events, and tells the sinks that it is
    /// gone.
    pub(crate) fn forget(&self) {
        self.events.forget(self.num);
        self.tell_sinks(|sink| sink.forget(self.num));
    }

    /// Returns the completion queues of the QP, each once.
    pub(crate) fn cqs(&self) -> impl Iterator<Item = &Arc<CqInner>> {
        let other = (!Arc::ptr_eq(&self.send_cq, &self.recv_cq)).then_some(&self.recv_cq);
        std::iter::once(&self.send_cq).chain(other)
    }

    /// Tells of completion queues that are smaller than what may complete into them of this QP:
    /// so many requests, and receives of its own.
    pub(crate) fn say_what_may_overflow(&self, sends: usize, receives: usize) {
        let of = |queue: &Arc<CqInner>, cq, requests| if Arc::ptr_eq(queue, cq) { requests } else { 0 };
        for cq in self.cqs() {
            let requests = of(&self.send_cq, cq, sends).saturating_add(of(&self.recv_cq, cq, receives));
            let capacity = cq.capacity();
            if requests > capacity {
                trace::may_overflow(self.num, cq.num, requests, capacity);
            }
        }
    }

    /// Returns whether requests are acknowledged on the next connection, or the present one.
    pub(crate) fn acknowledges(&self) -> bool {
        self.acknowledges.load(Ordering::Relaxed)
    }

    /// Returns whether a Send without a receive waits for one, whatever comes behind it.
    pub(crate) fn waits_for_receives(&self) -> bool {
        self.waits() || self.acknowledges()
    }

    /// Returns whether a Send without a receive waits for one, and nothing is read behind it.
    pub(crate) fn waits(&self) -> bool {
        self.no_receive == NoReceive::Wait
    }

    /// Returns what was agreed with the peer, as the QP keeps to it: where Sends wait, Responses
    /// would wait behind them, so there are no Reads.
    pub(crate) fn without_reads(&self, negotiated: Negotiated) -> Negotiated {
        if self.waits() { Negotiated { ird: 0, ord: 0, ..negotiated } } else { negotiated }
    }

    /// Returns the options for a startup, which ask for no Reads if Sends wait for receives.
    pub(crate) fn options(&self, options: &ConnectOptions) -> ConnectOptions {
        if !self.waits() {
            return options.clone();
        }
        ConnectOptions { ird: 0, ord: 0, rtr: options.rtr.unanswered(), ..options.clone() }
    }
}
