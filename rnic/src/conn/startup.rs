//! The MPA startup, by the background thread (RFC 5044 §7.1, RFC 6581).
//!
//! [`QueuePair::begin`] hands over a TCP connection that the program has made itself and returns; TCP may
//! still be connecting. What comes of it is reported by an event and kept for [`QueuePair::begun`].
//! [`QueuePair::begin_to`] and [`QueuePair::connect`] begin with an address (see `connect.rs`): the port
//! mapper is asked first, and revision 1 tried after a refusal of 2, which takes another TCP connection.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use parking_lot::{Condvar, Mutex};
use rddp_iwarp::Refusal;
use rddp_mpa::{Initiator, InitiatorStep, Negotiated, Request, StartupError};
use rddp_rdma::{AsyncEventKind, ConnectOptions};
use socket2::Socket;

use super::connect::{Connected, send_terminate};
use super::half_open::{nothing_behind, read_request};
use super::port_mapper::Query;
use super::socket::{TcpSocket, no_delay, write_all};
use super::sys::reset;
use crate::config::startup_config;
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::ConnectError;
use crate::io::driver::{Driver, Failure, Source};
use crate::qp::{QpInner, QpState, QueuePair};

impl QueuePair {
    /// Connects an idle QP over a TCP connection that is there, or that is being made: `active` sends the Request, else
    /// the peer's is awaited and accepted. Returns at once; [`Connected`](AsyncEventKind::Connected) or
    /// [`NotConnected`](AsyncEventKind::NotConnected) tells the end. `stream` becomes non-blocking.
    ///
    /// # Errors
    /// The QP is not idle, or the settings make no startup frame.
    pub fn begin(&self, stream: Socket, options: &ConnectOptions, active: bool) -> Result<(), ConnectError> {
        self.begin_as(TcpSocket::new(stream), options, if active { Part::Active } else { Part::Passive })
    }

    pub(super) fn begin_as(
        &self,
        stream: TcpSocket,
        options: &ConnectOptions,
        part: Part,
    ) -> Result<(), ConnectError> {
        let plan = Plan { reports: true, asks: part == Part::Asking, addr: None };
        let begun = self.begin_by(options, plan, |options| {
            let active = part == Part::Active;
            let initiator = active
                .then(|| Initiator::new(&startup_config(options), &options.private_data))
                .transpose()?;
            stream.set_nonblocking(true)?;
            Ok(Stage::Tcp { socket: stream, initiator })
        });
        begun.map(drop)
    }

    pub(super) fn begin_by(
        &self,
        options: &ConnectOptions,
        plan: Plan,
        first: impl FnOnce(&ConnectOptions) -> Result<Stage, ConnectError>,
    ) -> Result<Arc<Startup>, ConnectError> {
        let (inner, state) = (self.inner.here()?, self.state());
        // A `connect` that sleeps is its caller's alone.
        let mut place = plan.reports.then(|| inner.startup().lock());
        let begun = place.as_ref().and_then(|place| place.as_ref());
        if state != QpState::Idle || begun.is_some_and(|startup| !startup.is_over()) {
            return Err(ConnectError::NotIdle(state));
        }
        let options = inner.options(options);
        let first = first(&options)?;
        let startup = Startup::add(inner, options, plan, first);
        if let Some(place) = &mut place {
            **place = Some(startup.clone());
        }
        drop(place);
        startup.begin_watching().map(|()| startup)
    }

    /// What has come of [`begin`](Self::begin) or [`begin_to`](Self::begin_to): `None` while it goes on, or when this has been asked before.
    pub fn begun(&self) -> Option<Result<Connected, ConnectError>> {
        self.inner.here().ok()?.startup().lock().as_ref()?.outcome.lock().result.take()
    }

    /// Sleeps until that is over, one way or the other, for at most `timeout`. Whether it is.
    pub fn await_begun(&self, timeout: Duration) -> bool {
        let Ok(inner) = self.inner.here() else { return true };
        let Some(startup) = inner.startup().lock().clone() else { return true };
        let mut outcome = startup.outcome.lock();
        match Deadline::after(timeout).moment() {
            Some(moment) => {
                while !outcome.over && !startup.over.wait_until(&mut outcome, moment).timed_out() {}
            }
            None => startup.over.wait_while(&mut outcome, |outcome| !outcome.over),
        }
        outcome.over
    }
}

/// What this side does in a startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Sends the Request.
    Active,
    /// Accepts the peer's.
    Passive,
    /// Leaves the answer to the program.
    Asking,
}

