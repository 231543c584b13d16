//! `SinkAvail`s of this end: a call that waits offers the peer to write.
//!
//! As with Reads no memory is named on the wire: what is written in order are the next octets of
//! the stream, in the kernel. So a call returns with what there is, and an advert that is still out
//! then goes on with the octets of the next call. Only what a peer writes behind a gap has to stand
//! elsewhere until `RdmaWrCompl` (`place.rs`). One advert is out at a time.

use rddp_sdp::machine::Machine;
use rddp_sdp::wire::Mode;

use super::ZeroCopy;
use super::state::{OwnSink, Zcopy, zcopy};
use crate::owed::owe_send;
use crate::rooms::Room;
use crate::state::Rx;
use crate::sys::{Guard, random};

impl ZeroCopy<'_, '_> {
    /// Makes a `SinkAvail` for a call that is about to wait and has `room`, if that is allowed now.
    pub(crate) fn offer_sink(&self, room: usize) {
        if (room as u64) < self.state.sink_threshold() {
            return;
        }
        let Ok(mut rx) = self.lock_rx() else { return };
        let is_next = rx.left == 0 && rx.held.is_empty() && rx.absorbed == 0 && !rx.sdp.is_in_message();
        if !is_next || !self.takes_much(room) || self.peer_has_left(rx.sdp.end.is_shut == 1) {
            return;
        }
        self.leave_buffered(&mut rx);
        if !writes(&mut rx) {
            return;
        }
        if self.make_tables(&mut rx) && self.make_sink(&mut rx, room) {
            let paid = self.lock_tx().and_then(|mut tx| self.pay_messages(&mut rx, &mut tx));
            if let Err(error) = paid {
                self.remember(error);
            }
        }
        self.spare_tables(&mut rx);
    }

    fn make_sink(&self, rx: &mut Guard<'_, Rx>, room: usize) -> bool {
        let Ok(mut tx) = self.lock_tx() else { return false };
        let Some(stag) = random() else { return false };
        let Some((rx, _, Zcopy { adverts, .. })) = zcopy(rx) else { return false };
        let len = room.min(rx.rooms.free(Room::Sinks));
        if adverts.sink != OwnSink::default() || !tx.prepare_to_owe(crate::sdp::outbound::ROOM) {
            return false;
        }
        rx.set_changing(true);
        let mut machine = Machine::new(&mut rx.sdp.core, Some(&mut adverts.tables));
        let made = machine.advertise_sink(len as u32, stag, 0);
        if let Ok((id, front)) = &made {
            owe_send(&mut tx, front);
            adverts.sink = OwnSink { stag, len: len as u32, place: id.place() as u32, ..OwnSink::default() };
            let charged = rx.rooms.charge(Room::Sinks, len);
            debug_assert!(charged, "there is so much room");
        }
        rx.set_changing(false);
        self.state.note_owed(&tx);
        made.is_ok()
    }

    /// Takes the own `SinkAvail` back, if it is out: the program has closed.
    pub(crate) fn take_back_sink(&self, rx: &mut Guard<'_, Rx>) {
        rx.set_changing(true);
        let _ = crate::sdp::live(rx).machine().cancel_sinks();
        rx.set_changing(false);
    }
}

/// Returns whether the peer may write on its half, and has nothing to write into yet.
fn writes(rx: &mut Guard<'_, Rx>) -> bool {
    let mut live = crate::sdp::live(rx);
    let has_one = live.adverts.as_ref().is_some_and(|adverts| adverts.sink != OwnSink::default());
    !has_one && live.machine().in_mode() == Mode::Pipelined
}
