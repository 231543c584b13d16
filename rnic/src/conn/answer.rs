//! Startups in which the program answers the Request ([`QueuePair::begin_asking`]; RFC 5044
//! §7.1.2).
//!
//! The background thread reads the Request and reports it by an event. Until the program answers,
//! it ends the startup if the peer closes TCP or sends more. The thread that answers writes the
//! Reply. `ConnectOptions::timeout` limits the time of all this together.

use std::os::fd::{AsFd, OwnedFd};

use rddp_rdma::ConnectOptions;

use super::begin::Part;
use super::socket::DeviceSocket;
use super::stage::{Done, Stage};
use super::startup::Startup;
use crate::error::{AnswerError, ConnectError};
use crate::qp::QueuePair;
use crate::wire::opening::{close, closed_or};

/// A program's answer to a Request.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
/// use std::time::Duration;
/// use rddp_rnic::{Answer, ConnectOptions, QpConfig, Rnic};
/// let rnic = Rnic::open()?;
/// let (pd, cq, options) = (rnic.alloc_pd(), rnic.create_cq(16)?, ConnectOptions::default());
/// let [active, passive] = [pd.create_qp(&QpConfig::new(&cq))?, pd.create_qp(&QpConfig::new(&cq))?];
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// active.begin(TcpStream::connect(listener.local_addr()?)?, &options, true)?;
/// passive.begin_asking(listener.accept()?.0, &options)?;
///
/// // The first event is `Requested`.
/// rnic.wait_async_event(Some(Duration::from_secs(5)))?.ok_or("no Request")?;
/// let request = passive.request().ok_or("no Request")?;
/// let answer = if request.private_data.is_empty() { Answer::Accept } else { Answer::Reject };
/// passive.answer(answer, b"welcome")?;
/// # active.await_begun(Duration::from_secs(5));
/// assert_eq!(active.begun().ok_or("not in time")??.private_data, b"welcome");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The connection is accepted.
    Accept,
    /// The connection is rejected.
    Reject,
}

impl QueuePair {
    /// Begins a startup as the passive end, as [`begin`](Self::begin) does, and leaves the answer
    /// to the program: the event [`Requested`](crate::AsyncEventKind::Requested) reports that the
    /// peer's Request has come, [`request`](Self::request) returns it, and [`answer`](Self::answer)
    /// answers it.
    ///
    /// # Errors
    /// The QP is not idle, or `stream` is no TCP socket or listens.
    pub fn begin_asking(
        &self,
        stream: impl Into<OwnedFd>,
        options: &ConnectOptions,
    ) -> Result<(), ConnectError> {
        self.begin_as(DeviceSocket::of(stream, options)?, options, Part::Asking)
    }

    /// Answers the Request. After [`Answer::Accept`] the event
    /// [`Connected`](crate::AsyncEventKind::Connected) follows, or
    /// [`NotConnected`](crate::AsyncEventKind::NotConnected) where the peer has left meanwhile.
    /// After [`Answer::Reject`] it is `NotConnected` in any case.
    ///
    /// A peer that was rejected is to close first, and has two seconds for that, as with
    /// [`ConnectRequest::reject`](crate::ConnectRequest::reject).
    ///
    /// # Errors
    /// No Request waits for an answer, or the Reply cannot hold `private_data`: then the Request
    /// still waits.
    pub fn answer(&self, answer: Answer, private_data: &[u8]) -> Result<(), AnswerError> {
        let startup = self.inner.here()?.startup().lock().clone();
        startup.ok_or(AnswerError::NoRequest)?.answer(answer, private_data)
    }
}

impl Startup {
    fn answer(&self, answer: Answer, private_data: &[u8]) -> Result<(), AnswerError> {
        let mut place = self.stage.lock();
        // In the stage `Answered` the background thread leaves the socket to this thread.
        let (socket, opening, asked) = match std::mem::replace(&mut *place, Stage::Answered) {
            Stage::Asked { socket, opening, asked } => (socket, opening, asked),
            Stage::Answered => return Err(AnswerError::Answered),
            other => {
                *place = other;
                return Err(AnswerError::NoRequest);
            }
        };
        let reply = match answer {
            Answer::Accept => asked.accept(&self.options, private_data),
            Answer::Reject => asked.reject(&self.options, private_data),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(misuse) => {
                *place = Stage::Asked { socket, opening, asked };
                return Err(misuse.into());
            }
        };
        drop(place);
        let driver = &self.device.driver;
        match reply.send(&socket) {
            Err(error) => self.fail(driver, close(&socket, closed_or(error))),
            Ok(Some(terms)) => {
                let private_data = asked.private_data().to_vec();
                self.succeed(driver, Done { socket, terms, private_data, active: false });
            }
            Ok(None) => {
                self.linger(socket);
                self.fail(driver, ConnectError::Declined);
            }
        }
        Ok(())
    }

    /// Keeps a rejected connection until its peer has closed it.
    pub(super) fn linger(&self, socket: DeviceSocket) {
        self.device.driver.unwatch(socket.as_fd());
        self.device.rejected.add_rejected(&self.device.driver, socket);
    }
}
