//! Writes into the peer's `SinkAvail`s.
//!
//! Each segment is an RDMA Write of its own, so that no message is open between two calls. They
//! take the place of Data: octets of non-blocking and of short sends go in the same way.

use rddp_rdmap::Opcode;
use rddp_sdp::machine::Machine;

use super::ZeroCopy;
use super::serve::{Ends, Tagged};
use super::state::{Zcopy, zcopy};
use crate::Errno;
use crate::sdp::counters;
use crate::sink::Source;
use crate::state::{Rx, Tx};
use crate::sys::Guard;

impl ZeroCopy<'_, '_> {
    /// Writes octets of `source`, which moves on, to where the peer has given room, as far as TCP
    /// takes them. Returns whether none of them has to wait for TCP.
    pub(crate) fn push_writes(
        &self,
        rx: &mut Guard<'_, Rx>,
        tx: &mut Tx,
        source: &mut Source<'_>,
    ) -> Result<bool, Errno> {
        while source.left() > 0 {
            let Some((state, _, Zcopy { adverts, .. })) = zcopy(rx) else { break };
            let machine = Machine::new(&mut state.sdp.core, Some(&mut adverts.tables));
            let Some(sink) = machine.peer_sink() else { break };
            let message = Tagged { op: Opcode::Write, stag: sink.stag, to: sink.to, ends: Ends::Each };
            let len = source.left().min(sink.left as usize);
            state.set_changing(true);
            let good = source.first(len).readable(len);
            let sent =
                if good == 0 { Err(Errno::FAULT) } else { self.push_tagged(tx, message, source.first(good)) };
            let sent = sent.inspect_err(|_| state.set_changing(false))?;
            let mut machine = Machine::new(&mut state.sdp.core, Some(&mut adverts.tables));
            if sent > 0 && machine.written(sent as u32).is_err() {
                return Err(self.damaged());
            }
            state.set_changing(false);
            self.state.sdp.count(counters::WRITTEN, sent);
            source.skip(sent);
            if sent < good {
                return Ok(false);
            }
            // What is sent next goes behind what is owed.
            if !self.pay_messages(rx, tx)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports what a call has written that returns with octets left: the program may send no more.
    #[cold]
    pub(crate) fn end_writes(&self) {
        let Ok(mut rx) = self.lock_rx() else { return };
        if rx.sdp.has_adverts == 1 {
            let ended = self.lock_tx().and_then(|mut tx| self.complete_writes(&mut rx, &mut tx));
            if let Err(error) = ended {
                self.remember(error);
            }
        }
    }

    /// Reports what was written into the peer's oldest advert: nothing more is queued. A reader
    /// that waits for these octets alone gets them.
    pub(crate) fn complete_writes(&self, rx: &mut Guard<'_, Rx>, tx: &mut Tx) -> Result<(), Errno> {
        rx.set_changing(true);
        crate::sdp::live(rx).machine().complete_peer_sink();
        rx.set_changing(false);
        self.pay_messages(rx, tx).map(drop)
    }
}
