//! Steps of a startup: what is done in each stage when the socket is ready.

use std::io::ErrorKind;

use nix::sys::epoll::EpollFlags;
use rddp_rdma::AsyncEventKind;

use super::socket::{DeviceSocket, no_delay};
use super::stage::{Done, Next, Stage};
use super::startup::Startup;
use crate::error::ConnectError;
use crate::queues::options::Transport;
use crate::wire::opening::{Asked, Failed, Opening, Progress, closed_or};

impl Startup {
    /// Takes the step that `stage` calls for.
    pub(super) fn step(&self, stage: Stage) -> Result<Next, ConnectError> {
        match stage {
            Stage::Mapper { socket, query, opening } => self.ask_mapper(socket, query, opening),
            Stage::Tcp { socket, opening } => self.begin(socket, opening),
            Stage::Refused { error, .. } => self.retry(error),
            Stage::Open { socket, opening } => self.go_on(socket, opening),
            Stage::Asked { socket, mut opening, asked } => match opening.advance(&socket) {
                Ok(_) => Ok(wait_for_answer(socket, opening, asked)),
                Err(failed) => Err(self.give_up_opening(socket, failed)),
            },
            Stage::Answered | Stage::Over => Err(ConnectError::GivenUp),
        }
    }

    /// Goes on with the opening.
    fn go_on(&self, socket: DeviceSocket, mut opening: Opening) -> Result<Next, ConnectError> {
        if let Some(qp) = self.qp.upgrade() {
            qp.give_receives(&mut opening);
        }
        match opening.advance(&socket) {
            Ok(Progress::Again) => Ok(Next::Again(Stage::Open { socket, opening })),
            Ok(Progress::Wait) => Ok(Next::Wait(Stage::Open { socket, opening }, EpollFlags::EPOLLIN)),
            Ok(Progress::Asked(asked)) if self.plan.asks => Ok(self.ask(socket, opening, asked)),
            Ok(Progress::Asked(asked)) => self.accept(socket, &asked),
            Ok(Progress::Agreed { terms, private_data }) => {
                Ok(Next::Done(Done { socket, terms, private_data, active: true }))
            }
            // A device tells here of what TCP has told before there is an opening.
            Err(failed) if self.plan.transport == Transport::Device => self.pause(socket, failed.error),
            Err(failed) => Err(self.give_up_opening(socket, failed)),
        }
    }

    /// Begins the opening once TCP is connected.
    fn begin(&self, socket: DeviceSocket, opening: Opening) -> Result<Next, ConnectError> {
        if let Some(error) = socket.take_error()? {
            return self.pause(socket, self.in_time(ConnectError::Tcp(error)));
        }
        // Without an error and without a peer's address TCP is still connecting.
        if socket.peer_addr().is_err() {
            return Ok(Next::Wait(Stage::Tcp { socket, opening }, EpollFlags::EPOLLOUT));
        }
        no_delay(&socket)?;
        opening.begin(&socket).map_err(|error| self.in_time(closed_or(error)))?;
        Ok(Next::Again(Stage::Open { socket, opening }))
    }

    /// Has the program answer, and watches the peer meanwhile.
    fn ask(&self, socket: DeviceSocket, opening: Opening, asked: Asked) -> Next {
        self.outcome.lock().asked = Some(asked.clone());
        if let Some(qp) = self.qp.upgrade() {
            qp.attrs.report(AsyncEventKind::Requested);
        }
        wait_for_answer(socket, opening, asked)
    }

    /// Accepts without asking the program.
    fn accept(&self, socket: DeviceSocket, asked: &Asked) -> Result<Next, ConnectError> {
        let reply = asked.accept(&self.options, &self.options.private_data)?;
        let sent = reply.send(&socket).map_err(|error| self.in_time(ConnectError::Tcp(error)))?;
        let Some(terms) = sent else { return Err(ConnectError::Declined) };
        let private_data = asked.private_data().to_vec();
        Ok(Next::Done(Done { socket, terms, private_data, active: false }))
    }

    /// Ends an opening that has failed. Returns the error to report.
    fn give_up_opening(&self, socket: DeviceSocket, failed: Failed) -> ConnectError {
        // A socket of the program's own stays open anyway.
        if failed.lingers && self.plan.addr.is_some() {
            self.linger(socket);
        }
        self.in_time(failed.error)
    }

    /// Returns the error to report where TCP's own patience is over: the peer did not answer.
    fn in_time(&self, error: ConnectError) -> ConnectError {
        match error {
            ConnectError::Tcp(error) if error.kind() == ErrorKind::TimedOut => {
                ConnectError::TimedOut(self.options.timeout)
            }
            other => other,
        }
    }
}

/// Returns the stage in which the program is to answer. Octets that come meanwhile are a fault
/// where the wire has a startup, and none where it has not.
fn wait_for_answer(socket: DeviceSocket, opening: Opening, asked: Asked) -> Next {
    let speaks = opening.asked_at_once().is_none();
    let interest = if speaks { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
    Next::Wait(Stage::Asked { socket, opening, asked }, interest)
}
