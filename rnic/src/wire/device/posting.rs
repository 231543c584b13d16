//! Requests and receives, as they are handed over to the device.

use std::borrow::Cow;

use rddp_rdma::{AsyncEventKind, Gather, Operation, Remote, SendWr, Sge, SgeList, Status};
use rddp_verbs_device::PostError;

use super::Device;
use crate::mem::HostDevice;
use crate::queues::context::Context;
use crate::queues::rq::Outcome;
use crate::queues::sq::Cursor;
use crate::wire::WireEvent;

/// The reason why a request is not handed over.
pub(super) enum Held {
    /// The device is full, or the connection is ending, or requests before it are to be done first.
    Later,
    /// The request ends with this status.
    Ended(Status),
}

/// A request, or a part of one, as the device gets it.
struct Part<'a> {
    request: Cow<'a, SendWr>,
    /// Octets of it.
    len: u64,
    is_last: bool,
    /// Set for a copy of octets, which is named as the device does.
    bounces: bool,
}

impl Device {
    /// Hands over requests, as many as the device takes.
    #[inline(never)]
    pub(in crate::wire) fn send(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        loop {
            match self.post_next(cx) {
                Ok(true) => {}
                Ok(false) | Err(Held::Later) => return Ok(()),
                Err(Held::Ended(status)) => {
                    cx.sq.finish_at_cursor(status);
                    return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost));
                }
            }
        }
    }

    /// Hands over the next request, or a part of it. Returns whether there was one.
    fn post_next(&mut self, cx: &mut Context<'_>) -> Result<bool, Held> {
        let Cursor { seq, offset } = cx.sq.cursor;
        let Some(wqe) = cx.sq.get(seq) else { return Ok(false) };
        // The device knows no such fence.
        if wqe.wr.local_fence && seq > cx.sq.oldest() {
            return Err(Held::Later);
        }
        if wqe.is_local() {
            return self.post_local(cx).map(|()| true);
        }
        let host = cx.attrs.device.host.as_ref().ok_or(Held::Later)?;
        let part = self.part(host, &wqe.wr, offset)?;
        let (of, bounces) = (&part.request.operation, part.bounces);
        let name = |sge| if bounces { Some(sge) } else { named(host, of, sge) };
        self.endpoint.post_send_as(&part.request, (seq, part.is_last), name).map_err(held)?;
        if part.bounces {
            self.bounce.note();
        }
        cx.sq.cursor = if part.is_last {
            Cursor { seq: seq + 1, offset: 0 }
        } else {
            Cursor { seq, offset: offset + part.len }
        };
        Ok(true)
    }

    /// Makes the part of a request that begins at this octet of its message. Writes and Reads that
    /// are longer than the device's longest message, or of more pieces, go in parts.
    fn part<'a>(&mut self, host: &HostDevice, wr: &'a SendWr, offset: u64) -> Result<Part<'a>, Held> {
        let limits = self.endpoint.device().capabilities();
        let most = limits.max_message;
        let mut part = Part { request: Cow::Borrowed(wr), len: 0, is_last: true, bounces: false };
        if offset == 0 && self.takes_whole(&wr.operation) {
            return Ok(part);
        }
        match &mut part.request.to_mut().operation {
            Operation::Send { gather, .. } | Operation::SendImmediate { gather, .. } => {
                part.bounces = self.copy(host, gather)?;
            }
            Operation::Write { gather, remote } => {
                (part.len, part.is_last) = cut(gather, remote, offset, (most, limits.max_sge));
                part.bounces = self.copy(host, gather)?;
            }
            Operation::Read { sink, remote, .. } => {
                let left = sink.len - offset;
                (part.len, part.is_last) = (left.min(most), left <= most);
                *remote = remote.at(offset);
                *sink = Sge { addr: sink.addr.wrapping_add(offset), len: part.len, ..*sink };
            }
            Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. } => sink.len = 8,
            _ => {}
        }
        Ok(part)
    }

    /// Returns whether the device takes the operation in one part, without a copy of its octets.
    fn takes_whole(&self, operation: &Operation) -> bool {
        let limits = self.endpoint.device().capabilities();
        match operation {
            Operation::Send { gather, .. } | Operation::SendImmediate { gather, .. } => self.takes(gather),
            Operation::Write { gather, .. } => self.takes(gather) && gather.total() <= limits.max_message,
            Operation::Read { sink, .. } => sink.len <= limits.max_message,
            Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. } => sink.len == 8,
            _ => true,
        }
    }

    fn takes(&self, gather: &Gather) -> bool {
        match gather {
            Gather::List(list) => list.len() <= self.endpoint.device().capabilities().max_sge,
            Gather::Inline(octets) => octets.len() <= self.endpoint.max_inline(),
        }
    }

    /// Copies inline octets and short lists that the device does not take. Returns whether it
    /// copied some.
    fn copy(&mut self, host: &HostDevice, gather: &mut Gather) -> Result<bool, Held> {
        if self.takes(gather) {
            return Ok(false);
        }
        let octets = match gather {
            // A Send of more pieces than the device takes, which was short enough to be posted.
            Gather::List(list) => &host.copied(list).ok_or(Held::Ended(Status::LocalProtection))?,
            Gather::Inline(octets) => &**octets,
        };
        let copied = self.bounce.copy(self.endpoint.device(), octets).map_err(|error| {
            tracing::warn!(%error, "no memory for inline octets");
            Held::Ended(Status::LocalOperation)
        })?;
        *gather = copied.into();
        Ok(true)
    }

    /// Hands over receives, as many as the device takes.
    #[inline]
    pub(in crate::wire) fn give_receives(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        if cx.rq.posted().len() <= self.given {
            return Ok(());
        }
        self.give_more_receives(cx).map_err(|status| {
            // Others before it are the device's until its queue pair has ended, and are flushed.
            if self.given == 0 {
                cx.end_next_receive(status, &Outcome::default());
            }
            WireEvent::Lost(AsyncEventKind::ConnectionLost)
        })
    }

    /// Hands over receives as [`give_receives`](Self::give_receives) does; the status is that of
    /// one that the device refuses.
    #[inline(never)]
    pub(super) fn give_more_receives(&mut self, cx: &Context<'_>) -> Result<(), Status> {
        let Some(host) = &cx.attrs.device.host else { return Ok(()) };
        while let Some(wr) = cx.rq.posted().get(self.given) {
            let given = self.endpoint.post_receive_as(0, &wr.scatter, |sge| host.piece(sge));
            match given.map_err(held) {
                Ok(()) => self.given += 1,
                Err(Held::Later) => break,
                Err(Held::Ended(status)) => return Err(status),
            }
        }
        Ok(())
    }
}