/// How a startup is made.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Events tell the program of its end; else somebody sleeps until then.
    pub(super) reports: bool,
    /// The program answers the Request.
    pub(super) asks: bool,
    /// Where the peer listens, if this side makes the TCP connection.
    pub(super) addr: Option<SocketAddr>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The port mapper of the peer's host has been asked.
    Mapper {
        socket: TcpSocket,
        query: Query,
        initiator: Initiator,
    },
    /// Until TCP is connected.
    Tcp {
        socket: TcpSocket,
        initiator: Option<Initiator>,
    },
    /// The Request has been sent.
    Reply {
        socket: TcpSocket,
        initiator: Initiator,
        octets: Vec<u8>,
    },
    /// The peer's Request is arriving.
    Request {
        socket: TcpSocket,
        octets: Vec<u8>,
        total: usize,
    },
    /// The program is to answer it.
    Asked {
        socket: TcpSocket,
        request: Request,
    },
    /// It has. What comes of that is in the outcome.
    Answered,
    Over,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// For the program that answers it.
    pub(super) request: Option<Request>,
    over: bool,
    result: Option<Result<Connected, ConnectError>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Startup {
    pub(super) token: u64,
    pub(super) device: Arc<DeviceInner>,
    qp: Weak<QpInner>,
    pub(super) options: ConnectOptions,
    pub(super) plan: Plan,
    /// Why the peer has refused revision 2, once 1 is tried.
    pub(super) refusal: Mutex<Option<ConnectError>>,
    deadline: Deadline,
    pub(super) stage: Mutex<Stage>,
    pub(super) outcome: Mutex<Outcome>,
    over: Condvar,
}

/// What a look at the socket leads to.
pub(super) enum Next {
    /// Another look.
    Again(Stage),
    /// Nothing before the socket is ready for this.
    Wait(Stage, EpollFlags),
    /// A connection.
    Done(Done),
}

pub(super) struct Done {
    pub(super) socket: TcpSocket,
    pub(super) negotiated: Negotiated,
    pub(super) private_data: Vec<u8>,
    pub(super) active: bool,
}

impl Startup {
    fn add(qp: &Arc<QpInner>, options: ConnectOptions, plan: Plan, stage: Stage) -> Arc<Self> {
        let device = qp.device().clone();
        let deadline = Deadline::after(options.timeout);
        let startup = Arc::new_cyclic(|weak: &Weak<Startup>| {
            let source: Weak<dyn Source> = weak.clone();
            Startup {
                token: device.driver.add(source),
                device: device.clone(),
                qp: Arc::downgrade(qp),
                options,
                plan,
                refusal: Mutex::default(),
                deadline,
                stage: Mutex::new(stage),
                outcome: Mutex::default(),
                over: Condvar::new(),
            }
        });
        device.driver.by(deadline, startup.token);
        startup
    }

    fn begin_watching(&self) -> Result<(), ConnectError> {
        let watched = self.watch(&self.stage.lock());
        watched.map_err(|error| {
            self.forget(&self.device.driver);
            error.into()
        })
    }

    /// Puts what a first stage waits for into the background thread's set.
    pub(super) fn watch(&self, stage: &Stage) -> io::Result<()> {
        let driver = &self.device.driver;
        match stage {
            Stage::Mapper { query, .. } => {
                driver.at(query.due(), self.token);
                driver.watch(query.as_fd(), self.token, EpollFlags::EPOLLIN)
            }
            Stage::Tcp { socket, .. } => driver.watch(socket.as_fd(), self.token, EpollFlags::EPOLLOUT),
            _ => Ok(()),
        }
    }

    /// Sleeps until it is over. Returns what has come of it.
    pub(super) fn outcome(&self) -> Result<Connected, ConnectError> {
        let mut outcome = self.outcome.lock();
        self.over.wait_while(&mut outcome, |outcome| !outcome.over);
        outcome.result.take().unwrap_or(Err(ConnectError::GivenUp))
    }

    fn is_over(&self) -> bool {
        self.outcome.lock().over
    }

    /// The program wants it no more: nothing is reported.
    pub(crate) fn forget(&self, driver: &Driver) {
        drop(self.end(driver));
    }

    /// The same, and TCP is reset, whoever else holds the socket.
    pub(crate) fn abort(&self, driver: &Driver) {
        if let Some(socket) = self.end(driver) {
            reset(socket.as_fd());
        }
    }

    fn end(&self, driver: &Driver) -> Option<TcpSocket> {
        driver.leave(self.token);
        let socket = self.stage.lock().end();
        self.conclude(Err(ConnectError::GivenUp));
        socket
    }

    /// Notes the end, if it is the first. Whether it is.
    fn conclude(&self, result: Result<Connected, ConnectError>) -> bool {
        let mut outcome = self.outcome.lock();
        let first = !std::mem::replace(&mut outcome.over, true);
        if first {
            outcome.result = Some(result);
            self.over.notify_all();
        }
        first
    }

