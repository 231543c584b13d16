//! Requests.

use rddp_rdma::{Atomics, Operation, RecvWr, Remote, SendWr, Sge, Stag};
use rddp_verbs_layout::{ibv_sge, send};

use super::outstanding::Sent;
use super::{Endpoint, OWN, Stage};
use crate::device::MAX_PIECES;
use crate::error::PostError;
use crate::sys::Octets;
use crate::words::{Local, Prepared, piece, prepare};

/// Pieces as C has them.
type Pieces = [ibv_sge; MAX_PIECES];

impl Endpoint {
    /// Posts a request to the send queue. Memory is named by the device's keys, and kept until the
    /// request has completed.
    ///
    /// # Errors
    /// The queue is full, or the request is beyond the device or the connection; it was not posted.
    pub fn post_send(&mut self, request: &SendWr) -> Result<(), PostError> {
        if self.stage != Stage::Connected {
            return Err(PostError::NotConnected);
        }
        if self.sends.is_full() {
            return Err(PostError::QueueFull { capacity: self.sends.capacity() });
        }
        let prepared = prepare(request)?;
        self.refuse_beyond_device(&prepared, &request.operation)?;
        self.hand_over(prepared, request.wr_id, request.signaled, false)
    }

    /// Refuses what the device would refuse, or would never complete.
    fn refuse_beyond_device(&self, prepared: &Prepared<'_>, of: &Operation) -> Result<(), PostError> {
        let limits = self.device.capabilities();
        let has_immediate = matches!(
            of,
            Operation::Immediate { .. } | Operation::SendImmediate { .. } | Operation::WriteImmediate { .. }
        );
        if has_immediate && limits.immediate_len == 0 {
            return Err(PostError::Unsupported { what: "Immediate Data" });
        }
        let is_atomic = matches!(of, Operation::FetchAdd { .. } | Operation::CmpSwap { .. });
        if is_atomic && limits.atomics == Atomics::None {
            return Err(PostError::Unsupported { what: "atomics" });
        }
        if (is_atomic || matches!(of, Operation::Read { .. })) && self.agreed.ord == 0 {
            return Err(PostError::NoReads);
        }
        let (len, max) = (prepared.local.total(), limits.max_message);
        if len > max {
            return Err(PostError::MessageTooLong { len, max });
        }
        Ok(())
    }

    /// Gives a request to the device.
    fn hand_over(
        &mut self,
        prepared: Prepared<'_>,
        wr_id: u64,
        signaled: bool,
        own: bool,
    ) -> Result<(), PostError> {
        let Prepared { mut request, completed, local, read } = prepared;
        let Some(pair) = self.link.id.pair() else { return Err(PostError::NotConnected) };
        let mut pieces = NO_PIECES;
        let octets = match local {
            Local::None => Octets::Pieces(&[]),
            Local::Pieces(list) => Octets::Pieces(fill(&mut pieces, list, self.max_pieces())?),
            Local::Inline(octets) if octets.len() > pair.inline as usize => {
                return Err(PostError::InlineTooLong { len: octets.len(), max: pair.inline as usize });
            }
            Local::Inline(octets) => Octets::Inline(octets),
        };
        let (number, is_signaled) = self.sends.next(signaled || self.device.signals_all());
        request.wr_id = number;
        request.send_flags |= if is_signaled { send::SIGNALED } else { 0 };
        pair.post_send(request, &octets)?;
        self.sends.push(Sent { wr_id, completed, read, signaled, own }, is_signaled);
        Ok(())
    }

    fn max_pieces(&self) -> usize {
        self.device.capabilities().max_sge
    }

    /// Posts a receive; before there is a connection, too.
    ///
    /// # Errors
    /// The queue is full, or the receive has more pieces than the device takes.
    pub fn post_receive(&mut self, request: &RecvWr) -> Result<(), PostError> {
        if self.receives.len() >= self.queues.receives {
            return Err(PostError::QueueFull { capacity: self.queues.receives });
        }
        let Some(pair) = self.link.id.pair() else { return Err(PostError::NotConnected) };
        let mut pieces = NO_PIECES;
        // siw refuses a receive without pieces, and skips those that are empty.
        let scatter =
            if request.scatter.is_empty() && self.is_iwarp() { &[NOWHERE][..] } else { &request.scatter };
        let pieces = fill(&mut pieces, scatter, self.max_pieces())?;
        pair.post_receive(self.receives.next(), pieces)?;
        self.receives.push(request.wr_id);
        Ok(())
    }

    /// Asks whether the peer is still there, by a Write of nothing: an answer is not seen, but none
    /// ends the connection in the time that the device takes for it.
    ///
    /// # Errors
    /// There is no connection, or the device refuses.
    pub fn probe(&mut self) -> Result<(), PostError> {
        if self.stage != Stage::Connected {
            return Err(PostError::NotConnected);
        }
        self.post_nothing()
    }

    /// Posts a Write of nothing that completes. What fails shows by other requests.
    pub(super) fn post_own(&mut self) {
        let _ = self.post_nothing();
    }

    fn post_nothing(&mut self) -> Result<(), PostError> {
        // One that is under way tells as much.
        if self.sends.own() >= OWN {
            return Ok(());
        }
        let nowhere = Remote { stag: Stag(0), to: 0 };
        let request = SendWr::write(0, Vec::<Sge>::new(), nowhere);
        let prepared = prepare(&request)?;
        self.hand_over(prepared, 0, true, true)
    }
}

/// A piece of no octets.
const NOWHERE: Sge = Sge { stag: Stag(0), addr: 0, len: 0 };

const NO_PIECES: Pieces = [ibv_sge { addr: 0, length: 0, lkey: 0 }; MAX_PIECES];

/// Fills C's pieces, and returns those that are used.
fn fill<'a>(pieces: &'a mut Pieces, list: &[Sge], max: usize) -> Result<&'a [ibv_sge], PostError> {
    if list.len() > max {
        return Err(PostError::TooManyPieces { count: list.len(), max });
    }
    for (to, from) in pieces.iter_mut().zip(list) {
        *to = piece(*from);
    }
    Ok(&pieces[..list.len()])
}