/// Cuts a part off a Write: from this octet on, and of no more octets and pieces than the device
/// takes. Returns its length, and whether it is the last.
fn cut(gather: &mut Gather, remote: &mut Remote, offset: u64, (most, max): (u64, usize)) -> (u64, bool) {
    let left = gather.total() - offset;
    let mut len = left.min(most);
    if let Gather::List(list) = gather
        && (offset > 0 || len < left || list.len() > max)
    {
        *list = within(list, offset, len, max);
        len = list.total();
    }
    *remote = remote.at(offset);
    (len, len == left)
}

/// Returns `len` octets of a list, from the octet `skip` on; fewer where they are in more pieces.
fn within(list: &SgeList, mut skip: u64, mut len: u64, max: usize) -> SgeList {
    let mut kept = Vec::new();
    for sge in list.iter() {
        let begun = skip.min(sge.len);
        skip -= begun;
        let taken = (sge.len - begun).min(len);
        len -= taken;
        if taken > 0 && kept.len() < max {
            kept.push(Sge { addr: sge.addr.wrapping_add(begun), len: taken, ..*sge });
        }
    }
    kept.into()
}

/// Names memory of a request as the device does.
fn named(host: &HostDevice, of: &Operation, sge: Sge) -> Option<Sge> {
    if !matches!(of, Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CmpSwap { .. }) {
        return host.piece(sge);
    }
    host.sink(sge).unwrap_or_else(|error| {
        tracing::warn!(%error, "a region cannot be the sink of a Read");
        None
    })
}

/// Returns what becomes of a request that the device refuses.
pub(super) fn held(error: PostError) -> Held {
    match error {
        PostError::QueueFull { .. } | PostError::NotConnected => Held::Later,
        // A region that has been deregistered since the request was posted.
        PostError::Unregistered => Held::Ended(Status::LocalProtection),
        PostError::NoReads => Held::Ended(Status::LocalOperation),
        error => {
            tracing::warn!(%error, "the device refuses a request");
            let is_denied = matches!(error, PostError::Credentials);
            Held::Ended(if is_denied { Status::Credentials } else { Status::LocalOperation })
        }
    }
}
