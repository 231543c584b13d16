//! An endpoint: one end of a connection, which is a QP, the program's mark of it, and its end.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rddp_mpa::StartupError;
use rddp_real as real;
use rddp_rnic::{
    AsyncEventKind, Completion, ConnectError, ConnectOptions, Connected, Fault, QpState, QueuePair, RecvWr,
    Request, SendWr, TerminateCode,
};
use rddp_stream::Errno;

use super::adapter::Adapter;
use super::begin::How;
use super::event::Event;
use super::queue::Queue;
use super::reserved::Share;
use super::shared::Shared;
use super::work::{op, post_errno};
use crate::socket::{self, KindId};

pub(super) struct Endpoint {
    pub(super) qp: QueuePair,
    pub(super) domain: c_int,
    pub(super) queue: Arc<Queue>,
    /// The shared receives that the endpoint takes from, if it has none of its own.
    pub(super) shared: Option<Arc<Shared>>,
    pub(super) options: ConnectOptions,
    /// The program answers the peer's Request.
    pub(super) asks: bool,
    /// The program's mark of the endpoint.
    pub(super) tag: u64,
    pub(super) fd: c_int,
    pub(super) max_send: u32,
    pub(super) max_recv: u32,
    /// The count of works whose events have not been taken yet.
    sends: AtomicU32,
    receives: AtomicU32,
    life: Mutex<Life>,
}

#[derive(Debug, Default)]
pub(super) struct Life {
    /// The peer's Request, for the program to answer.
    pub(super) request: Option<Request>,
    /// The result of the startup.
    begun: Option<Result<Connected, Errno>>,
    /// The private data of the peer's rejection.
    refusal: Vec<u8>,
    /// The program has asked for the end of the connection.
    asked: bool,
    /// The status with which the connection has ended; nothing can be posted any more.
    pub(super) over: Option<Errno>,
}

impl Life {
    /// Returns the result of a startup that has succeeded.
    pub(super) fn connected(&self) -> Option<&Connected> {
        self.begun.as_ref()?.as_ref().ok()
    }

    /// Returns the private data of the peer's startup frame.
    pub(super) fn said(&self) -> &[u8] {
        let asked = self.request.as_ref().map_or(&self.refusal, |request| &request.private_data);
        self.connected().map_or(asked, |connected| &connected.private_data)
    }
}

/// The end of a connection: its status, and the codes of Terminates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) status: Errno,
    pub(super) sent: Option<TerminateCode>,
    pub(super) received: Option<TerminateCode>,
}

/// Returns the endpoint of a socket.
pub(super) fn of(fd: c_int) -> Result<(&'static Adapter, Arc<Endpoint>), Errno> {
    let Some(held) = socket::hold(fd) else {
        real::is_tcp(fd)?;
        return Err(Errno::UNSUPPORTED);
    };
    if let Some(adapter) = Adapter::existing()
        && let Some(endpoint) = adapter.endpoints.read().get(&held.cookie())
    {
        return Ok((adapter, endpoint.clone()));
    }
    let settings = held.settings();
    Err(match (settings.kind == KindId::Raw, settings.attached) {
        (false, _) => Errno::UNSUPPORTED,
        (true, false) => Errno(libc::ENOTCONN),
        // The socket was attached by a process that this one was forked from.
        (true, true) => Errno::ABORTED,
    })
}

/// Ends the endpoint of the socket with this cookie, whose last number is being closed.
pub(super) fn closed(cookie: u64) {
    let Some(adapter) = Adapter::existing() else { return };
    let endpoint = adapter.endpoints.write().remove(&cookie);
    if let Some(endpoint) = endpoint {
        endpoint.close();
    }
}

/// Ends a connection: `ddp_disconnect`.
///
/// # Errors
/// ENOTCONN: there is no connection; EINVAL: `how` is not a way to end one.
pub fn disconnect(fd: c_int, how: c_int) -> Result<(), Errno> {
    let (adapter, endpoint) = of(fd)?;
    match how {
        GRACEFUL => endpoint.ask(QueuePair::disconnect),
        TERMINATE => endpoint.ask(QueuePair::terminate),
        ABORT => endpoint.give_up(adapter),
        _ => Err(Errno::INVALID),
    }
}

/// `enum ddp_disconnect`.
const GRACEFUL: c_int = 0;
const TERMINATE: c_int = 1;
const ABORT: c_int = 2;

