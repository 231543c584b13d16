//! Memory for messages that this end waits for: posted receives, and the sinks of its Reads.
//!
//! The program places the payload of a Send only into the receive that its MSN names, and that of a
//! Read Response only into a sink that its STag and Tagged Offset lie in. Both are told to it
//! before the peer can know of them, and taken back before this end's program is told that the
//! message is there: from then on the octets are that program's own.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use super::Placing;
use super::connection::{RECEIVES_AT, SINKS_AT};
use crate::layout::{RECEIVES, SINKS, SLOT_OPEN, Slot};

/// Memory for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// STag of the region, which must be open to this end's own requests
    /// ([`Scope::own`](super::Scope::own)).
    pub stag: u32,
    /// Tagged Offset of the first octet.
    pub to: u64,
    /// Number of octets.
    pub len: u32,
}

impl Placing {
    /// Opens memory for the message that has this MSN on queue 0. Of so many messages in a row as
    /// there are slots ([`RECEIVES`]) each has one; what a slot had before must be closed.
    pub fn open_receive(&mut self, msn: u32, memory: &Awaited) {
        self.open(receive(msn), u64::from(msn) << 32 | SLOT_OPEN, memory);
    }

    /// Closes what was opened for that message. When this returns, nothing is placed there any
    /// more, nor being placed.
    pub fn close_receive(&mut self, msn: u32) {
        self.close(receive(msn), u64::from(msn) << 32 | SLOT_OPEN);
    }

    /// Opens the sink of the Read with this number. If all slots are taken, its Response is left to
    /// user level.
    pub fn open_sink(&mut self, id: u64, memory: &Awaited) {
        if let Some(free) = self.sinks.iter().position(Option::is_none) {
            self.sinks[free] = Some(id);
            self.open(sink(free), SLOT_OPEN, memory);
        }
    }

    /// Closes the sink of that Read, if it has a slot. When this returns, nothing is placed there
    /// any more, nor being placed.
    pub fn close_sink(&mut self, id: u64) {
        if let Some(found) = self.sinks.iter().position(|of| *of == Some(id)) {
            self.sinks[found] = None;
            self.close(sink(found), SLOT_OPEN);
        }
    }

    fn open(&self, slot: usize, name: u64, memory: &Awaited) {
        self.u64(slot + offset_of!(Slot, to)).store(memory.to, Ordering::Relaxed);
        self.u32(slot + offset_of!(Slot, stag)).store(memory.stag, Ordering::Relaxed);
        self.u32(slot + offset_of!(Slot, len)).store(memory.len, Ordering::Relaxed);
        self.u64(slot + offset_of!(Slot, name)).store(name, Ordering::Release);
    }

    fn close(&self, slot: usize, name: u64) {
        let its = self.u64(slot + offset_of!(Slot, name));
        if its.load(Ordering::Relaxed) == name {
            its.store(0, Ordering::SeqCst);
            self.wait();
        }
    }
}

/// Returns the offset of the slot for a message.
fn receive(msn: u32) -> usize {
    RECEIVES_AT + (msn % RECEIVES) as usize * size_of::<Slot>()
}

/// Returns the offset of a slot for a sink.
fn sink(number: usize) -> usize {
    debug_assert!(number < SINKS as usize);
    SINKS_AT + number * size_of::<Slot>()
}
