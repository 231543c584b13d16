//! One MPA startup of a QP, made by the background thread (RFC 5044 §7.1, RFC 6581).
//!
//! [`QueuePair::begin`](crate::QueuePair::begin) hands over a TCP connection of the program's own
//! and returns; TCP may still be connecting. [`QueuePair::begin_to`](crate::QueuePair::begin_to)
//! and [`QueuePair::connect`](crate::QueuePair::connect) begin with an address (see `connect.rs`):
//! the port mapper is asked first, and revision 1 is tried after a refusal of revision 2, which
//! takes another TCP connection. An event reports the end, and the result is kept for
//! [`QueuePair::begun`](crate::QueuePair::begun).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use parking_lot::{Condvar, Mutex};
use rddp_rdma::{AsyncEventKind, ConnectOptions};

use super::connect::Connected;
use super::socket::DeviceSocket;
use super::stage::{Done, Next, Stage};
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::error::ConnectError;
use crate::io::driver::{Driver, Failure, Source};
use crate::qp::QpInner;
use crate::queues::options::Transport;
use crate::sys::reset;
use crate::trace;
use crate::wire::opening::{Asked, close};

/// The way in which a startup is made.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// An event reports the end to the program; else a thread of the program sleeps until then.
    pub(super) reports: bool,
    /// The program answers the peer's Request.
    pub(super) asks: bool,
    /// The address at which the peer listens, if this end makes the TCP connection.
    pub(super) addr: Option<SocketAddr>,
    pub(super) transport: Transport,
}

/// The outcome of a startup, as far as there is one.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The peer's wish that the program is to answer, until the program takes it.
    pub(super) asked: Option<Asked>,
    over: bool,
    result: Option<Result<Connected, ConnectError>>,
}

/// A startup that is under way, or that is over and keeps its result for the program.
#[derive(Debug)]
pub(crate) struct Startup {
    pub(super) token: u64,
    pub(super) device: Arc<DeviceInner>,
    pub(super) qp: Weak<QpInner>,
    pub(super) options: ConnectOptions,
    pub(super) plan: Plan,
    /// The peer's refusal of revision 2, once revision 1 is tried.
    pub(super) refusal: Mutex<Option<ConnectError>>,
    deadline: Deadline,
    /// A refusal by the peer's host is not the last word before that.
    pub(super) refused_until: Deadline,
    pub(super) stage: Mutex<Stage>,
    pub(super) outcome: Mutex<Outcome>,
    over: Condvar,
}

