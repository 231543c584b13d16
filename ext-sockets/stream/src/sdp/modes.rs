//! Changes of mode that the settings ask for, and the sink's way out of Buffered. Sends of several
//! adverts change to Pipelined themselves.

use rddp_sdp::machine::Half;
use rddp_sdp::wire::Mode;

use super::live;
use super::outbound::ROOM;
use crate::owed::owe_send;
use crate::sdp::Stream;
use crate::state::{Rx, Tx};
use crate::sys::Guard;

impl Stream<'_> {
    /// Makes the change of mode of the sending half that [`SdpOptions::mode`](super::SdpOptions)
    /// asks for, if nothing forbids it now. The caller stores that the connection changes.
    #[inline]
    pub(super) fn settle_mode(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx) {
        if let Some(wanted) = self.state.mode() {
            self.change_sending_mode(rx, tx, wanted);
        }
    }

    #[cold]
    fn change_sending_mode(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx, wanted: Mode) {
        let next = match (live(rx).machine().out_mode(), wanted) {
            // Buffered is the sink's to end.
            (Mode::Buffered, _) | (Mode::Combined, Mode::Combined) | (Mode::Pipelined, Mode::Pipelined) => {
                return;
            }
            (Mode::Combined, wanted) => wanted,
            (Mode::Pipelined, _) => Mode::Combined,
        };
        change(rx, tx, Half::Out, next);
        if live(rx).machine().out_mode() == Mode::Buffered {
            // Asked for once: a sink that wants adverts changes back, and is not contradicted.
            self.state.set_mode(Some(Mode::Combined));
        }
    }

    /// Ends Buffered for a receive that would take what the peer advertises.
    pub(super) fn leave_buffered(&self, rx: &mut Guard<'_, Rx>) {
        if live(rx).machine().in_mode() != Mode::Buffered {
            return;
        }
        let paid = self.lock_tx().and_then(|mut tx| {
            rx.set_changing(true);
            change(rx, &mut tx, Half::In, Mode::Combined);
            rx.set_changing(false);
            self.pay_messages(rx, &mut tx)
        });
        if let Err(error) = paid {
            self.remember(error);
        }
    }
}

/// Sends a `ModeChange`, where there is room for it and the machine allows it.
fn change(rx: &mut Guard<'_, Rx>, tx: &mut Tx, half: Half, to: Mode) {
    if tx.prepare_to_owe(ROOM)
        && let Ok(front) = live(rx).machine().change_mode(half, to)
    {
        owe_send(tx, &front);
    }
}
