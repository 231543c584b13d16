//! The server of the port mapper: answers Requests, and repeats an answer until it is acknowledged.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use super::{Frame, FrameOctets, Kind};

/// The most answers that a server keeps at a time. Requests beyond them are answered once, and
/// again when they are repeated.
pub const LONGEST_KEPT: usize = 1024;

/// A port mapper for many clients.
///
/// The caller hands in datagrams by [`receive`](Self::receive) and sends what it returns; at
/// [`due`](Self::due) it sends what [`repeat`](Self::repeat) returns, until that is nothing.
#[derive(Clone, Debug)]
pub struct Server {
    /// The time that each try waits for its acknowledgement.
    tries: &'static [Duration],
    /// The answers of late, the oldest first.
    kept: VecDeque<Kept>,
}

/// An Accept that was sent.
#[derive(Clone, Debug)]
struct Kept {
    client: SocketAddr,
    frame: Frame,
    /// Tries that have been made.
    made: usize,
    due: Duration,
    is_acknowledged: bool,
}

impl Server {
    /// Returns a server that repeats an Accept after each of `tries` ([`TRIES`](super::TRIES)), and
    /// forgets it after the last.
    #[must_use]
    pub fn new(tries: &'static [Duration]) -> Self {
        Self { tries, kept: VecDeque::new() }
    }

    /// Takes a datagram of `client`. Returns the answer, if there is one: an Accept with the port
    /// that `lookup` returns for the service, or a Reject. A Request that is repeated gets the
    /// answer that it had, whatever `lookup` says now.
    pub fn receive(
        &mut self,
        now: Duration,
        client: SocketAddr,
        datagram: &[u8],
        lookup: impl FnOnce(SocketAddr) -> Option<u16>,
    ) -> Option<FrameOctets> {
        let frame = Frame::parse(datagram).ok()?;
        let kept =
            self.kept.iter_mut().find(|kept| (kept.client, kept.frame.handle) == (client, frame.handle));
        match (frame.kind, kept) {
            (Kind::Request, Some(kept)) => Some(kept.frame.octets()),
            (Kind::Request, None) => Some(self.answer(now, client, &frame, lookup)),
            (Kind::Acknowledge, Some(kept)) => {
                kept.is_acknowledged = true;
                None
            }
            _ => None,
        }
    }

    fn answer(
        &mut self,
        now: Duration,
        client: SocketAddr,
        request: &Frame,
        lookup: impl FnOnce(SocketAddr) -> Option<u16>,
    ) -> FrameOctets {
        let Some(port) = lookup(request.ap).filter(|port| *port != 0) else {
            return request.answer(Kind::Reject, request.ap.port()).octets();
        };
        let frame = request.answer(Kind::Accept, port);
        if let Some(wait) = self.tries.first().filter(|_| self.kept.len() < LONGEST_KEPT) {
            let due = now.saturating_add(*wait);
            self.kept.push_back(Kept { client, frame, made: 1, due, is_acknowledged: false });
        }
        frame.octets()
    }

    /// Returns the next time at which [`repeat`](Self::repeat) is to be called.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.kept.iter().map(|kept| kept.due).min()
    }

    /// Returns an answer that is to be sent again, and to whom; `None` when there is none for now.
    /// An answer that has been acknowledged is kept as long as others, for Requests that were
    /// repeated on the way, but not sent again.
    pub fn repeat(&mut self, now: Duration) -> Option<(SocketAddr, FrameOctets)> {
        while let Some(at) = self.kept.iter().position(|kept| kept.due <= now) {
            let kept = &mut self.kept[at];
            match self.tries.get(kept.made) {
                None => {
                    self.kept.remove(at);
                }
                Some(wait) => {
                    kept.made += 1;
                    kept.due = now.saturating_add(*wait);
                    if !kept.is_acknowledged {
                        return Some((kept.client, kept.frame.octets()));
                    }
                }
            }
        }
        None
    }
}
