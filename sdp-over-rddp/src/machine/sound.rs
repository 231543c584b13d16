//! Checks of state that others could write, before it is worked with; and its layout.

use std::mem::offset_of;

use super::conn::{due, flag};
use super::tables::{ADVERTS, OwnSink, OwnSource, ReadFrom, WriteTo, state};
use super::{Core, Tables};
use crate::layout::{Field, Structure, fields};
use crate::wire::LONGEST_CONTROL;

impl Core {
    /// The fields, for memory that two builds may share.
    #[doc(hidden)]
    pub const FIELDS: &[Field] = fields!(Core: in_octets, taken_octets, mark, flags, due, next_mseq,
        received, acked, peer_bufs, bufs, taken_bufs, shown, held_ack, buf_size, send_size,
        peer_buf_size, max_adverts, peer_max_adverts, out_mode, in_mode, sent_non_discards,
        non_discards_at_change, received_non_discards, change_mseq, disconn_mseq, source_cancel_mseq,
        sink_cancel_mseq, wanted_size, resizes_asked, resizes_due);

    /// Returns whether these octets can be the state of a connection, or are unused (all zero).
    /// State that is sound is safe to work with, whatever it says.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        if !self.in_use() {
            return *self == Self::default();
        }
        let sizes = [self.buf_size, self.send_size, self.peer_buf_size];
        self.flags & !flag::ALL == 0
            && self.due & !due::ALL == 0
            && sizes.iter().all(|size| *size as usize >= LONGEST_CONTROL)
            && self.bufs <= u16::MAX.into()
            && self.peer_bufs <= u16::MAX.into()
            && self.taken_bufs <= self.bufs
            && (1..=ADVERTS as u32).contains(&self.max_adverts)
            && (1..=u8::MAX.into()).contains(&self.peer_max_adverts)
            && self.out_mode <= 2
            && self.in_mode <= 2
            && self.next_mseq.wrapping_sub(1).wrapping_sub(self.acked) <= u16::MAX.into()
    }
}

impl Tables {
    /// The structures by their offsets, for memory that two builds may share.
    #[doc(hidden)]
    pub const STRUCTURES: [Structure; 5] = [
        (0, fields!(Tables: sources, sinks, peer_sources, peer_sinks)),
        (offset_of!(Self, sources), fields!(OwnSource: state, mseq, len, inline, done, queued)),
        (offset_of!(Self, sinks), fields!(OwnSink: state, mseq, len, done)),
        (
            offset_of!(Self, peer_sources),
            fields!(ReadFrom: to, state, mseq, stag, len, asked, read, reported, reserved),
        ),
        (offset_of!(Self, peer_sinks), fields!(WriteTo: to, state, mseq, stag, len, written, reserved)),
    ];

    /// Returns whether these octets can be the adverts of a connection. What is sound is safe to
    /// work with, true or not.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.sources.iter().all(|it| it.state <= state::RETURNED && it.inline <= it.done && it.done <= it.len)
            && self.sinks.iter().all(|it| it.state <= state::DISCARDED && it.done <= it.len)
            && self.peer_sources.iter().all(|it| {
                let counts = it.reported <= it.read && it.read <= it.asked && it.asked <= it.len;
                it.state <= state::OUT && counts && it.to.checked_add(it.len.into()).is_some()
            })
            && self.peer_sinks.iter().all(|it| {
                let counts = it.written <= it.len;
                it.state <= state::DONE && counts && it.to.checked_add(it.len.into()).is_some()
            })
    }
}