impl Startup {
    /// Makes a startup, and adds it to the sources of the background thread.
    pub(super) fn add(qp: &Arc<QpInner>, options: ConnectOptions, plan: Plan, stage: Stage) -> Arc<Self> {
        let device = qp.device.clone();
        let deadline = Deadline::after(options.timeout);
        let startup = Arc::new_cyclic(|weak: &Weak<Startup>| {
            let source: Weak<dyn Source> = weak.clone();
            Startup {
                token: device.driver.add(source),
                device: device.clone(),
                qp: Arc::downgrade(qp),
                refused_until: Deadline::after(options.retry_refused),
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
        trace::startup_begins(qp.attrs.num, startup.plan.addr);
        startup
    }

    /// Has the background thread begin with the first stage.
    pub(super) fn begin_watching(&self) -> Result<(), ConnectError> {
        let watched = self.watch(&self.stage.lock());
        watched.map_err(|error| {
            self.forget(&self.device.driver);
            error.into()
        })
    }

    /// Puts the descriptor that a first stage waits for into the background thread's epoll set.
    pub(super) fn watch(&self, stage: &Stage) -> io::Result<()> {
        let driver = &self.device.driver;
        match stage {
            Stage::Mapper { query, .. } => {
                driver.at(query.due(), self.token);
                driver.watch(query.as_fd(), self.token, EpollFlags::EPOLLIN)
            }
            Stage::Tcp { socket, .. } => driver.watch(socket.as_fd(), self.token, EpollFlags::EPOLLOUT),
            Stage::Open { socket, .. } => driver.watch(socket.as_fd(), self.token, EpollFlags::EPOLLIN),
            _ => Ok(()),
        }
    }

    /// Sleeps until the startup is over. Takes its result.
    pub(super) fn outcome(&self) -> Result<Connected, ConnectError> {
        let mut outcome = self.outcome.lock();
        self.over.wait_while(&mut outcome, |outcome| !outcome.over);
        outcome.result.take().unwrap_or(Err(ConnectError::GivenUp))
    }

    /// Takes the result, if the startup is over.
    pub(super) fn take_result(&self) -> Option<Result<Connected, ConnectError>> {
        self.outcome.lock().result.take()
    }

    /// Takes the peer's wish that waits for an answer.
    pub(crate) fn take_asked(&self) -> Option<Asked> {
        self.outcome.lock().asked.take()
    }

    /// Sleeps until the startup is over, for at most `timeout`. Returns whether it is.
    pub(super) fn await_over(&self, timeout: Duration) -> bool {
        let mut outcome = self.outcome.lock();
        match Deadline::after(timeout).moment() {
            Some(moment) => while !outcome.over && !self.over.wait_until(&mut outcome, moment).timed_out() {},
            None => self.over.wait_while(&mut outcome, |outcome| !outcome.over),
        }
        outcome.over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome.lock().over
    }

    /// Ends the startup for a program that no longer wants it: nothing is reported.
    pub(crate) fn forget(&self, driver: &Driver) {
        drop(self.end(driver));
    }

    /// Ends the startup as [`forget`](Self::forget) does, and resets TCP, even where others hold
    /// the socket, too.
    pub(crate) fn abort(&self, driver: &Driver) {
        if let Some(socket) = self.end(driver) {
            reset(socket.as_fd());
        }
    }

    /// Ends the startup without a report. Returns its socket, if it still has one.
    fn end(&self, driver: &Driver) -> Option<DeviceSocket> {
        driver.leave(self.token);
        let socket = self.stage.lock().end();
        self.conclude(Err(ConnectError::GivenUp));
        socket
    }

    /// Stores the result and wakes threads that sleep until then, unless the startup was over
    /// before.
    fn conclude(&self, result: Result<Connected, ConnectError>) {
        self.conclude_and(result, || ());
    }

    /// Concludes the startup, and reports the end to the program by an event, if it is to be
    /// reported. Nobody sees the result before the event is there: whoever begins the next startup
    /// behind [`take_result`](Self::take_result) would take the event for that one's.
    fn tell(&self, result: Result<Connected, ConnectError>, qp: &QpInner) {
        let kind = if result.is_ok() { AsyncEventKind::Connected } else { AsyncEventKind::NotConnected };
        self.conclude_and(result, || {
            if self.plan.reports {
                qp.attrs.report(kind);
            }
        });
    }

    /// Concludes the startup. Calls `report` under the outcome's lock, if the startup was not over
    /// before.
    fn conclude_and(&self, result: Result<Connected, ConnectError>, report: impl FnOnce()) {
        let mut outcome = self.outcome.lock();
        if !std::mem::replace(&mut outcome.over, true) {
            outcome.result = Some(result);
            report();
            self.over.notify_all();
        }
    }

    /// Ends the startup without a connection.
    pub(super) fn fail(&self, driver: &Driver, error: ConnectError) {
        driver.remove(self.token);
        let (error, qp) = (self.blame(error), self.qp.upgrade());
        trace::startup_failed(qp.as_ref().map(|qp| qp.attrs.num), &error);
        let result = Err(error);
        match qp {
            Some(qp) => self.tell(result, &qp),
            None => self.conclude(result),
        }
    }

    /// Ends the startup with a connection, which the QP takes over. The program is told of that
    /// before any other event of the connection.
    pub(super) fn succeed(&self, driver: &Driver, done: Done) {
        let Some(qp) = self.qp.upgrade() else { return self.fail(driver, ConnectError::GivenUp) };
        let Done { socket, terms, private_data, active } = done;
        let terms = terms.kept_by(&qp.attrs);
        driver.unwatch(socket.as_fd());
        let (ird, ord) = terms.depths();
        let connected = Connected { negotiated: terms.negotiated(), ird, ord, private_data };
        match qp.attach(socket, terms, &self.options, active, || self.tell(Ok(connected), &qp)) {
            Ok(()) => driver.remove(self.token),
            Err(error) => self.fail(driver, error),
        }
    }

    /// Takes one step after another until one has to wait for the socket, or the startup is over.
    fn advance(&self, driver: &Driver) {
        let _span = trace::startup(self.qp.upgrade().map(|qp| qp.attrs.num));
        let mut place = self.stage.lock();
        // An answer of the program, or the end of the startup, may have come first.
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
}

impl Source for Startup {
    fn on_ready(&self, driver: &Driver) -> bool {
        self.advance(driver);
        false
    }

    fn on_timer(&self, driver: &Driver, now: Instant) {
        if !self.deadline.is_over(now) {
            // The timer is that of one try of the query, or of TCP, which begins the next.
            if matches!(*self.stage.lock(), Stage::Mapper { .. } | Stage::Refused { .. }) {
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
