//! Modes of the two half-connections, and their changes.

use super::conn::{due, flag};
use super::tables::{count, state};
use super::{Blocked, Machine, Received, Violation};
use crate::wire::{Body, Flags, Front, Mode};

/// A half-connection, as this end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// This end sends there: it is the source.
    Out,
    /// The peer sends there: this end is the sink.
    In,
}

/// Returns whether a mode follows another, by a `ModeChange` of the source or of the sink.
pub(super) fn transition(from: Mode, to: Mode, by_source: bool) -> bool {
    match (from, to) {
        (Mode::Buffered, Mode::Combined) => !by_source,
        (Mode::Combined, Mode::Buffered | Mode::Pipelined) | (Mode::Pipelined, Mode::Combined) => by_source,
        _ => false,
    }
}

fn mode(number: u32) -> Mode {
    match number {
        0 => Mode::Buffered,
        2 => Mode::Pipelined,
        _ => Mode::Combined,
    }
}

impl Machine<'_> {
    /// Returns the mode of the half on which this end sends.
    #[must_use]
    pub fn out_mode(&self) -> Mode {
        mode(self.core.out_mode)
    }

    /// Returns the mode of the half on which the peer sends.
    #[must_use]
    pub fn in_mode(&self) -> Mode {
        mode(self.core.in_mode)
    }

    /// Returns the mode that the peer would like for the half on which this end sends: a hint.
    #[must_use]
    pub fn peer_prefers(&self) -> Mode {
        if self.core.is(flag::PEER_PREFERS_PIPELINED) { Mode::Pipelined } else { Mode::Combined }
    }

    /// Tells the peer, with the next reports of Reads, whether this end would like Pipelined for
    /// the half on which the peer sends.
    pub fn prefer_pipelined(&mut self, pipelined: bool) {
        self.core.set(flag::PREFERS_PIPELINED, pipelined);
    }

    /// Makes a `ModeChange`; the mode has then changed at this end. The source goes from Combined
    /// to Buffered and Pipelined, and from Pipelined to Combined; the sink from Buffered to
    /// Combined.
    ///
    /// # Errors
    /// There is no such change, adverts are out that forbid it, or it cannot be sent now.
    pub fn change_mode(&mut self, half: Half, to: Mode) -> Result<Front, Blocked> {
        let by_source = half == Half::Out;
        let from = if by_source { self.out_mode() } else { self.in_mode() };
        let closed = if by_source { flag::DISCONN_SENT } else { flag::DISCONN_RECEIVED };
        if self.core.is(closed | flag::ABORTED) {
            return Err(Blocked::Closed);
        }
        if !transition(from, to, by_source) {
            return Err(Blocked::Mode);
        }
        if by_source {
            self.may_leave(from, to)?;
        }
        self.need_control_credits()?;
        Ok(self.changed(half, from, to))
    }

    /// The preconditions of the source's changes.
    fn may_leave(&self, from: Mode, to: Mode) -> Result<(), Blocked> {
        if to != Mode::Pipelined && count(self.adverts().sources, state::OUT) > 0 {
            return Err(Blocked::Source);
        }
        if from == Mode::Pipelined && self.peer_sinks_here() {
            return Err(Blocked::PeerSink);
        }
        // One change to Combined at a time: SinkAvails that cross it are known by its number.
        if self.core.is_due(due::SINK_CANCEL_ACK)
            || from == Mode::Pipelined && self.core.is(flag::CHANGE_UNSEEN)
        {
            return Err(Blocked::Control);
        }
        Ok(())
    }

    fn changed(&mut self, half: Half, from: Mode, to: Mode) -> Front {
        let core = &mut *self.core;
        match half {
            Half::Out => core.out_mode = to as u32,
            Half::In => core.in_mode = to as u32,
        }
        if from == Mode::Pipelined {
            core.set(flag::CHANGE_UNSEEN, true);
            core.change_mseq = core.next_mseq;
            core.non_discards_at_change = core.sent_non_discards;
        }
        let body = Body::ModeChange { of_receivers_half: half == Half::In, mode: to };
        self.front(body, 0, Flags::empty())
    }

    pub(super) fn take_mode_change(&mut self, of_out_half: bool, to: Mode) -> Result<Received, Violation> {
        let half = if of_out_half { Half::Out } else { Half::In };
        let from = if of_out_half { self.out_mode() } else { self.in_mode() };
        if !transition(from, to, !of_out_half) {
            return Err(Violation::ModeChange);
        }
        if of_out_half {
            self.core.out_mode = to as u32;
            return Ok(Received::ModeChanged { half, mode: to });
        }
        if to != Mode::Pipelined && self.peer_sources_pending() {
            return Err(Violation::ModeChangeUnderSource);
        }
        self.core.in_mode = to as u32;
        // SinkAvails that are still out crossed it: the source drops them.
        if from == Mode::Pipelined {
            self.return_sinks();
        }
        Ok(Received::ModeChanged { half, mode: to })
    }
}
