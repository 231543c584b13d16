//! Queue pairs (draft-hilland-rddp-verbs chapter 6).
//!
//! | file | what |
//! |---|---|
//! | `handle` | a program's handle |
//! | `core` | all of it behind one lock, and how the state changes |
//! | `on_demand` | faults that tests ask for |
//! | `source`, `progress` | its connection is driven on: when, and how |
//!
//! Its queues are in [`queues`](crate::queues). What a connection sends and receives is the affair
//! of [`wire`](crate::wire).

mod core;
mod handle;
mod on_demand;
mod progress;
mod source;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rddp_rdma::{AsyncEventKind, ConnectOptions, RecvWr, SendWr};
use rddp_rdmap::Fault;
use rddp_verbs_device::Request;

use self::core::Core;
pub use self::handle::QueuePair;

use crate::conn::socket::DeviceSocket;
use crate::conn::startup::Startup;
use crate::counters::Counters;
use crate::device::DeviceInner;
use crate::error::{ConnectError, PostError, PostListError};
use crate::queues::attributes::QpAttributes;
use crate::queues::options::DatagramOptions;
use crate::queues::state::QpState;
use crate::trace;
use crate::wire::opening::{Opening, Terms};
use crate::wire::{Closes, Connection};

/// Tries to lock a core before a thread sleeps: some microseconds.
const TRIES: u32 = 200;

/// A queue pair, as its handle and all that drive it on share it.
#[derive(Debug)]
pub(crate) struct QpInner {
    pub(crate) attrs: QpAttributes,
    pub(crate) device: Arc<DeviceInner>,
    /// The startup that the background thread carries out, or has carried out: see
    /// [`QueuePair::begin`]. The core may be locked while this is, not the other way round.
    startup: Mutex<Option<Arc<Startup>>>,
    core: Mutex<Core>,
}

impl QpInner {
    fn with_core<T>(&self, f: impl FnOnce(&Self, &mut Core) -> T) -> T {
        f(self, &mut self.core.lock())
    }

    pub(crate) fn counters(&self) -> Counters {
        self.core.lock().tally.counters()
    }

    pub(crate) fn startup(&self) -> &Mutex<Option<Arc<Startup>>> {
        &self.startup
    }

