//! Changes of mode that the settings ask for. The one to Pipelined is made with the sends that need
//! it.

use super::Socket;
use crate::machine::Half;
use crate::transport::Transport;
use crate::wire::Mode;

impl<T: Transport> Socket<T> {
    /// Makes the change of mode that is wanted now, if there is one and nothing forbids it.
    pub(super) fn settle_modes(&mut self) -> bool {
        if self.is_mute || self.transport.room() == 0 {
            return false;
        }
        let Some((half, mode)) = self.wanted_mode() else { return false };
        let Ok(front) = self.machine().change_mode(half, mode) else { return false };
        self.was_buffered |= mode == Mode::Buffered;
        self.post(|transport| transport.send(&front, None))
    }

    fn wanted_mode(&mut self) -> Option<(Half, Mode)> {
        let (out, r#in) = (self.machine().out_mode(), self.machine().in_mode());
        if out == Mode::Combined && self.wants_buffered() {
            return Some((Half::Out, Mode::Buffered));
        }
        let is_idle = self.sends.is_empty() && self.machine().peer_prefers() == Mode::Combined;
        if self.config.returns_to_combined && out == Mode::Pipelined && is_idle {
            return Some((Half::Out, Mode::Combined));
        }
        (r#in == Mode::Buffered && self.wants_adverts()).then_some((Half::In, Mode::Combined))
    }

    /// Returns whether this end says that it will not advertise; once, as the peer may have changed
    /// the mode back since.
    fn wants_buffered(&self) -> bool {
        self.config.buffered && !self.was_buffered && self.config.source_threshold.is_none()
    }

    /// Returns whether a receive waits into which an advert could be Read.
    fn wants_adverts(&self) -> bool {
        let least = self.config.sink_threshold;
        self.receives.front().is_some_and(|op| {
            let lends = !op.options.non_blocking && !op.options.peek && !op.is_stopped;
            lends && least.is_some_and(|least| op.room() >= least.max(1))
        })
    }
}
