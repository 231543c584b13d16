//! Octets that the program sends before FPDUs may flow.
//!
//! TCP takes the first write as soon as it is connected. This stream does the same: up to 16 KiB
//! are kept unframed, for the framing is not agreed on yet. They are framed by the first call that
//! comes when this end may send: behind the startup frame and the RTR of an initiator; behind the
//! first good FPDU of the peer at a responder (RFC 5044 §7.1.2 r4).
//!
//! A `shutdown` that comes as early is noted, and done behind these octets.

use std::ffi::c_short;
use std::io::IoSlice;
use std::sync::atomic::Ordering;

use super::Errno;
use libc::{POLLOUT, POLLWRNORM};

use super::base::Base;
use super::duties::Outbound;
use super::locks::set;
use super::options::{Plain, Role};
use super::sink::Source;
use super::state::{Phase, Tx};
use super::sys::Scratch;

impl Base<'_> {
    /// Keeps the first of these octets, as many as there is room for. Returns their number, `None`
    /// if this end may send by now; `EAGAIN` when there is no room.
    pub(super) fn keep_early(&self, source: &Source<'_>) -> Result<Option<usize>, Errno> {
        if self.may_not_keep() {
            return Err(Errno::WOULD_BLOCK);
        }
        let mut tx = self.lock_tx()?;
        if self.state.may_send() || self.state.phase() == Phase::Plain {
            return Ok(None);
        }
        if tx.fin_due {
            return Err(Errno::BROKEN_PIPE);
        }
        if source.left() == 0 {
            return Ok(Some(0));
        }
        let (mut wanted, mut count) = (0, 0);
        if let Some(room) = tx.early_room() {
            wanted = room.len().min(source.left());
            let mut source = *source;
            count = source.copy_some(&mut room[..wanted]);
        }
        tx.early_added(count);
        // Octets that were not taken, also for want of a block, wait until this end may send.
        self.state.startup.early_full.store(wanted < source.left() || tx.early_is_full(), Ordering::Release);
        self.note_owed(&tx);
        match count {
            0 if wanted > 0 => Err(Errno::FAULT),
            0 => Err(Errno::WOULD_BLOCK),
            _ => Ok(Some(count)),
        }
    }

    /// Sends the early octets to a plain peer as they are, before any octet of a later call, and
    /// then the end. Returns whether that was all.
    pub(super) fn send_early_plain(&self, receives_when_shut: bool) -> Result<bool, Errno> {
        let mut tx = self.lock_tx()?;
        // The rest of a Reply that rejects.
        match self.pay_octets(&mut tx, 0) {
            Ok(true) => {}
            Ok(false) => {
                self.state.flow.wants_room.store(true, Ordering::Release);
                return Ok(false);
            }
            Err(error) => self.remember(error),
        }
        while !tx.early().is_empty() {
            set(&mut tx.framing, true);
            let sent = self.kernel.send(&[IoSlice::new(tx.early())], 0);
            if let Ok(count) = sent {
                tx.early_framed(count);
            }
            set(&mut tx.framing, false);
            match sent {
                Ok(_) => {}
                Err(Errno::WOULD_BLOCK | Errno::INTERRUPTED) => {
                    self.state.flow.wants_room.store(true, Ordering::Release);
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
        self.note_owed(&tx);
        // Set before another thread can have octets kept.
        self.state.set_plain();
        self.shut_what_was_shut_early(receives_when_shut);
        Ok(true)
    }

    /// Returns whether early octets could be lost: the connection of an initiator to a plain peer
    /// is made anew.
    fn may_not_keep(&self) -> bool {
        let asked = &self.state.asked;
        asked.role() == Role::Initiator && asked.plain() == Plain::Allowed
    }

    /// Returns whether a send would take at least one octet before this end may send.
    pub(super) fn takes_early(&self) -> bool {
        !self.may_not_keep()
            && !self.state.startup.early_full.load(Ordering::Acquire)
            && self.is_connected()
            && self.may_say_more()
    }

    /// Returns whether another write fits: `TCP_NOTSENT_LOWAT` counts early octets as not sent.
    fn may_say_more(&self) -> bool {
        let unsent = self.unsent();
        unsent == 0 || unsent < self.kernel.most_not_sent()
    }

    /// Frames the early octets, as `out` makes FPDUs, and gives TCP what it takes. Returns whether
    /// that was all.
    pub(super) fn frame_early(&self, tx: &mut Tx, out: &mut impl Outbound) -> Result<bool, Errno> {
        if tx.early().is_empty() {
            return Ok(true);
        }
        let mut octets = Scratch::take()?;
        let count = tx.early().len();
        octets[..count].copy_from_slice(tx.early());
        let pieces = [IoSlice::new(&octets[..count])];
        let mut source = Source::new(&pieces);
        // If the process dies here, it is not known which of the octets were framed.
        set(&mut tx.framing, true);
        let framed = self.push_source(tx, &mut source, false, out);
        tx.early_framed(count - source.left());
        let framed = match framed {
            Err(Errno::INTERRUPTED) => Ok(false),
            // Without memory for a train the octets wait for a later call.
            Ok(_) | Err(Errno::NO_BUFFERS) => framed,
            // TCP takes nothing more from any process.
            Err(error) => {
                tx.drop_early();
                Err(error)
            }
        };
        set(&mut tx.framing, false);
        self.state.startup.early_full.store(tx.early_is_full(), Ordering::Release);
        framed
    }

    /// Returns how many of the program's octets TCP has not got yet, because this end may not send.
    #[must_use]
    pub fn unsent(&self) -> usize {
        if !self.owes() || self.state.end.is_set() {
            return 0;
        }
        self.lock_tx().map_or(0, |tx| tx.early().len())
    }

    /// Returns whether there is room for octets before this end may send, as an event.
    pub(super) fn early_events(&self, ready: c_short, want: c_short) -> c_short {
        let writable = want & (POLLOUT | POLLWRNORM);
        let is_ready = || ready & POLLOUT != 0 || self.fresh(POLLOUT) & POLLOUT != 0;
        let has_room = writable != 0 && self.takes_early() && is_ready();
        if has_room { writable } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::Stream;
    use crate::{Calls, Options, SharedState, Why};

    #[test]
    fn a_process_that_dies_in_the_middle_of_framing_ends_the_stream() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        active.set_nonblocking(true).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let (state, calls) = (SharedState::anonymous(&Options::new(Role::Initiator)).unwrap(), Calls::libc());
        let stream = Stream::new(active.as_raw_fd(), &state, &calls).unwrap();
        assert_eq!(stream.send(&[IoSlice::new(b"early")], 0), Ok(5));
        // The state that a process leaves which is killed there.
        state.tx.lock().unwrap().framing = true;
        assert_eq!(stream.send(&[IoSlice::new(b"more")], 0), Err(Errno::ABORTED));
        assert_eq!(state.ended().unwrap().why, Why::Damaged);
        assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
