//! A device of the host: it moves the octets, and this wire hands requests and receives over to it
//! and takes its completions.
//!
//! | file | what |
//! |---|---|
//! | `opening` | from an address, or from a peer's request, to a connection |
//! | `posting` | requests and receives |
//! | `completing` | completions, and the connection's end |
//! | `windows` | memory windows |
//! | `bounce` | copies of what the device does not take inline |
//!
//! Nothing of it is put in line of the other wires, whose instructions are counted.
//!
//! The number of a request in its send queue is its name towards the device. All are signaled: the
//! send queue is as long as the program has it, and the device's as long as it can be.

mod bounce;
mod completing;
mod opening;
mod posting;
mod windows;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rddp_rdma::{AsyncEventKind, Completed, Completion, ConnectOptions};
use rddp_verbs_device::{self as verbs, DeviceError, Endpoint, Queues, SharedReceives};

use self::bounce::Bounce;
pub(crate) use self::opening::{Lengths, Opening, accept};
use self::windows::Binding;
use super::{Watch, WireEvent};
use crate::queues::attributes::QpAttributes;

/// A connection by a device, or one that is being made.
///
/// The device's queue pair ends when this is dropped, before anything is flushed: whatever the
/// program is told of then, the device touches no more.
#[derive(Debug)]
pub(crate) struct Device {
    endpoint: Endpoint,
    /// The device with the domain of the QP's PD.
    _domain: Arc<verbs::Device>,
    bounce: Bounce,
    /// A bind that the device has, of which nothing is behind it but what is no bind.
    binding: Option<Binding>,
    /// Receives at the front of the receive queue that the device has.
    given: usize,
    /// The device's queue that receives are taken from instead, if they are shared.
    shared: Option<SharedReceives>,
    /// Completions that have been taken and not been looked at.
    taken: Vec<Completion>,
    /// The next completion wakes whoever sleeps on the descriptor, or one has made it readable.
    is_armed: bool,
    /// Looks that found no completion.
    vain: u32,
    /// Set by a request that the device has flushed: the moment until which the connection manager
    /// may say why.
    flushed: Option<Instant>,
    /// This end has begun to close.
    is_closing: bool,
    /// The moment until which a peer that was accepted has to take up the connection.
    taken_up_by: Option<Instant>,
    /// Time between two questions whether the peer is there, and the moment of the next.
    asks: Option<(Duration, Instant)>,
}

/// Time between the first request that is flushed and the event that says how the connection ended.
/// A device that has refused a request of the peer reports no such event.
const NEWS: Duration = Duration::from_millis(500);

impl Device {
    fn new(
        domain: Arc<verbs::Device>,
        endpoint: Endpoint,
        queues: Queues,
        shared: Option<SharedReceives>,
    ) -> Self {
        Device {
            endpoint,
            _domain: domain,
            bounce: Bounce::new(queues.sends),
            binding: None,
            given: 0,
            shared,
            taken: Vec::new(),
            is_armed: false,
            vain: 0,
            flushed: None,
            is_closing: false,
            taken_up_by: None,
            asks: None,
        }
    }

    /// Has the peer be asked from time to time whether it is there: what is idle would last for
    /// ever.
    pub(super) fn begin(&mut self, watch: &mut Watch, options: &ConnectOptions, attrs: &QpAttributes) {
        // A device does not tell which messages are solicited.
        attrs.recv_cq.take_all_for_urgent();
        // Else nothing would tell of the first completion before a program looks for it.
        self.is_armed = self.endpoint.arm().is_ok();
        let now = Instant::now();
        if !self.endpoint.is_connected() {
            self.taken_up_by = now.checked_add(options.timeout);
            self.taken_up_by.into_iter().for_each(|until| watch.wake_by(until, now, attrs));
        }
        if let Some(keepalive) = options.keepalive {
            self.asks = now.checked_add(keepalive.idle).map(|next| (keepalive.idle, next));
            self.ask_in_time(watch, now, attrs);
        }
    }

    /// Asks whether the peer is there when that is due, and has the next time be noticed.
    fn ask_in_time(&mut self, watch: &mut Watch, now: Instant, attrs: &QpAttributes) {
        let Some((idle, next)) = &mut self.asks else { return };
        if *next <= now {
            *next = now + *idle;
            // What fails shows by the end of the connection.
            let _ = self.endpoint.probe();
        }
        watch.wake_by(*next, now, attrs);
    }

    #[inline(never)]
    pub(super) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.endpoint.addresses()
    }

    #[inline(never)]
    pub(super) fn depths(&self) -> (u16, u16) {
        self.endpoint.depths()
    }

    /// Begins to close: what the device has of requests is carried out first. Nothing is flushed
    /// before the connection manager has told of the end.
    #[inline(never)]
    pub(super) fn close(&mut self, watch: &mut Watch, attrs: &QpAttributes) {
        watch.end.begin(attrs);
        self.is_closing = true;
        self.endpoint.close();
        self.end_in_time(watch, attrs);
    }

    /// Has the moment be noticed at which an end waits no more for what the device has.
    fn end_in_time(&self, watch: &mut Watch, attrs: &QpAttributes) {
        if let Some(until) = self.endpoint.deadline() {
            watch.wake_by(until, Instant::now(), attrs);
        }
    }

    /// Does what is due now.
    #[inline(never)]
    pub(super) fn on_timer(
        &mut self,
        watch: &mut Watch,
        now: Instant,
        attrs: &QpAttributes,
    ) -> Result<(), WireEvent> {
        self.ask_in_time(watch, now, attrs);
        if self.taken_up_by.is_some_and(|until| until <= now) {
            tracing::info!(qp = attrs.num.0, "no connection: the peer does not take up what was accepted");
            return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        if self.flushed.is_some_and(|until| until <= now) {
            return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
        }
        self.endpoint.poll(&mut self.taken).map_err(|error| broken(&error))
    }

    /// Waits until the device has carried out its requests or the peer has ended the connection,
    /// for two seconds at most: a device ends them with the connection, and the program may end
    /// their memory next. Requests that it has not been given are not sent, as those that TCP has
    /// not begun to take.
    ///
    /// The thread that drops the queue pair waits here with its lock, and none beside it: by then,
    /// the background thread and the completion queues have forgotten the queue pair.
    #[inline(never)]
    pub(super) fn linger(mut self) {
        self.endpoint.close();
        while self.endpoint.deadline().is_some() {
            // An event that is not taken keeps the descriptor readable.
            let taken = self.endpoint.poll(&mut self.taken).and_then(|()| self.endpoint.event());
            let armed = taken.and_then(|_| self.endpoint.arm());
            let Some(until) = self.endpoint.deadline().filter(|_| armed.is_ok()) else { return };
            let left = until.saturating_duration_since(Instant::now());
            let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut [PollFd::new(self.endpoint.as_fd(), PollFlags::POLLIN)], time);
        }
    }
}

/// Gives shared receives back of whose completions the program is not told any more: the connection
/// is over.
impl Drop for Device {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        let is_receive =
            |of: &&Completion| matches!(of.completed, Completed::Receive | Completed::ReceiveImmediate);
        self.taken.iter().filter(is_receive).for_each(|completion| shared.give_back(completion.wr_id));
    }
}

/// Returns the event for a device that no longer does what it is asked for.
fn broken(error: &DeviceError) -> WireEvent {
    tracing::error!(%error, "the device fails");
    WireEvent::Lost(AsyncEventKind::DeviceFailed)
}