impl Endpoint {
    pub(super) fn new(
        qp: QueuePair,
        queue: Arc<Queue>,
        shared: Option<Arc<Shared>>,
        options: ConnectOptions,
        fd: c_int,
        how: &How,
    ) -> Arc<Self> {
        Arc::new(Endpoint {
            qp,
            domain: how.domain,
            queue,
            shared,
            options,
            asks: how.asks(),
            tag: how.tag,
            fd,
            max_send: how.max_send(),
            max_recv: how.max_recv(),
            sends: AtomicU32::new(0),
            receives: AtomicU32::new(0),
            life: Mutex::default(),
        })
    }

    /// Returns the largest number of completions that the endpoint can have in its queue. There is
    /// one for each work whose event was not taken. When all works are flushed, quiet ones and the
    /// second halves of Writes with Immediate Data complete too.
    pub(super) fn share(&self) -> Share {
        let shared = self.shared.as_ref().map(|shared| (shared.number, shared.max));
        Share { own: 3 * self.max_send as usize + self.max_recv as usize, shared }
    }

    /// Returns an event of this endpoint, to be filled in.
    pub(super) fn event(&self) -> Event {
        Event { endpoint: self.tag, fd: self.fd, ..Event::default() }
    }

    /// Returns the event of a work that has completed.
    pub(super) fn completed(&self, completion: &Completion) -> Event {
        let event = Event { endpoint: self.tag, fd: self.fd, ..Event::of_work(completion) };
        let count = if event.kind == op::RECEIVE { &self.receives } else { &self.sends };
        // A quiet work completes only when it is flushed, and was not counted.
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        event
    }

    /// Posts to the send queue. Returns how many works were taken, and the error if not all were.
    pub(super) fn send(&self, list: &[SendWr]) -> (usize, Result<(), Errno>) {
        let life = self.life.lock();
        if life.over.is_some() {
            return (0, Err(Errno::BROKEN_PIPE));
        }
        let room = self.max_send.saturating_sub(self.sends.load(Ordering::Relaxed));
        let count = how_many_fit(list, room);
        let (posted, result) = match self.qp.post_sends(&list[..count]) {
            Ok(()) if count < list.len() => (count, Err(Errno::WOULD_BLOCK)),
            Ok(()) => (count, Ok(())),
            Err(refused) => (refused.posted, Err(post_errno(refused.error))),
        };
        let signaled = list[..posted].iter().filter(|wr| wr.signaled).count();
        self.sends.fetch_add(signaled as u32, Ordering::Relaxed);
        (posted, result)
    }

    /// Posts a receive.
    pub(super) fn receive(&self, wr: RecvWr) -> Result<(), Errno> {
        if self.shared.is_some() {
            return Err(Errno::INVALID);
        }
        let life = self.life.lock();
        if life.over.is_some() {
            return Err(Errno::BROKEN_PIPE);
        }
        if self.receives.load(Ordering::Relaxed) >= self.max_recv {
            return Err(Errno::WOULD_BLOCK);
        }
        self.receives.fetch_add(1, Ordering::Relaxed);
        self.qp.post_recv(wr).map_err(|error| {
            self.receives.fetch_sub(1, Ordering::Relaxed);
            post_errno(error)
        })
    }

    /// Returns the result of the startup; `None` while it goes on.
    pub(super) fn resolve(&self) -> Option<Result<(), Errno>> {
        let mut life = self.life.lock();
        if self.asks && life.request.is_none() {
            life.request = self.qp.request();
        }
        if life.begun.is_none()
            && let Some(begun) = self.qp.begun()
        {
            life.begun = Some(begun.map_err(|error| {
                let errno = startup_errno(&error);
                if let ConnectError::Rejected { private_data } = error {
                    life.refusal = private_data;
                }
                errno
            }));
        }
        life.begun.as_ref().map(|result| result.as_ref().map(drop).map_err(|errno| *errno))
    }

    /// Calls `ask` with the state of the connection, after bringing it up to date.
    pub(super) fn with_life<T>(&self, ask: impl FnOnce(&Life) -> T) -> T {
        let _ = self.resolve();
        ask(&self.life.lock())
    }

