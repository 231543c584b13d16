//! Writing: requests to TCP, many by one call.

use std::io::ErrorKind;

use rddp_rdma::{AsyncEventKind, Gather, Operation, Status};
use rddp_rdmap::Fault;
use rddp_stat::Counter;
use smallvec::SmallVec;

use super::{HEADER, Plain};
use crate::mem::{Piece, SendFlags, is_fault, send_vectored};
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::sq::Cursor;
use crate::wire::{Watch, WireEvent};

/// The requests of one write.
const REQUESTS: usize = 64;

/// The octets with which a write takes no further request.
const OCTETS: u64 = 1 << 20;

/// The requests of one write: their memory, what goes in front of each, and where each of them
/// ends.
#[derive(Default)]
struct Batch {
    grants: Grants,
    headers: SmallVec<[[u8; HEADER]; 8]>,
    ends: SmallVec<[u64; 8]>,
}

impl Plain {
    /// Sends what can be sent, then FIN if one is due, and completes requests that this finished.
    pub(in crate::wire) fn send(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let sent = loop {
            match self.write(watch, cx) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(event) => break Err(event),
            }
        };
        cx.retire();
        sent
    }

    /// Hands the next requests to TCP by one call. Returns whether another may follow.
    fn write(&mut self, watch: &mut Watch, cx: &mut Context<'_>) -> Result<bool, WireEvent> {
        let Some(batch) = self.batch(cx) else {
            cx.sq.finish_at_cursor(Status::LocalProtection);
            return Err(Fault::local_catastrophic().into());
        };
        let Some(total) = batch.ends.last().copied() else {
            watch.blocked = false;
            let socket = watch.socket.clone();
            return watch.end.send_fin(&socket).map(|()| false);
        };
        cx.tally.add(Counter::SendCalls, 1);
        // TCP has taken a request of no octets.
        let sent = if total == 0 {
            Ok(0)
        } else {
            send_vectored(watch.fd(), &pieces(cx, &batch), SendFlags::default())
        };
        let taken = match sent {
            Ok(taken) => taken as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            // What comes before the bad memory is still sent.
            Err(error) if is_fault(&error) && batch.ends.len() > 1 => {
                self.one_by_one = true;
                return Ok(true);
            }
            Err(error) if is_fault(&error) => {
                cx.sq.finish_at_cursor(Status::LocalProtection);
                return Err(Fault::local_catastrophic().into());
            }
            Err(error) => {
                tracing::debug!(qp = cx.attrs.num.0, %error, "TCP no longer sends");
                return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
            }
        };
        cx.tally.add(Counter::OctetsSent, taken);
        cx.sq.cursor = batch.behind(cx.sq.cursor, taken);
        cx.sq.handed_to_cursor();
        watch.blocked = taken < total;
        Ok(!watch.blocked)
    }

    /// Returns the requests of the next write; `None` if the program may not send the memory of the
    /// first.
    fn batch(&self, cx: &Context<'_>) -> Option<Batch> {
        let mut batch = Batch::default();
        let Cursor { seq, offset: mut skip } = cx.sq.cursor;
        let most = if self.one_by_one { 1 } else { REQUESTS };
        let (mut total, header) = (0, self.header_len() as u64);
        while let Some(wqe) = cx.sq.get(seq + batch.ends.len() as u64) {
            if batch.ends.len() == most || total >= OCTETS {
                break;
            }
            let left = header + wqe.total - skip;
            if let Operation::Send { gather: Gather::List(list), .. } = &wqe.wr.operation {
                let before = batch.grants.len();
                let (from, len) = (skip.saturating_sub(header), left.min(wqe.total));
                if cx.attrs.grants_of(list, from, len as usize, None, &mut batch.grants).is_err() {
                    // What comes before it goes out first.
                    batch.grants.truncate(before);
                    return (!batch.ends.is_empty()).then_some(batch);
                }
            }
            if header > 0 {
                // Posting has refused messages of 4 GiB.
                batch.headers.push((wqe.total as u32).to_be_bytes());
            }
            (total, skip) = (total + left, 0);
            batch.ends.push(total);
        }
        Some(batch)
    }
}

impl Batch {
    /// Returns the place behind `taken` octets of the batch, which begins at `from`.
    fn behind(&self, from: Cursor, taken: u64) -> Cursor {
        let whole = self.ends.iter().take_while(|end| **end <= taken).count();
        let before = whole.checked_sub(1).map_or(0, |last| self.ends[last]);
        let begun = if whole == 0 { from.offset } else { 0 };
        Cursor { seq: from.seq + whole as u64, offset: begun + (taken - before) }
    }
}

/// Returns the octets of a batch, in order.
fn pieces<'a>(cx: &'a Context<'_>, batch: &'a Batch) -> SmallVec<[Piece<'a>; 8]> {
    let mut pieces = SmallVec::new();
    let (mut grants, mut from) = (batch.grants.iter(), cx.sq.cursor);
    for at in 0..batch.ends.len() {
        let Some(wqe) = cx.sq.get(from.seq) else { break };
        let header = batch.headers.get(at).map_or(&[][..], |header| header);
        let begun = header.len().min(from.offset as usize);
        if begun < header.len() {
            pieces.push(Piece::Own(&header[begun..]));
        }
        let mut left = wqe.total - (from.offset - begun as u64);
        if let Operation::Send { gather: Gather::Inline(octets), .. } = &wqe.wr.operation {
            pieces.push(Piece::Own(&octets[octets.len() - left as usize..]));
            left = 0;
        }
        while left > 0 {
            let Some(grant) = grants.next() else { break };
            pieces.push(Piece::Granted(grant, 0..grant.len()));
            left -= grant.len() as u64;
        }
        from = Cursor { seq: from.seq + 1, offset: 0 };
    }
    pieces
}
