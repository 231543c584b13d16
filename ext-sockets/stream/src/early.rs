//! Octets that the program sends before FPDUs may flow.
//!
//! TCP takes the first write as soon as it is connected. So do we: up to 16 KiB are kept as they
//! are, for their framing is not known yet, and framed by whoever comes by when this end may send:
//! behind the startup frame and the RTR of an initiator; behind the first good FPDU of the peer's
//! at a responder (RFC 5044 §7.1.2 r4).

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use super::options::{Plain, Role};
use super::sink::Source;
use super::state::{Phase, Tx};
use super::sys::Scratch;
use super::{Errno, Stream};

impl Stream<'_> {
    /// Keeps the first of these octets, as many as there is room for. How many; `EAGAIN` when none.
    pub(super) fn send_early(&self, source: &Source<'_>, more: bool) -> Result<usize, Errno> {
        if self.may_not_keep() {
            return Err(Errno::WOULD_BLOCK);
        }
        let mut tx = self.lock_tx()?;
        if self.state.may_send.load(Ordering::Acquire) || self.state.phase() == Phase::Plain {
            drop(tx);
            return if self.establish()? { self.push(*source, more) } else { Err(Errno::WOULD_BLOCK) };
        }
        if tx.fin_due {
            return Err(Errno::BROKEN_PIPE);
        }
        if source.left() == 0 {
            return Ok(0);
        }
        let (mut wanted, mut count) = (0, 0);
        if let Some(room) = tx.early_room() {
            wanted = room.len().min(source.left());
            let mut source = *source;
            count = source.copy_some(&mut room[..wanted]);
        }
        tx.early_added(count);
        // What was not taken, for want of a block too, waits until there is leave to send.
        self.state.early_full.store(wanted < source.left() || tx.early_is_full(), Ordering::Release);
        self.state.note_owed(&tx);
        match count {
            0 if wanted > 0 => Err(Errno::FAULT),
            0 => Err(Errno::WOULD_BLOCK),
            _ => Ok(count),
        }
    }

    /// An initiator's connection to a plain peer is made anew, and would lose them.
    fn may_not_keep(&self) -> bool {
        let asked = &self.state.asked;
        asked.role() == Role::Initiator && asked.plain() == Plain::Allowed
    }

    /// Returns whether a send would take at least one octet before there is leave to send.
    pub(super) fn takes_early(&self) -> bool {
        !self.may_not_keep()
            && !self.state.early_full.load(Ordering::Acquire)
            && self.is_connected()
            && self.may_say_more()
    }

    /// `TCP_NOTSENT_LOWAT` counts what was kept as not sent.
    fn may_say_more(&self) -> bool {
        let unsent = self.unsent();
        unsent == 0 || unsent < self.kernel.most_not_sent()
    }

    /// Frames what was kept, and gives TCP what it takes. Whether that was all.
    pub(super) fn frame_early(&self, tx: &mut Tx) -> Result<bool, Errno> {
        if tx.early().is_empty() {
            return Ok(true);
        }
        let mut octets = Scratch::take()?;
        let count = tx.early().len();
        octets[..count].copy_from_slice(tx.early());
        let pieces = [IoSlice::new(&octets[..count])];
        let mut source = Source::new(&pieces);
        // A process that dies here leaves nobody who knows which of them were framed.
        tx.framing = true;
        let framed = self.push_source(tx, &mut source, false);
        tx.early_framed(count - source.left());
        let framed = match framed {
            Err(Errno::INTERRUPTED) => Ok(false),
            // For want of memory: they wait for a better time.
            Ok(_) | Err(Errno::NO_BUFFERS) => framed,
            // TCP takes no more from anyone.
            Err(error) => {
                tx.drop_early();
                Err(error)
            }
        };
        tx.framing = false;
        self.state.early_full.store(tx.early_is_full(), Ordering::Release);
        framed
    }

    /// The peer is a plain one: what was kept goes out as it is, before any octet of a later call,
    /// and so does the end. Whether that was all.
    pub(super) fn send_early_plain(&self) -> Result<bool, Errno> {
        let mut tx = self.lock_tx()?;
        while !tx.early().is_empty() {
            tx.framing = true;
            let sent = self.kernel.send(&[IoSlice::new(tx.early())], 0);
            if let Ok(count) = sent {
                tx.early_framed(count);
            }
            tx.framing = false;
            match sent {
                Ok(_) => {}
                Err(Errno::WOULD_BLOCK | Errno::INTERRUPTED) => {
                    self.state.wants_room.store(true, Ordering::Release);
                    return Ok(false);
                }
                Err(error) => {
                    tx.drop_early();
                    self.remember(error);
                }
            }
        }
        if tx.fin_due && !tx.fin_sent {
            tx.fin_sent = true;
            let _ = self.kernel.shut(super::sys::Direction::Send);
        }
        self.state.note_owed(&tx);
        // Before anybody else can have something kept.
        self.state.set_plain();
        self.shut_what_was_shut_early();
        Ok(true)
    }

    /// Returns how many of the program's octets are not with TCP yet: those that wait for leave to
    /// send.
    #[must_use]
    pub fn unsent(&self) -> usize {
        if !self.owes() || self.state.end.is_set() {
            return 0;
        }
        self.lock_tx().map_or(0, |tx| tx.early().len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::{Calls, Options, SharedState, Why};

    #[test]
    fn who_dies_in_the_middle_of_framing_ends_the_stream() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        active.set_nonblocking(true).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let (state, calls) = (SharedState::anonymous(&Options::new(Role::Initiator)).unwrap(), Calls::libc());
        let stream = Stream::new(active.as_raw_fd(), &state, &calls);
        assert_eq!(stream.send(&[IoSlice::new(b"early")], 0), Ok(5));
        // As whoever is killed there leaves it.
        state.tx.lock().unwrap().framing = true;
        assert_eq!(stream.send(&[IoSlice::new(b"more")], 0), Err(Errno::ABORTED));
        assert_eq!(state.ended().unwrap().why, Why::OwnerDied);
        assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
