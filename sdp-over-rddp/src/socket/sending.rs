//! Sends: as Data, as adverts that the peer Reads, as Writes into the peer's adverts.

use super::operation::Offered;
use super::{Error, OperationId, Socket};
use crate::machine::{Blocked, Half, SourceState};
use crate::transport::{Memory, Remote, Transport};
use crate::wire::Mode;

impl<T: Transport> Socket<T> {
    /// Sends what the first send with octets left has, in one way or another.
    pub(super) fn begin_sends(&mut self) -> bool {
        if self.is_mute || self.transport.room() == 0 {
            return false;
        }
        let Some(at) = self.sends.iter().position(|op| op.left() > 0) else { return false };
        if !self.sends[at].options.urgent && self.machine().peer_sink().is_some() {
            return self.write(at);
        }
        if self.wants_advert(at) && (self.change_mode() || self.advertise_more(at)) {
            return true;
        }
        // A request that was refused has ended the connection, and the sends with it.
        self.over.is_none() && self.send_data(at)
    }

    /// Returns whether an operation's rest is to be advertised: blocking, long enough, and nothing
    /// of the peer's waits here.
    fn wants_advert(&mut self, at: usize) -> bool {
        let op = &self.sends[at];
        let long = self.config.source_threshold.is_some_and(|least| op.left() >= least.max(2));
        let lends = !op.options.non_blocking && !op.options.urgent && !op.copies;
        long && lends && self.machine().out_mode() != Mode::Buffered && self.unread().is_none()
    }

    /// Changes to Pipelined if more than one advert could be out.
    fn change_mode(&mut self) -> bool {
        if !self.config.pipelined || self.machine().out_mode() != Mode::Combined {
            return false;
        }
        let longest = self.longest_advert();
        let adverts: usize = self.sends.iter().map(|op| op.left().div_ceil(longest)).sum();
        if adverts < 2 {
            return false;
        }
        let Ok(front) = self.machine().change_mode(Half::Out, Mode::Pipelined) else { return false };
        self.post(|transport| transport.send(&front, None))
    }

    /// Returns the length of the longest advert, which has an octet at least behind an inline one.
    pub(super) fn longest_advert(&self) -> usize {
        self.config.longest_advert.min(self.transport.facts().longest).max(2) as usize
    }

    fn advertise_more(&mut self, at: usize) -> bool {
        // The change of mode in front of it may have ended the connection.
        self.over.is_none() && self.advertise(at)
    }

    fn advertise(&mut self, at: usize) -> bool {
        let inline = usize::from(self.machine().out_mode() == Mode::Combined);
        if self.machine().source_room().is_err() {
            return false;
        }
        let op = &self.sends[at];
        let start = op.sent;
        let len = op.left().min(self.longest_advert());
        let Ok(region) = self.transport.register_source(&op.memory, start..start + len) else {
            // No more can be registered, so that BCopy has to do.
            self.sends[at].copies = true;
            return false;
        };
        let Remote { stag, to } = self.transport.remote(&region);
        let Ok((source, front)) = self.machine().advertise_source(len as u32, inline, stag, to) else {
            self.transport.release(region);
            return false;
        };
        let since = self.now;
        let op = &mut self.sends[at];
        op.sent += len;
        op.adverts.push_back(Offered { source, at: start, taken: inline, region, since });
        let payload = (inline > 0).then_some((&op.memory, start..start + inline));
        let posted = self.transport.send(&front, payload);
        self.post(|_| posted)
    }

    fn send_data(&mut self, at: usize) -> bool {
        let room = match self.machine().data_room() {
            Ok(room) => room,
            Err(Blocked::Credits) => {
                self.machine().wait_for_credits();
                return false;
            }
            Err(_) => return false,
        };
        let op = &self.sends[at];
        let (start, len) = (op.sent, op.left().min(room));
        let urgent = op.options.urgent && len == op.left();
        let Ok(front) = self.machine().data(len, urgent) else { return false };
        let op = &mut self.sends[at];
        op.sent += len;
        let posted = self.transport.send(&front, Some((&op.memory, start..start + len)));
        self.post(|_| posted)
    }