    /// Takes an event of the RNIC. Returns how the connection has ended, if this is the first event
    /// to report that.
    pub(super) fn ending(&self, kind: &AsyncEventKind) -> Option<Ending> {
        let refused = match kind {
            AsyncEventKind::NotConnected => self.resolve().and_then(Result::err),
            _ => None,
        };
        let mut life = self.life.lock();
        let status = match kind {
            AsyncEventKind::CloseComplete => Errno::NONE,
            AsyncEventKind::NotConnected => refused.unwrap_or(Errno::ABORTED),
            AsyncEventKind::TerminateReceived(_) => Errno(libc::EREMOTEIO),
            AsyncEventKind::CqOverflow => Errno(libc::ENOBUFS),
            AsyncEventKind::BadClose | AsyncEventKind::ConnectionLost | AsyncEventKind::Fault(_)
                if life.asked =>
            {
                Errno::ABORTED
            }
            AsyncEventKind::Fault(fault) if *fault == Fault::local_catastrophic() => Errno::ABORTED,
            AsyncEventKind::Fault(_) => Errno::PROTOCOL,
            AsyncEventKind::BadClose | AsyncEventKind::ConnectionLost => Errno::RESET,
            AsyncEventKind::QpFailed | AsyncEventKind::DeviceFailed => Errno(libc::EIO),
            _ => return None,
        };
        if life.over.is_some() {
            return None;
        }
        life.over = Some(status);
        drop(life);
        if *kind == AsyncEventKind::NotConnected {
            self.qp.abort();
        }
        // These calls wait for the QP's lock; when they have it, all outstanding works have been
        // flushed.
        let sent = self.qp.terminate_sent().map(|terminate| terminate.code);
        let received = self.qp.terminate_received().map(|terminate| terminate.code);
        Some(Ending { status, sent, received })
    }

    /// Asks the QP to end the connection, as the program wants.
    fn ask(&self, end: impl FnOnce(&QueuePair)) -> Result<(), Errno> {
        if self.qp.state() != QpState::ReadyToSend {
            return Err(Errno(libc::ENOTCONN));
        }
        self.life.lock().asked = true;
        end(&self.qp);
        Ok(())
    }

    /// Ends the connection at once, whatever its state.
    fn give_up(self: &Arc<Self>, adapter: &Adapter) -> Result<(), Errno> {
        let status = Errno(libc::ECANCELED);
        if self.life.lock().over.replace(status).is_some() {
            return Err(Errno(libc::ENOTCONN));
        }
        self.qp.abort();
        self.queue.ended_here(adapter, self.clone(), Ending { status, sent: None, received: None });
        Ok(())
    }

    /// Ends the connection after the program has closed the event queue: no event reports the end.
    pub(super) fn abandon(self: &Arc<Self>) {
        self.close();
        self.life.lock().over.get_or_insert(Errno(libc::ECANCELED));
    }

    /// Ends the connection after the program has closed the socket or the queue: all works are
    /// flushed when this returns.
    pub(super) fn close(self: &Arc<Self>) {
        let connected = self.resolve().is_some_and(|begun| begun.is_ok());
        match self.qp.state() {
            QpState::Idle if !connected => {
                if let Some(adapter) = Adapter::existing() {
                    let _ = self.give_up(adapter);
                }
            }
            // The end of the connection has been reported already, or will be.
            _ => drop(self.ask(QueuePair::disconnect)),
        }
    }
}

/// Returns how many of these works can be posted when `room` of them may make an event.
fn how_many_fit(list: &[SendWr], room: u32) -> usize {
    let mut left = room;
    let fit = list.iter().take_while(|wr| {
        let fits = !wr.signaled || left > 0;
        left = left.saturating_sub(wr.signaled.into());
        fits
    });
    fit.count()
}

/// Returns the errno for a startup that has failed.
pub(super) fn startup_errno(error: &ConnectError) -> Errno {
    match error {
        ConnectError::Tcp(error) => error.raw_os_error().map_or(Errno::PROTOCOL, Errno),
        ConnectError::TimedOut(_) => Errno::TIMED_OUT,
        ConnectError::Closed | ConnectError::Startup(StartupError::Closed { .. }) => Errno::RESET,
        ConnectError::Rejected { .. } => Errno::REFUSED,
        ConnectError::Startup(StartupError::BadKey) => Errno(libc::EPROTONOSUPPORT),
        ConnectError::Misuse(_) => Errno::INVALID,
        ConnectError::NotIdle(_) => Errno::ABORTED,
        ConnectError::GivenUp | ConnectError::Declined => Errno(libc::ECANCELED),
        _ => Errno::PROTOCOL,
    }
}