    pub(super) fn fail(&self, driver: &Driver, error: ConnectError) {
        driver.remove(self.token);
        if self.conclude(Err(self.blame(error)))
            && self.plan.reports
            && let Some(qp) = self.qp.upgrade()
        {
            qp.report(AsyncEventKind::NotConnected);
        }
    }

    /// The startup is over: the QP goes to work. Its program learns that before anything else of this connection.
    pub(super) fn succeed(&self, driver: &Driver, done: Done) {
        let Some(qp) = self.qp.upgrade() else { return self.fail(driver, ConnectError::GivenUp) };
        let Done { socket, negotiated, private_data, active } = done;
        let negotiated = qp.without_reads(negotiated);
        driver.unwatch(socket.as_fd());
        let connected = Connected { negotiated: negotiated.clone(), private_data };
        let told = || {
            if self.conclude(Ok(connected)) && self.plan.reports {
                qp.report(AsyncEventKind::Connected);
            }
        };
        match qp.attach(socket, negotiated, &self.options, active, told) {
            Ok(()) => driver.remove(self.token),
            Err(error) => self.fail(driver, error),
        }
    }

    /// Goes on as far as the socket lets it.
    fn advance(&self, driver: &Driver) {
        let mut place = self.stage.lock();
        if place.socket().is_none() {
            return;
        }
        let mut stage = std::mem::replace(&mut *place, Stage::Over);
        loop {
            match self.step(stage) {
                Ok(Next::Again(next)) => stage = next,
                Ok(Next::Wait(next, interest)) => {
                    if let Some(watched) = next.watched() {
                        driver.arm(watched, self.token, interest);
                    }
                    *place = next;
                    return;
                }
                Ok(Next::Done(done)) => {
                    drop(place);
                    return self.succeed(driver, done);
                }
                Err(error) => match self.begin_again(error) {
                    Ok(next) => stage = next,
                    Err(error) => {
                        drop(place);
                        return self.fail(driver, error);
                    }
                },
            }
        }
    }

    fn step(&self, stage: Stage) -> Result<Next, ConnectError> {
        match stage {
            Stage::Mapper { socket, query, initiator } => self.ask_mapper(socket, query, initiator),
            Stage::Tcp { socket, initiator } => self.begin(socket, initiator),
            Stage::Reply { socket, initiator, octets } => self.read_reply(socket, initiator, octets),
            Stage::Request { socket, mut octets, mut total } => {
                match read_request(&socket, &mut octets, &mut total).map_err(startup_error) {
                    Ok(None) => Ok(Next::Wait(Stage::Request { socket, octets, total }, EpollFlags::EPOLLIN)),
                    Ok(Some(request)) if self.plan.asks => Ok(self.ask(socket, request)),
                    Ok(Some(request)) => self.accept(socket, &request),
                    Err(error) => Err(close(&socket, error)),
                }
            }
            Stage::Asked { socket, request } => match nothing_behind(&socket).map_err(startup_error) {
                Ok(()) => Ok(Next::Wait(Stage::Asked { socket, request }, EpollFlags::EPOLLIN)),
                Err(error) => Err(close(&socket, error)),
            },
            Stage::Answered | Stage::Over => Err(ConnectError::GivenUp),
        }
    }

    fn begin(&self, socket: TcpSocket, initiator: Option<Initiator>) -> Result<Next, ConnectError> {
        if let Some(error) = socket.take_error()? {
            return Err(tcp_error(error, self.options.timeout));
        }
        if socket.peer_addr().is_err() {
            return Ok(Next::Wait(Stage::Tcp { socket, initiator }, EpollFlags::EPOLLOUT));
        }
        no_delay(&socket)?;
        let octets = Vec::new();
        Ok(Next::Again(match initiator {
            Some(initiator) => {
                // A frame is small, and nothing else is in the send buffer.
                write_all(&socket, initiator.request())
                    .map_err(|error| startup_tcp_error(error, self.options.timeout))?;
                Stage::Reply { socket, initiator, octets }
            }
            None => Stage::Request { socket, octets, total: 1 },
        }))
    }

    /// The program is told, and the peer watched meanwhile.
    fn ask(&self, socket: TcpSocket, request: Request) -> Next {
        self.outcome.lock().request = Some(request.clone());
        if let Some(qp) = self.qp.upgrade() {
            qp.report(AsyncEventKind::Requested);
        }
        Next::Wait(Stage::Asked { socket, request }, EpollFlags::EPOLLIN)
    }

    fn accept(&self, socket: TcpSocket, request: &Request) -> Result<Next, ConnectError> {
        let (reply, negotiated) =
            request.accept(&startup_config(&self.options), &self.options.private_data)?;
        write_all(&socket, &reply).map_err(|error| tcp_error(error, self.options.timeout))?;
        let private_data = request.private_data.clone();
        Ok(Next::Done(Done { socket, negotiated, private_data, active: false }))
    }

