//! Messages that arrive.

use super::{Error, Piece, Socket, Storage};
use crate::machine::Received;
use crate::transport::{Buffer, Transport};
use crate::wire::{FormatError, LONGEST_CONTROL, Message};

impl<T: Transport> Socket<T> {
    /// Takes a message that lies in a private buffer.
    pub(super) fn arrived(&mut self, buffer: Buffer, len: usize) {
        self.is_mute = false;
        self.closing.heard_at = self.now;
        if let Err(error) = self.take_message(buffer, len) {
            self.fail(error);
        }
    }

    fn take_message(&mut self, buffer: Buffer, len: usize) -> Result<(), Error> {
        let mut front = [0; LONGEST_CONTROL];
        let front = &mut front[..len.min(LONGEST_CONTROL)];
        self.transport.peek(buffer, 0, front);
        let message = Message::parse(front).map_err(Error::Format)?;
        if message.header.len as usize != len {
            let error = FormatError::LenMismatch { len: message.header.len, arrived: len };
            return Err(Error::Format(error));
        }
        if message.payload_len == 0 {
            // Posted again before any message can say that it is.
            self.transport.repost(buffer).map_err(|_| Error::Reset)?;
        }
        let received = self.machine().receive(&message).map_err(Error::Violation)?;
        if message.payload_len > 0 {
            let urgent = message.header.flags.contains(crate::wire::Flags::OOB_PRES);
            let from = message.header_len();
            if urgent {
                self.urgent_arrived(buffer, len - 1);
            }
            let piece = Piece { storage: Storage::Buffer(buffer), from, to: len, urgent };
            self.has_changed = true;
            match received {
                Received::DataIntoSink { sink, .. } => self.data_instead_of_write(sink, piece)?,
                _ => self.inbox.push_back(piece),
            }
        }
        self.heard(received)
    }

    fn heard(&mut self, received: Received) -> Result<(), Error> {
        match received {
            Received::Disconnected => {
                self.closing.peer_has_closed = true;
                self.has_changed = true;
            }
            Received::Aborted => return Err(Error::Reset),
            Received::LargerBuffersWanted { size } => self.grow_buffers(size),
            Received::SinkWritten { .. } => self.sink_was_written()?,
            _ => self.has_changed = true,
        }
        Ok(())
    }

    /// Has the buffers grow for the peer. The answer waits until all have: a message is as long as
    /// the answer says from then on.
    fn grow_buffers(&mut self, size: u32) {
        let size = size.min(self.config.largest_buffer);
        if size > self.core.buf_size() && self.transport.grow_buffers(size) {
            self.is_growing = true;
        } else if !self.is_growing {
            // The size in force is the answer.
            self.machine().answer_buffer_size(None);
        }
    }

    /// Answers a request for larger buffers once all have grown, and no advert is out that the
    /// peer's longer messages would not fit into.
    pub(super) fn answer_growth(&mut self) {
        let size = self.transport.smallest_buffer();
        let advertises = self.receives.iter().any(|op| op.sink.is_some());
        if self.is_growing && !advertises && size > self.core.buf_size() {
            self.is_growing = false;
            self.machine().answer_buffer_size(Some(size));
        }
    }
}