    /// Writes octets of a send into the peer's oldest advert: long ones from where they are, others
    /// through a private buffer.
    fn write(&mut self, at: usize) -> bool {
        let Some(sink) = self.machine().peer_sink() else { return false };
        let op = &self.sends[at];
        let longest = self.transport.facts().longest;
        let (start, len) = (op.sent, op.left().min(sink.left.min(longest) as usize));
        let remote = Remote { stag: sink.stag, to: sink.to };
        let long = self.config.source_threshold.is_some_and(|least| len >= least.max(1));
        let lends = long && !op.options.non_blocking;
        let region =
            if lends { self.transport.register_source(&op.memory, start..start + len).ok() } else { None };
        let len = if region.is_some() { len } else { len.min(self.core.longest_payload()) };
        if self.machine().written(len as u32).is_err() {
            region.into_iter().for_each(|region| self.transport.release(region));
            return false;
        }
        let id = self.new_number();
        let op = &mut self.sends[at];
        op.sent += len;
        let posted = match region {
            Some(region) => {
                let posted = self.transport.write(id, &region, 0..len, remote);
                op.writes.push_back((id, region));
                posted
            }
            None => self.transport.write_copy(&op.memory, start..start + len, remote),
        };
        self.post(|_| posted)
    }

    /// Reports the peer's oldest advert as written when nothing is queued, or when an urgent octet
    /// has to go as Data.
    pub(super) fn complete_sink(&mut self) {
        let next = self.sends.iter().find(|op| op.left() > 0);
        if next.is_none_or(|op| op.options.urgent) {
            self.machine().complete_peer_sink();
        }
    }

    /// Takes the end of a Write from memory of the program.
    pub(super) fn written(&mut self, id: u64) {
        for op in &mut self.sends {
            if let Some(at) = op.writes.iter().position(|&(of, _)| of == id) {
                if let Some((_, region)) = op.writes.remove(at) {
                    self.transport.release(region);
                }
                return;
            }
        }
    }

    /// Takes back the registrations of adverts that the peer is through with. What came back of one
    /// is sent again, from its first octet that the peer does not have.
    pub(super) fn settle_sources(&mut self) {
        let mut out = 0;
        for at in 0..self.sends.len() {
            while let Some(id) = self.sends[at].adverts.front().map(|advert| advert.source) {
                let source = self.machine().source(id);
                let now = self.now;
                let op = &mut self.sends[at];
                let Some(advert) = op.adverts.front_mut() else { break };
                let done = source.done as usize;
                if done > advert.taken {
                    (advert.taken, advert.since) = (done, now);
                }
                match source.state {
                    SourceState::Out => break,
                    SourceState::Done => {}
                    _ => (op.sent, op.copies) = (op.sent.min(advert.at + done), true),
                }
                let Some(Offered { region, .. }) = op.adverts.pop_front() else { break };
                self.transport.release(region);
                // It is no longer out, so that nothing refuses this.
                let _ = self.machine().release_source(id);
                self.has_changed = true;
            }
            out += self.sends[at].adverts.len();
        }
        if out == 0 && self.receives.iter().all(|op| !op.is_lent() || !op.is_stopped) {
            self.cancel_since = None;
        }
    }

    /// Ends the sends of which everything was sent, or taken back.
    pub(super) fn finish_sends(&mut self) {
        let mut at = 0;
        while let Some(op) = self.sends.get(at) {
            if !op.is_over() {
                at += 1;
                continue;
            }
            let Some(op) = self.sends.remove(at) else { return };
            let error = op.error.filter(|_| op.sent < op.memory.len());
            self.end(op.id, op.sent, error);
        }
    }

    /// Takes an operation back, for this reason.
    pub(super) fn cancel_for(&mut self, id: OperationId, error: Error) {
        if let Some(op) = self.sends.iter_mut().find(|op| op.id == id) {
            (op.is_stopped, op.error) = (true, Some(error));
            if !op.adverts.is_empty() {
                self.cancel_sources();
            }
        } else if let Some(op) = self.receives.iter_mut().find(|op| op.id == id) {
            (op.is_stopped, op.error) = (true, Some(error));
            let (advertised, lent) = (op.sink.is_some(), op.is_lent());
            if advertised {
                // Refused where the advert has come back already.
                let _ = self.machine().cancel_sinks();
            }
            if lent {
                self.cancel_since.get_or_insert(self.now);
            }
        }
        self.drive();
    }

    /// Takes all adverts back. They count as out until the peer has answered.
    pub(super) fn cancel_sources(&mut self) {
        // Refused where they have come back already.
        let _ = self.machine().cancel_sources();
        self.cancel_since.get_or_insert(self.now);
    }
}