    /// Takes exactly the Reply's octets from the socket: what follows is FPDUs.
    fn read_reply(
        &self,
        socket: TcpSocket,
        mut initiator: Initiator,
        mut octets: Vec<u8>,
    ) -> Result<Next, ConnectError> {
        loop {
            let total = match initiator.handle(&octets) {
                Ok(InitiatorStep::Need { total }) => total,
                Ok(InitiatorStep::Accepted { negotiated, private_data, .. }) => {
                    return Ok(Next::Done(Done { socket, negotiated, private_data, active: true }));
                }
                // RFC 5044 §7.1.2: TCP stays open, and is the program's again.
                Ok(InitiatorStep::Rejected { private_data, .. }) => {
                    return Err(ConnectError::Rejected { private_data });
                }
                Err(error) => {
                    let Refusal::Terminate { terminate, framing } =
                        Refusal::of(&error, initiator.tx(), false)
                    else {
                        return Err(close(&socket, error.into()));
                    };
                    send_terminate(&socket, &terminate, framing);
                    // Nobody else has it, and TCP may lose the Terminate if it is closed now.
                    if self.plan.addr.is_some() {
                        self.linger(socket);
                    }
                    return Err(error.into());
                }
            };
            let mut chunk = [0; 64];
            let want = chunk.len().min(total - octets.len());
            match (&*socket).read(&mut chunk[..want]) {
                Ok(0) => return Err(close(&socket, initiator.closed(&octets).into())),
                Ok(count) => octets.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Next::Wait(Stage::Reply { socket, initiator, octets }, EpollFlags::EPOLLIN));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(startup_tcp_error(error, self.options.timeout)),
            }
        }
    }
}

impl Stage {
    fn socket(&self) -> Option<&TcpSocket> {
        match self {
            Stage::Mapper { socket, .. }
            | Stage::Tcp { socket, .. }
            | Stage::Reply { socket, .. }
            | Stage::Request { socket, .. }
            | Stage::Asked { socket, .. } => Some(socket),
            Stage::Answered | Stage::Over => None,
        }
    }

    /// The descriptor that it waits for.
    fn watched(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stage::Mapper { query, .. } => Some(query.as_fd()),
            other => other.socket().map(AsFd::as_fd),
        }
    }

    /// Nothing more is to be done, if something was: its socket.
    fn end(&mut self) -> Option<TcpSocket> {
        match std::mem::replace(self, Stage::Over) {
            Stage::Mapper { socket, .. }
            | Stage::Tcp { socket, .. }
            | Stage::Reply { socket, .. }
            | Stage::Request { socket, .. }
            | Stage::Asked { socket, .. } => Some(socket),
            over => {
                *self = over;
                None
            }
        }
    }
}

impl Source for Startup {
    fn on_ready(&self, driver: &Driver) -> bool {
        self.advance(driver);
        false
    }

    fn on_timer(&self, driver: &Driver, now: Instant) {
        if !self.deadline.is_over(now) {
            if matches!(*self.stage.lock(), Stage::Mapper { .. }) {
                self.advance(driver);
            }
            return;
        }
        let socket = self.stage.lock().end();
        if let Some(socket) = socket {
            let error = close(&socket, ConnectError::TimedOut(self.options.timeout));
            self.fail(driver, error);
        }
    }

    fn give_up(&self, driver: &Driver, failure: Failure) {
        let error = ConnectError::Tcp(failure.into());
        let socket = self.stage.lock().end();
        let error = match socket {
            Some(socket) => close(&socket, error),
            None => error,
        };
        self.fail(driver, error);
    }
}

/// RFC 5044 §7.1.2: a peer that speaks no MPA, or not in time, is left; also where the program holds the socket, too.
pub(super) fn close(socket: &TcpSocket, error: ConnectError) -> ConnectError {
    let _ = socket.shutdown(Shutdown::Both);
    error
}

fn startup_error(error: io::Error) -> ConnectError {
    match error.downcast::<StartupError>() {
        Ok(error) => error.into(),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => ConnectError::Closed,
        Err(error) => ConnectError::Tcp(error),
    }
}

fn tcp_error(error: io::Error, timeout: Duration) -> ConnectError {
    match error.kind() {
        ErrorKind::TimedOut => ConnectError::TimedOut(timeout),
        _ => ConnectError::Tcp(error),
    }
}

/// The same once TCP is connected: the peer has left, instead of answering.
fn startup_tcp_error(error: io::Error, timeout: Duration) -> ConnectError {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ConnectError::Closed,
        _ => tcp_error(error, timeout),
    }
}
