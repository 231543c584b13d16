//! The urgent octet of the peer, which is received apart from the stream, as over TCP.

use super::{Error, Piece, Socket, Storage};
use crate::machine::Urgent;
use crate::transport::{Buffer, Transport};

/// The urgent octet that came last.
#[derive(Debug, Default)]
pub(super) struct UrgentOctet {
    /// The octet, until it was received.
    octet: Option<u8>,
    /// Urgent octets stay in the stream.
    pub(super) is_inline: bool,
}

impl<T: Transport> Socket<T> {
    /// Returns what is known of urgent octets of the peer.
    #[must_use]
    pub fn urgent(&mut self) -> Urgent {
        self.machine().urgent()
    }

    /// Leaves urgent octets in the stream (`SO_OOBINLINE`); else a receive skips them.
    pub fn set_urgent_inline(&mut self, inline: bool) {
        self.urgent.is_inline = inline;
        self.drive();
    }

    /// Receives the urgent octet apart from the stream; with `peek` it stays.
    ///
    /// # Errors
    /// [`Error::NoUrgent`]: there is none, it was received before, or urgent octets are in the
    /// stream. [`Error::WouldBlock`]: it is announced and has not come.
    pub fn receive_urgent(&mut self, peek: bool) -> Result<u8, Error> {
        if self.urgent.is_inline {
            return Err(Error::NoUrgent);
        }
        match self.machine().urgent() {
            Urgent::None => Err(Error::NoUrgent),
            Urgent::Announced => Err(Error::WouldBlock),
            Urgent::Mark(_) => {
                let octet = self.urgent.octet.ok_or(Error::NoUrgent)?;
                self.urgent.octet = if peek { Some(octet) } else { None };
                Ok(octet)
            }
        }
    }

    /// Takes note of an urgent octet in a buffer. One from before that is still in the stream stays
    /// there, as over TCP.
    pub(super) fn urgent_arrived(&mut self, buffer: Buffer, at: usize) {
        for piece in &mut self.inbox {
            piece.urgent = false;
        }
        let mut octet = [0];
        self.transport.peek(buffer, at, &mut octet);
        self.urgent.octet = Some(octet[0]);
    }

    /// Returns whether there are octets in private memory that a receive would return.
    pub(super) fn has_octets(&self) -> bool {
        let skips = |piece: &Piece<T>| piece.urgent && !self.urgent.is_inline;
        self.inbox.iter().any(|piece| piece.to - piece.from > usize::from(skips(piece)))
    }

    /// Drops urgent octets that the stream stands at, unless they are part of it. Returns whether
    /// there was one.
    pub(super) fn skip_urgent(&mut self) -> bool {
        let is_at_mark = |piece: &Piece<T>| piece.urgent && piece.to - piece.from == 1;
        if self.urgent.is_inline || !self.inbox.front().is_some_and(is_at_mark) {
            return false;
        }
        let Some(piece) = self.inbox.pop_front() else { return false };
        debug_assert!(matches!(piece.storage, Storage::Buffer(_)), "adverts have no urgent octets");
        self.machine().octets_taken(1);
        self.free(piece);
        true
    }
}
