//! Sockets, from their making to their end.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::{Mutex, MutexGuard};
use rddp_rnic::{AsyncEvent, AsyncEventKind, ConnectOptions, ConnectRequest, Listener};
use socket2::{Domain, Protocol, SockAddr, Socket as Tcp, Type};

use super::super::cancel::{cancellable, end_if_cancelled};
use super::super::device::devices;
use super::super::process::process;
use super::super::signals;
use super::connection::{Connection, Sizes};
use super::options::Options;
use crate::engine::{Engine, Host, Watcher};
use crate::errors::{Outcome, of_connect, of_device, of_io};

/// The sockets of a process by the numbers that its program knows.
#[derive(Debug, Default)]
pub(in crate::c) struct Sockets(Mutex<HashMap<RawFd, Arc<Socket>>>);

/// Returns a socket: `EBADF` if there is none of that number.
pub(super) fn socket(number: RawFd) -> Outcome<Arc<Socket>> {
    find(number).ok_or(Errno::EBADF)
}

pub(super) fn find(number: RawFd) -> Option<Arc<Socket>> {
    process().sockets.0.lock().get(&number).cloned()
}

pub(super) fn remove(number: RawFd) -> Outcome<Arc<Socket>> {
    process().sockets.0.lock().remove(&number).ok_or(Errno::EBADF)
}

/// Time that a peer has to take what was sent, once its socket is closed.
const CLOSE: Duration = Duration::from_secs(10);

/// Time after which a thread that sleeps looks whether it has been cancelled.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// A socket. Its number is that of a descriptor which has no other use, so that no file has it.
#[derive(Debug)]
pub(super) struct Socket {
    number: EventFd,
    state: Mutex<State>,
    /// Counts what has happened, so that threads which sleep elsewhere see it.
    changes: AtomicU64,
    sleepers: Mutex<Vec<Arc<EventFd>>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) options: Options,
    pub(super) sizes: Sizes,
    pub(super) domain: Domain,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// The reason why connecting has failed, until the program is told.
    pub(super) error: Option<Errno>,
}

#[derive(Debug)]
pub(super) enum Phase {
    Idle(Option<Tcp>),
    Listening { listener: Listener, key: u64, requests: VecDeque<ConnectRequest> },
    Connecting(Box<Connection>),
    Connected(Box<Connection>),
    Failed,
}

impl State {
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.phase {
            Phase::Connected(connection) => Some(connection),
            _ => None,
        }
    }
}

pub(super) fn engine() -> Outcome<Arc<Engine>> {
    devices().first().ok_or(Errno::ENODEV)?.engine()
}

impl Socket {
    /// Makes a socket and gives it to the program.
    pub(super) fn publish(
        domain: Domain,
        phase: Phase,
        options: Options,
        sizes: Sizes,
    ) -> Outcome<Arc<Self>> {
        let number = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?;
        let (local, peer, error) = (None, None, None);
        let state = State { phase, options, sizes, domain, local, peer, error };
        let (changes, sleepers) = Default::default();
        let socket = Arc::new(Socket { number, state: Mutex::new(state), changes, sleepers });
        process().sockets.0.lock().insert(socket.number(), socket.clone());
        Ok(socket)
    }

    pub(super) fn number(&self) -> RawFd {
        self.number.as_fd().as_raw_fd()
    }

