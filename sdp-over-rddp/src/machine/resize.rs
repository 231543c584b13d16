//! Larger receive buffers, on request of the source.

use super::conn::{due, flag};
use super::{Blocked, Machine, Received};

impl Machine<'_> {
    /// Asks the peer for receive buffers of `size` octets, base header included: a `ChRcvBuf`
    /// becomes due.
    ///
    /// # Errors
    /// A request is unanswered, or the peer's buffers are as large.
    pub fn request_buffer_size(&mut self, size: u32) -> Result<(), Blocked> {
        if self.core.is(flag::RESIZING) || self.core.is_due(due::RESIZE) {
            return Err(Blocked::Control);
        }
        if size <= self.core.peer_buf_size {
            return Err(Blocked::Length);
        }
        self.core.wanted_size = size;
        self.core.set_due(due::RESIZE, true);
        Ok(())
    }

    /// Answers the peer's requests for larger buffers with the size in force: `None` leaves it as
    /// it is. A larger one is told only when every buffer that is posted has it.
    pub fn answer_buffer_size(&mut self, size: Option<u32>) {
        let core = &mut *self.core;
        core.buf_size = core.buf_size.max(size.unwrap_or(0));
        core.resizes_due = core.resizes_due.saturating_add(core.resizes_asked);
        core.resizes_asked = 0;
    }

    pub(super) fn take_resize(&mut self, size: u32) -> Received {
        self.core.resizes_asked = self.core.resizes_asked.saturating_add(1);
        Received::LargerBuffersWanted { size }
    }

    pub(super) fn take_resize_ack(&mut self, size: u32) -> Received {
        // One that nobody asked for means nothing.
        if !self.core.is(flag::RESIZING) {
            return Received::Nothing;
        }
        self.core.set(flag::RESIZING, false);
        if size <= self.core.peer_buf_size {
            return Received::Nothing;
        }
        self.core.peer_buf_size = size;
        Received::LongerMessages
    }
}
