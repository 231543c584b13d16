//! Adverts of this end: memory of receives into which the peer writes.

use super::Socket;
use crate::machine::{Machine, SinkState};
use crate::transport::{Remote, Transport};
use crate::wire::Mode;

impl<T: Transport> Socket<T> {
    /// Advertises the memory of receives that wait, in order.
    pub(super) fn advertise_sinks(&mut self) -> bool {
        let mut moved = false;
        if self.is_mute || !self.config.sink_adverts || !self.inbox.is_empty() || !self.ahead.is_empty() {
            return false;
        }
        for at in 0..self.receives.len() {
            let op = &self.receives[at];
            // The octets behind a short Write, or behind this advert, are this receive's, too.
            let is_last = op.options.wait_all || self.low_water > 1;
            if op.sink.is_some() && !is_last {
                continue;
            }
            let lends = !op.options.non_blocking && !op.options.peek && !op.is_stopped && !op.is_lent();
            let long = self.config.sink_threshold.is_some_and(|least| op.room() >= least.max(1));
            if !lends || !long || self.transport.room() == 0 || !self.advertise_sink(at) {
                break;
            }
            moved = true;
            if is_last {
                break;
            }
        }
        moved
    }

    fn advertise_sink(&mut self, at: usize) -> bool {
        let op = &self.receives[at];
        let len = op.room().min(self.longest_advert());
        let machine = Machine::new(&mut self.core, Some(&mut self.tables));
        // Looked at first, so that no registration is made in vain.
        let fits = machine.in_mode() == Mode::Pipelined && len >= machine.shortest_sink() as usize;
        if !fits || machine.peer_sources_pending() || machine.cancelling() {
            return false;
        }
        let part = op.filled..op.filled + len;
        let Ok(region) = self.transport.register_sink(&op.memory, part) else { return false };
        let Remote { stag, to } = self.transport.remote(&region);
        let Ok((id, front)) = self.machine().advertise_sink(len as u32, stag, to) else {
            self.transport.release(region);
            return false;
        };
        self.receives[at].sink = Some((id, region));
        self.post(|transport| transport.send(&front, None))
    }

    /// Takes back the registrations of adverts that the peer is through with.
    pub(super) fn settle_sinks(&mut self) {
        for at in 0..self.receives.len() {
            let Some(id) = self.receives[at].sink.as_ref().map(|(id, _)| *id) else { continue };
            let sink = self.machine().sink(id);
            if sink.state == SinkState::Out {
                continue;
            }
            let op = &mut self.receives[at];
            if let SinkState::Written(octets) = sink.state {
                op.filled += octets as usize;
                Machine::new(&mut self.core, Some(&mut self.tables)).octets_taken(octets.into());
            }
            let Some((_, region)) = op.sink.take() else { continue };
            self.transport.release(region);
            // It is no longer out, so that nothing refuses this.
            let _ = self.machine().release_sink(id);
            self.has_changed = true;
        }
    }
}