    /// Locks the socket, with all that has completed taken.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.connection().is_some_and(Connection::progress) {
            self.note(&mut state);
        }
        state
    }

    /// Wakes all threads that sleep until something happens to the socket.
    fn note(&self, state: &mut State) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if let Some(connection) = state.connection() {
            connection.cq.wake();
        }
        for sleeper in self.sleepers.lock().iter() {
            let _ = sleeper.write(1);
        }
    }

    pub(super) fn add_sleeper(&self, bell: &Arc<EventFd>) {
        self.sleepers.lock().push(bell.clone());
    }

    pub(super) fn remove_sleeper(&self, bell: &Arc<EventFd>) {
        // Who adds itself next watches the channel under the same lock.
        let mut state = self.state.lock();
        let mut sleepers = self.sleepers.lock();
        sleepers.retain(|other| !Arc::ptr_eq(bell, other));
        if let Some(connection) = state.connection().filter(|_| sleepers.is_empty()) {
            connection.channel.unwatch();
        }
    }

    /// Tries `step` until it has an outcome; sleeps in between, unless the socket, or this call, is
    /// not to block. A signal ends the sleep as it does a `read(2)`. A thread that has been
    /// cancelled ends here, once it has slept for [`LOOK`] at most.
    pub(super) fn wait<T>(
        &self,
        now: bool,
        mut step: impl FnMut(&mut State) -> Option<Outcome<T>>,
    ) -> Outcome<T> {
        loop {
            let mut state = self.lock();
            let seen = self.changes.load(Ordering::SeqCst);
            if let Some(outcome) = step(&mut state) {
                return outcome;
            }
            if now || state.options.nonblocking {
                return Err(Errno::EAGAIN);
            }
            match state.connection().map(|connection| connection.cq.clone()) {
                Some(cq) => {
                    drop(state);
                    let changed = || self.changes.load(Ordering::SeqCst) != seen;
                    match cq.wait_or(Some(LOOK), changed) {
                        Err(error) if error.kind() == ErrorKind::Interrupted && !signals::end_calls() => {}
                        slept => drop(slept.map_err(|error| of_io(&error))?),
                    }
                    end_if_cancelled();
                }
                None => {
                    let bell = Arc::new(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?);
                    self.add_sleeper(&bell);
                    drop(state);
                    let slept = cancellable(|| bell.read());
                    self.remove_sleeper(&bell);
                    slept?;
                }
            }
        }
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> Outcome<()> {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Idle(None)) {
            return Err(Errno::EINVAL);
        }
        let tcp = Tcp::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))
            .map_err(|error| of_io(&error))?;
        let bound = (|| {
            tcp.set_reuse_address(true)?;
            if addr.is_ipv6() {
                tcp.set_only_v6(state.options.v6_only)?;
            }
            tcp.bind(&SockAddr::from(addr))?;
            tcp.local_addr()
        })();
        state.local = bound.map_err(|error| of_io(&error))?.as_socket();
        state.phase = Phase::Idle(Some(tcp));
        Ok(())
    }

    pub(super) fn listen(self: &Arc<Self>, backlog: i32) -> Outcome<()> {
        if self.lock().local.is_none() {
            self.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        }
        let mut state = self.lock();
        let Phase::Idle(tcp) = &mut state.phase else {
            return if matches!(state.phase, Phase::Listening { .. }) { Ok(()) } else { Err(Errno::EINVAL) };
        };
        let tcp = tcp.take().ok_or(Errno::EINVAL)?;
        let backlog = u32::try_from(backlog).ok().filter(|backlog| *backlog > 0).unwrap_or(1024);
        let engine = engine()?;
        let options = ConnectOptions { extensions: false, ..ConnectOptions::default() };
        let listener = engine.rnic.listen_on(tcp, backlog, &options).map_err(of_device)?;
        let host: Weak<dyn Host> = Arc::<Socket>::downgrade(self);
        let key = engine.attend(&listener, host)?;
        state.phase = Phase::Listening { listener, key, requests: VecDeque::new() };
        Ok(())
    }

    /// Accepts a connection. Requests of peers that are no rsockets are rejected.
    pub(super) fn accept(&self) -> Outcome<Arc<Socket>> {
        loop {
            let (request, options, sizes, domain) = self.wait(false, |state| match &mut state.phase {
                Phase::Listening { requests, .. } => requests
                    .pop_front()
                    .map(|request| Ok((request, state.options, state.sizes, state.domain))),
                _ => Some(Err(Errno::EINVAL)),
            })?;
            let Some(peer) = request.peer_addr() else { continue };
            let engine = engine()?;
            let mut connection = Box::new(Connection::new(&engine, &sizes)?);
            if connection.begin(request.private_data()).is_err() {
                let _ = request.reject(&[]);
                continue;
            }
            let options = Options { nonblocking: false, ..options };
            let socket = Socket::publish(domain, Phase::Failed, options, sizes)?;
            socket.watch(&engine, &connection);
            if request.accept_with(&connection.qp, &connection.options()).is_err() {
                let _ = remove(socket.number());
                continue;
            }
            let mut state = socket.state.lock();
            (state.local, state.peer) = (connection.qp.local_addr(), Some(peer));
            state.phase = Phase::Connected(connection);
            drop(state);
            drop(socket.lock());
            return Ok(socket);
        }
    }

    fn watch(self: &Arc<Self>, engine: &Engine, connection: &Connection) {
        let watcher: Weak<dyn Watcher> = Arc::<Socket>::downgrade(self);
        engine.watch(connection.qp.num(), watcher);
    }

    pub(super) fn connect(self: &Arc<Self>, addr: SocketAddr) -> Outcome<()> {
        let mut state = self.lock();
        let Phase::Idle(tcp) = &mut state.phase else {
            let over = match state.phase {
                Phase::Connected(_) => Errno::EISCONN,
                Phase::Connecting(_) => Errno::EALREADY,
                _ => state.error.take().unwrap_or(Errno::EINVAL),
            };
            return Err(over);
        };
        let (tcp, engine) = (tcp.take(), engine()?);
        let connection = Box::new(Connection::new(&engine, &state.sizes)?);
        self.watch(&engine, &connection);
        let options = connection.options();
        let begun = match tcp {
            Some(tcp) => {
                tcp.set_nonblocking(true).map_err(|error| of_io(&error))?;
                match tcp.connect(&addr.into()) {
                    Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error.into()),
                    _ => connection.qp.begin(tcp, &options, true),
                }
            }
            None => connection.qp.begin_to(addr, &options),
        };
        begun.map_err(|error| of_connect(&error))?;
        state.peer = Some(addr);
        state.phase = Phase::Connecting(connection);
        drop(state);
        self.connected(false).map_err(|error| match error {
            Errno::EAGAIN => Errno::EINPROGRESS,
            error => error,
        })
    }

    /// Waits until a connection that was begun is there.
    pub(super) fn connected(&self, now: bool) -> Outcome<()> {
        self.wait(now, |state| match state.phase {
            Phase::Connecting(_) => None,
            Phase::Connected(_) => Some(Ok(())),
            Phase::Failed => Some(Err(state.error.take().unwrap_or(Errno::ENOTCONN))),
            _ => Some(Err(Errno::ENOTCONN)),
        })
    }

    /// Notes the end of a startup.
    fn startup_over(state: &mut State) {
        let Phase::Connecting(connection) = &mut state.phase else { return };
        let Some(begun) = connection.qp.begun() else { return };
        let begun = begun
            .map_err(|error| of_connect(&error))
            .and_then(|connected| connection.begin(&connected.private_data).map_err(|_| Errno::EPROTO));
        let local = connection.qp.local_addr();
        let phase = std::mem::replace(&mut state.phase, Phase::Failed);
        match (begun, phase) {
            (Ok(()), Phase::Connecting(connection)) => {
                state.local = local;
                state.phase = Phase::Connected(connection);
            }
            (Err(error), _) => state.error = Some(error),
            (Ok(()), _) => {}
        }
    }

    pub(super) fn shutdown(&self, how: i32) -> Outcome<()> {
        let (reading, writing) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        self.lock().connection().ok_or(Errno::ENOTCONN)?.shut(reading, writing);
        drop(self.lock());
        Ok(())
    }

    /// Waits until all that was posted is sent, but no longer than [`CLOSE`].
    fn drain(&self) {
        let until = Instant::now() + CLOSE;
        loop {
            let mut state = self.lock();
            let seen = self.changes.load(Ordering::SeqCst);
            let left = until.saturating_duration_since(Instant::now());
            let Some(connection) = state.connection().filter(|connection| !connection.is_sent()) else {
                return;
            };
            let cq = connection.cq.clone();
            drop(state);
            let waited = cq.wait_or(Some(left), || self.changes.load(Ordering::SeqCst) != seen);
            let is_failed = waited.is_err_and(|error| error.kind() != ErrorKind::Interrupted);
            if is_failed || left.is_zero() {
                return;
            }
        }
    }

    /// Ends what the socket does; the connection ends in order behind the program's back.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        if let Some(connection) = state.connection() {
            connection.shut(true, true);
        }
        drop(state);
        self.drain();
        let phase = std::mem::replace(&mut self.state.lock().phase, Phase::Failed);
        let Ok(engine) = engine() else { return };
        match phase {
            Phase::Listening { listener, key, .. } => engine.forget(&listener, key),
            Phase::Connecting(connection) | Phase::Connected(connection) => {
                engine.unwatch(connection.qp.num());
                connection.qp.disconnect();
            }
            _ => {}
        }
    }
}

impl Watcher for Socket {
    fn on_event(&self, event: &AsyncEvent) {
        let mut state = self.lock();
        match event.kind {
            AsyncEventKind::Connected | AsyncEventKind::NotConnected => Self::startup_over(&mut state),
            AsyncEventKind::CloseComplete => {
                if let Some(connection) = state.connection() {
                    connection.stream.iter_mut().for_each(crate::rsocket::Stream::end);
                }
            }
            AsyncEventKind::BadClose
            | AsyncEventKind::ConnectionLost
            | AsyncEventKind::TerminateReceived(_)
            | AsyncEventKind::Fault(_)
            | AsyncEventKind::QpFailed
            | AsyncEventKind::DeviceFailed => {
                if let Some(connection) = state.connection() {
                    connection.fail(Errno::ECONNRESET);
                }
            }
            _ => {}
        }
        self.note(&mut state);
    }
}

impl Host for Socket {
    fn on_requests(self: Arc<Self>) {
        let mut state = self.state.lock();
        if let Phase::Listening { listener, requests, .. } = &mut state.phase {
            requests.extend(std::iter::from_fn(|| listener.try_accept()));
        }
        self.note(&mut state);
    }
}
