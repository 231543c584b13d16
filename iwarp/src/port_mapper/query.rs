//! The client of the port mapper: one question.

use core::net::SocketAddr;
use core::time::Duration;

use super::{Frame, FrameOctets, Kind};

/// A question that is under way.
///
/// The caller sends what [`next_try`](Self::next_try) returns, at first at once and then at
/// [`due`](Self::due), and hands in what arrives from the mapper by [`receive`](Self::receive).
#[derive(Clone, Debug)]
pub struct Query {
    request: Frame,
    /// The times to wait of the tries that have not been made yet.
    tries: core::slice::Iter<'static, Duration>,
    due: Duration,
}

/// A port mapper's answer.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The service is at this port. The mapper is to be told that this was heard.
    Mapped {
        /// The port to connect to.
        port: u16,
        /// The message that tells the mapper.
        acknowledge: FrameOctets,
    },
    /// The mapper does not know the service.
    Unknown,
}

impl Query {
    /// Asks for the port of the service `ap` in the name of `cp`, the address and port that will
    /// connect, of the same family. Nobody else may know `handle`. `tries` has the time that each
    /// try waits: [`TRIES`](super::TRIES), or less patient ones.
    #[must_use]
    pub fn new(ap: SocketAddr, cp: SocketAddr, handle: u64, tries: &'static [Duration]) -> Self {
        let request = Frame { kind: Kind::Request, time: 0, ap, cp, handle, mapped_cp: None };
        Self { request, tries: tries.iter(), due: Duration::ZERO }
    }

    /// Returns the service that was asked for.
    #[must_use]
    pub fn service(&self) -> SocketAddr {
        self.request.ap
    }

    /// Returns the end of the present try.
    #[must_use]
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Returns the Request for the next try, which begins now; `None` when all have been made.
    pub fn next_try(&mut self, now: Duration) -> Option<FrameOctets> {
        self.due = now.saturating_add(*self.tries.next()?);
        Some(self.request.octets())
    }

    /// Takes a datagram. Returns the answer to the question, if it is that.
    #[must_use]
    pub fn receive(&self, datagram: &[u8]) -> Option<Answer> {
        let frame = Frame::parse(datagram).ok().filter(|frame| frame.handle == self.request.handle)?;
        match frame.kind {
            Kind::Accept if frame.ap.port() != 0 => Some(Answer::Mapped {
                port: frame.ap.port(),
                acknowledge: Frame { kind: Kind::Acknowledge, ..frame }.octets(),
            }),
            // A mapping to port 0 is none. Other kinds are no answers, but of this handle nobody
            // else knows, so that the mapper has nothing better to say.
            _ => Some(Answer::Unknown),
        }
    }
}
