//! The replies to a client, until TCP has taken them.

use std::time::Instant;

use rddp_block::export::DiskError;
use rddp_block::nbd::reply;
use rddp_rnic::SendWr;

use super::{Awaited, Client, UnderWay, Wrong};
use crate::block::buffers::Buffers;
use crate::block::disk::{Answer, Done};

impl Client {
    /// Prepares the reply to a request that is done.
    pub(super) fn answer(&mut self, done: Done, buffers: &mut Buffers) {
        let Done { id, mut buffer, result, .. } = done;
        let (Some((_, terms)), Some(work)) = (self.chosen, self.under_way.get_mut(&id)) else {
            buffer.into_iter().for_each(|buffer| buffers.give_back(buffer));
            return;
        };
        let Some(request) = work.request else { return };
        let cookie = request.cookie;
        let failed =
            |error| SendWr::send_inline(id, &reply::failed(&terms, cookie, error, request.is_read()));
        let wr = match result {
            Ok(Answer::Extents(extents)) => {
                let octets = reply::of_status(cookie, &extents, request.wants_one());
                buffer = buffers.take(octets.len());
                let placed = buffer.as_ref().and_then(|buffer| buffer.filled(&octets).ok());
                placed.map_or_else(|| failed(DiskError::NoMem), |sge| SendWr::send(id, sge))
            }
            Ok(Answer::Done) if request.is_read() => {
                let header = reply::of_read(&terms, cookie, request.offset(), request.len());
                let placed =
                    buffer.as_ref().and_then(|buffer| buffer.with_header(&header, request.len()).ok());
                match (placed, request.len()) {
                    (Some(sge), _) => SendWr::send(id, sge),
                    (None, 0) => SendWr::send_inline(id, &header),
                    (None, _) => failed(DiskError::NoMem),
                }
            }
            Ok(Answer::Done) => SendWr::send_inline(id, &reply::done(cookie)),
            Err(error) => failed(error),
        };
        work.buffer = buffer;
        self.push(wr);
    }

    /// Returns whether the client has replies to take, or a payload to give.
    pub(super) fn owes(&self) -> bool {
        self.unsent > 0 || matches!(self.awaited, Awaited::Payload(_))
    }

    /// Notes that the client is about to owe something.
    pub(super) fn owe(&mut self) {
        if !self.owes() {
            self.moved = Instant::now();
        }
    }

    pub(super) fn push(&mut self, wr: SendWr) {
        self.owe();
        self.unsent += 1;
        self.out.push(wr);
    }

    /// Sends all replies that there are.
    pub(super) fn send(&mut self) -> Result<(), Wrong> {
        if self.out.is_empty() {
            return Ok(());
        }
        match self.qp.post_sends(&std::mem::take(&mut self.out)) {
            // Nobody is there to take them.
            Err(_) if self.leaving => self.until = Some(Instant::now()),
            posted => posted?,
        }
        Ok(())
    }

    /// Notes that TCP has taken a reply.
    pub(super) fn sent(&mut self, id: u64, buffers: &mut Buffers) {
        self.moved = Instant::now();
        self.unsent = self.unsent.saturating_sub(1);
        if let Some(UnderWay { octets, buffer, .. }) = self.under_way.remove(&id) {
            self.octets -= octets;
            buffer.into_iter().for_each(|buffer| buffers.give_back(buffer));
        }
    }
}