    /// Locks the place in which an idle QP keeps its startup, for a startup that begins or for a
    /// connection that needs none. No other startup can begin while the guard is held.
    pub(crate) fn claim(&self) -> Result<MutexGuard<'_, Option<Arc<Startup>>>, ConnectError> {
        let place = self.claim_place()?;
        match self.core.lock().state {
            QpState::Idle => Ok(place),
            state => Err(ConnectError::NotIdle(state)),
        }
    }

    /// Locks the place of the startup, whatever the QP's state is, unless a startup is under way.
    fn claim_place(&self) -> Result<MutexGuard<'_, Option<Arc<Startup>>>, ConnectError> {
        let place = self.startup.lock();
        if place.as_ref().is_some_and(|startup| !startup.is_over()) {
            return Err(ConnectError::NotIdle(QpState::Idle));
        }
        Ok(place)
    }

    /// Returns whether a startup is under way.
    fn is_starting(&self) -> bool {
        self.startup.lock().as_ref().is_some_and(|startup| !startup.is_over())
    }

    /// Resets the connection, or the one that is being made: see [`QueuePair::abort`].
    fn abort(&self) {
        let startup = self.startup.lock().clone();
        if let Some(startup) = startup {
            startup.abort(&self.attrs.device.driver);
        }
        // A startup that has led to a connection meanwhile finds the QP in Error.
        self.with_core(|qp, core| {
            qp.acknowledge_held(core);
            qp.lose(core, None);
        });
    }

    /// Acknowledges what was executed, before the process ends. A thread that holds the core may
    /// hold it for ever.
    pub(crate) fn acknowledge_before_end(&self) {
        if let Some(mut core) = self.core.try_lock() {
            self.acknowledge_held(&mut core);
        }
    }

    /// Locks the core for a request of the program's.
    ///
    /// A program that looks for octets in its memory posts while the background thread, which has
    /// just placed them, still holds the core, and will not for long. So this tries for a moment
    /// before it sleeps. It does not yield: where another thread looks at memory, too, the kernel
    /// would leave the processor to that one for milliseconds.
    #[inline]
    fn lock_to_post(&self) -> MutexGuard<'_, Core> {
        self.core.try_lock().unwrap_or_else(|| self.lock_in_a_moment())
    }

    #[cold]
    fn lock_in_a_moment(&self) -> MutexGuard<'_, Core> {
        for _ in 0..TRIES {
            std::hint::spin_loop();
            if let Some(core) = self.core.try_lock() {
                return core;
            }
        }
        self.core.lock()
    }

    #[inline]
    fn post_sends(&self, list: &[SendWr]) -> Result<(), PostListError> {
        trace::posted(self.attrs.num, list);
        self.attrs.send_cq.refuse_if_overflowed().map_err(|error| PostListError { posted: 0, error })?;
        let mut core = self.lock_to_post();
        if let [wr] = list
            && self.send_short(&mut core, wr)
        {
            return Ok(());
        }
        let mut result = Ok(());
        for (posted, wr) in list.iter().enumerate() {
            if let Err(error) = core.sq.push(wr, self.attrs.local_memory()) {
                result = Err(PostListError { posted, error });
                break;
            }
        }
        self.go_on_with_posted(&mut core);
        result
    }

    fn post_batch(&self, list: &[SendWr]) -> Result<(), PostError> {
        trace::posted(self.attrs.num, list);
        self.attrs.send_cq.refuse_if_overflowed()?;
        let mut core = self.lock_to_post();
        if let [wr] = list
            && self.send_short(&mut core, wr)
        {
            return Ok(());
        }
        core.sq.push_all(list, self.attrs.local_memory())?;
        self.go_on_with_posted(&mut core);
        Ok(())
    }

    /// Sends what was posted, or flushes it.
    #[inline]
    fn go_on_with_posted(&self, core: &mut Core) {
        match core.state {
            // While TCP takes nothing, nothing is tried here: whoever makes progress next sends the
            // request along with the rest.
            QpState::ReadyToSend
                if core.connection.as_ref().is_some_and(|connection| connection.watch.is_blocked())
                    && !core.sq.is_at_local() => {}
            // The peer has gone before: see `part`.
            QpState::ReadyToSend if core.connection.is_none() && core.itself.is_none() => {
                self.lose(core, Some(AsyncEventKind::ConnectionLost));
            }
            QpState::ReadyToSend if !core.sq.acknowledges => self.pump(core),
            QpState::ReadyToSend => self.pump_together(core),
            QpState::Idle => self.limit_joining(core),
            QpState::SendsFailed => self.flush_sends(core),
            // draft-hilland-rddp-verbs §6.2: work in Closing makes it a bad close; elsewhere it is
            // flushed.
            QpState::Closing if !core.sq.is_empty() => self.lose(core, Some(AsyncEventKind::BadClose)),
            _ => self.flush(core, None),
        }
    }

    #[inline]
    fn post_recv(&self, wr: RecvWr) -> Result<(), PostError> {
        self.attrs.recv_cq.refuse_if_overflowed()?;
        let mut core = self.lock_to_post();
        core.rq.push(wr, self.attrs.local_memory())?;
        if !core.takes_receives() {
            self.flush_receives(&mut core);
        } else if core.wants_receive() {
            self.go_on_with_receive(&mut core);
        }
        Ok(())
    }

    fn disconnect(&self) {
        if self.is_starting() {
            return self.abort();
        }
        let mut core = self.core.lock();
        if core.state.is_at_work() {
            self.close(&mut core);
        }
    }

    /// Ends the connection with a Terminate: see [`QueuePair::terminate`].
    fn end_with_terminate(&self) {
        if self.is_starting() {
            return self.abort();
        }
        self.with_core(|qp, core| {
            qp.terminate(core, Fault::local_catastrophic(), None);
            qp.pump(core);
        });
    }

    /// Closes in order if nothing is outstanding, else resets: see [`QueuePair::disconnect`].
    fn close(&self, core: &mut Core) {
        let closes = match &mut core.connection {
            Some(connection) => connection.close(&self.attrs, &core.sq),
            None if core.itself.is_some() && core.sq.is_empty() => Closes::Over,
            None => Closes::Busy,
        };
        match closes {
            Closes::Busy => self.lose(core, Some(AsyncEventKind::BadClose)),
            Closes::Later => self.flush(core, None),
            Closes::Over => {
                core.set_state(QpState::Closing);
                self.closed(core);
            }
            Closes::Half => {
                core.set_state(QpState::Closing);
                self.pump(core);
            }
            Closes::Begun => {
                core.set_state(QpState::Closing);
                // In Closing any message that arrives is a bad close, so no receive is needed any
                // more.
                self.flush(core, None);
                self.pump(core);
            }
        }
    }

    /// Connects the QP: see [`QueuePair::attach`]. `connected` is called before anything is sent or
    /// received.
    pub(crate) fn attach(
        &self,
        socket: DeviceSocket,
        terms: Terms,
        options: &ConnectOptions,
        active: bool,
        connected: impl FnOnce(),
    ) -> Result<(), ConnectError> {
        socket.set_nonblocking(true)?;
        if !terms.fit(self.attrs.transport) {
            return Err(ConnectError::Transport);
        }
        let terms = terms.kept_by(&self.attrs);
        let mut core = self.core.lock();
        terms.trace(&self.attrs, active);
        let connection = Connection::new(socket, terms, options, active, &self.attrs);
        self.take_up(&mut core, connection, options.timeout, active, connected)
    }

    /// Begins to look for the way to an address, from the device of the host.
    pub(crate) fn begin_by_device(
        &self,
        addr: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<(DeviceSocket, Opening), ConnectError> {
        let lengths = self.with_core(|_, core| core.lengths());
        Opening::of_device(&self.attrs, &lengths, addr, options)
    }

    /// Accepts the request of a peer by the device of the host. Returns what is to be
    /// [attached](Self::attach).
    pub(crate) fn accept_by_device(
        &self,
        request: Request,
        options: &ConnectOptions,
    ) -> Result<(DeviceSocket, Terms), ConnectError> {
        self.with_core(|qp, core| {
            let lengths = core.lengths();
            Opening::accept_by_device(&core.context(&qp.attrs), &lengths, request, options)
        })
    }

    /// Hands receives over to a connection that is being made, if it takes them by then.
    pub(crate) fn give_receives(&self, opening: &mut Opening) {
        self.with_core(|qp, core| opening.give_receives(&core.context(&qp.attrs)));
    }

    /// Makes the QP ready to send datagrams: see [`QueuePair::bind`].
    pub(crate) fn bind(&self, socket: DeviceSocket, options: &DatagramOptions) -> Result<(), ConnectError> {
        self.attrs.device.only_software("datagrams")?;
        if !self.attrs.transport.is_of_datagrams() {
            return Err(ConnectError::Transport);
        }
        socket.set_nonblocking(true)?;
        let connection = Connection::of_datagrams(socket, *options, &self.attrs)?;
        let mut core = self.core.lock();
        trace::connected_plain(self.attrs.num, self.attrs.transport.name(), true);
        self.take_up(&mut core, connection, Duration::ZERO, true, || ())
    }

    /// Makes the QP its own peer: see [`QueuePair::connect_to_itself`].
    fn connect_to_itself(&self) -> Result<(), ConnectError> {
        if !self.attrs.acknowledges() {
            return Err(ConnectError::Transport);
        }
        let mut core = self.core.lock();
        if core.state != QpState::Idle {
            return Err(ConnectError::NotIdle(core.state));
        }
        core.connect_to_itself();
        trace::connected_plain(self.attrs.num, "itself", true);
        self.pump(&mut core);
        Ok(())
    }

    /// Has a connection be that of the QP, if it is idle.
    fn take_up(
        &self,
        core: &mut Core,
        mut connection: Connection,
        timeout: Duration,
        active: bool,
        connected: impl FnOnce(),
    ) -> Result<(), ConnectError> {
        if let Err(error) = self.admit(core, &mut connection) {
            connection.refuse(&self.attrs);
            return Err(error);
        }
        connection.start(&self.attrs, timeout);
        let tally = self.attrs.device.stat.take();
        tally.begin(self.attrs.num, self.attrs.transport, active, connection.watch.socket());
        core.connect(connection, tally);
        connected();
        self.pump(core);
        Ok(())
    }

    /// Registers a connection's socket where sockets are watched, if the QP is idle.
    fn admit(&self, core: &Core, connection: &mut Connection) -> Result<(), ConnectError> {
        if core.state != QpState::Idle || core.connection.is_some() {
            return Err(ConnectError::NotIdle(core.state));
        }
        Ok(connection.watch.watch(&self.attrs)?)
    }

    /// Ends the QP when its handle is dropped.
    fn destroy(&self) {
        let startup = self.startup.lock().take();
        if let Some(startup) = startup {
            startup.forget(&self.attrs.device.driver);
        }
        self.attrs.device.driver.leave(self.attrs.token);
        self.attrs.cqs().for_each(|cq| cq.remove_member(self.attrs.token));
        self.device.names.qps.lock().remove(&self.attrs.num);
        let mut core = self.core.lock();
        self.acknowledge_last(&mut core);
        if let Some(srq) = core.rq.srq() {
            srq.forget(self.attrs.num);
        }
        self.leave(&mut core);
        self.forget_completions(&mut core);
    }

    /// Removes what the QP has completed and the program has not polled, if it was made so.
    fn forget_completions(&self, core: &mut Core) {
        if self.attrs.forgets_completions {
            self.attrs.cqs().for_each(|cq| cq.forget(self.attrs.num));
            core.sq.unpolled.forget();
            core.rq.unpolled.forget();
        }
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        self.attrs.forget();
    }
}

#[cfg(test)]
mod tests;
