//! A program's side of a startup: to begin one, and to ask for its result.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rddp_rdma::ConnectOptions;

use super::connect::Connected;
use super::socket::DeviceSocket;
use super::stage::Stage;
use super::startup::{Plan, Startup};
use crate::error::ConnectError;
use crate::qp::QueuePair;
use crate::wire::opening::Opening;

impl QueuePair {
    /// Connects an idle QP over a TCP connection that the program has made, or is making: as the
    /// initiator (`active`) it sends the Request, else it awaits the peer's Request and accepts it.
    ///
    /// Returns at once. The event [`Connected`](crate::AsyncEventKind::Connected) or
    /// [`NotConnected`](crate::AsyncEventKind::NotConnected) reports the end, and
    /// [`begun`](Self::begun) has the result. `stream`, a `TcpStream` or another TCP socket,
    /// becomes non-blocking.
    ///
    /// # Errors
    /// The QP is not idle, `stream` is no TCP socket or listens, or a startup frame cannot hold the
    /// settings or the private data.
    pub fn begin(
        &self,
        stream: impl Into<OwnedFd>,
        options: &ConnectOptions,
        active: bool,
    ) -> Result<(), ConnectError> {
        self.begin_as(
            DeviceSocket::of(stream, options)?,
            options,
            if active { Part::Active } else { Part::Passive },
        )
    }

    /// Begins a startup over a TCP connection of the program's own.
    pub(super) fn begin_as(
        &self,
        stream: DeviceSocket,
        options: &ConnectOptions,
        part: Part,
    ) -> Result<(), ConnectError> {
        let attrs = &self.inner.here()?.attrs;
        attrs.device.only_software("connections over a program's own socket")?;
        let transport = attrs.transport;
        let plan = Plan { reports: true, asks: part == Part::Asking, addr: None, transport };
        let begun = self.begin_by(options, plan, |options| {
            let opening = match part {
                Part::Active => Opening::active(transport, options)?,
                Part::Passive | Part::Asking => Opening::passive(transport),
            };
            stream.set_nonblocking(true)?;
            Ok(Stage::Tcp { socket: stream, opening })
        });
        begun.map(drop)
    }

    /// Begins a startup whose first stage `first` makes.
    pub(super) fn begin_by(
        &self,
        options: &ConnectOptions,
        plan: Plan,
        first: impl FnOnce(&ConnectOptions) -> Result<Stage, ConnectError>,
    ) -> Result<Arc<Startup>, ConnectError> {
        let inner = self.inner.here()?;
        if inner.attrs.transport.is_of_datagrams() {
            return Err(ConnectError::Transport);
        }
        let mut place = inner.claim()?;
        let options = inner.attrs.options(options);
        let first = first(&options)?;
        let startup = Startup::add(inner, options, plan, first);
        *place = Some(startup.clone());
        drop(place);
        startup.begin_watching().map(|()| startup)
    }

    /// Takes the result of [`begin`](Self::begin) or [`begin_to`](Self::begin_to). `None` while the
    /// startup goes on, or when the result has been taken before.
    pub fn begun(&self) -> Option<Result<Connected, ConnectError>> {
        self.startup_begun()?.take_result()
    }

    /// Sleeps until the startup that was begun is over, with a connection or without one, for at
    /// most `timeout`. Returns whether it is over.
    pub fn await_begun(&self, timeout: Duration) -> bool {
        self.startup_begun().is_none_or(|startup| startup.await_over(timeout))
    }

    /// Returns the startup that an event reports. The result of another is for the caller of
    /// [`connect`](Self::connect), who sleeps.
    fn startup_begun(&self) -> Option<Arc<Startup>> {
        self.inner.here().ok()?.startup().lock().clone().filter(|startup| startup.plan.reports)
    }
}

/// The part that this end has in a startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Sends the Request.
    Active,
    /// Accepts the peer's Request.
    Passive,
    /// Has the program answer the peer's Request.
    Asking,
}
