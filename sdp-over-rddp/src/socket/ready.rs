//! The readiness of a socket, for a program that waits for several.

use super::{Error, Socket};
use crate::transport::Transport;

/// The readiness of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A receive would end at once, with octets, at the end of the stream or with an error; or
    /// an advert of the peer is there, of which a receive that may not wait has a part Read first.
    pub reads: bool,
    /// Octets that such a receive could have.
    pub octets: usize,
    /// A send would take octets at once, or end with an error.
    pub writes: bool,
    /// The peer sends no more.
    pub peer_has_closed: bool,
    /// The connection is over, for this reason.
    pub over: Option<Error>,
}

impl<T: Transport> Socket<T> {
    /// Returns what could be done now.
    #[must_use]
    pub fn ready(&mut self) -> Ready {
        Ready {
            reads: self.over.is_some() || self.has_octets() || self.at_end() || self.is_to_read(),
            octets: self.inbox.iter().map(|piece| piece.to - piece.from).sum(),
            writes: self.send_refused().is_some() || self.has_room(),
            peer_has_closed: self.closing.peer_has_closed,
            over: self.over,
        }
    }

    fn is_to_read(&mut self) -> bool {
        self.ahead.is_empty() && self.unread().is_some()
    }

    fn has_room(&mut self) -> bool {
        let may_send = !self.is_mute && self.sends.is_empty() && self.transport.room() > 0;
        may_send && (self.machine().data_room().is_ok() || self.machine().peer_sink().is_some())
    }
}
