//! Requests and receives, as they are handed over to the device.

use rddp_rdma::{AsyncEventKind, Gather, Operation, RecvWr, Remote, SendWr, Sge, SgeList, Status};
use rddp_verbs_device::PostError;

use super::Device;
use crate::mem::HostDevice;
use crate::queues::context::Context;
use crate::queues::sq::Cursor;
use crate::wire::WireEvent;

/// The reason why a request is not handed over.
enum Held {
    /// The device is full, or the connection is ending, or requests before it are to be done first.
    Later,
    /// The request ends with this status.
    Ended(Status),
}

/// A request, or a part of one, as the device gets it.
struct Part {
    request: SendWr,
    /// Octets of it.
    len: u64,
    is_last: bool,
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
        let host = cx.attrs.device.host.as_ref().ok_or(Held::Later)?;
        let part = self.part(host, &wqe.wr, seq, offset)?;
        self.endpoint.post_send(&part.request).map_err(held)?;
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
    fn part(&mut self, host: &HostDevice, wr: &SendWr, seq: u64, offset: u64) -> Result<Part, Held> {
        let limits = self.endpoint.device().capabilities();
        let most = limits.max_message;
        let mut part = Part { request: wr.clone(), len: 0, is_last: true, bounces: false };
        match &mut part.request.operation {
            Operation::Send { gather, .. } | Operation::SendImmediate { gather, .. } => {
                part.bounces = self.gather(host, gather)?;
            }
            Operation::Write { gather, remote } => {
                (part.len, part.is_last) = cut(gather, remote, offset, (most, limits.max_sge));
                part.bounces = self.gather(host, gather)?;
            }
            Operation::Read { sink, remote, .. } => {
                let left = sink.len - offset;
                (part.len, part.is_last) = (left.min(most), left <= most);
                *remote = remote.at(offset);
                *sink = sink_of(host, Sge { addr: sink.addr.wrapping_add(offset), len: part.len, ..*sink })?;
            }
            Operation::FetchAdd { sink, .. } | Operation::CmpSwap { sink, .. } => {
                *sink = sink_of(host, Sge { len: 8, ..*sink })?;
            }
            _ => {}
        }
        part.request.signaled = part.is_last;
        (part.request.wr_id, part.request.local_fence) = (seq, false);
        Ok(part)
    }

    /// Names memory as the device does, and copies inline octets and short lists that it does not
    /// take. Returns whether it copied some.
    fn gather(&mut self, host: &HostDevice, gather: &mut Gather) -> Result<bool, Held> {
        let octets = match gather {
            // A Send of more pieces than the device takes, which was short enough to be posted.
            Gather::List(list) if list.len() > self.endpoint.device().capabilities().max_sge => {
                &host.copied(list).ok_or(Held::Ended(Status::LocalProtection))?
            }
            Gather::List(list) => {
                *list = pieces(host, list)?;
                return Ok(false);
            }
            Gather::Inline(octets) if octets.len() <= self.endpoint.max_inline() => return Ok(false),
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
    #[inline(never)]
    pub(in crate::wire) fn give_receives(&mut self, cx: &Context<'_>) -> Result<(), WireEvent> {
        let Some(host) = &cx.attrs.device.host else { return Ok(()) };
        for wr in cx.rq.posted().skip(self.given) {
            let given = pieces(host, &wr.scatter).and_then(|scatter| {
                let receive = RecvWr { wr_id: 0, scatter, ..wr.clone() };
                self.endpoint.post_receive(&receive).map_err(held)
            });
            match given {
                Ok(()) => self.given += 1,
                Err(Held::Later) => break,
                Err(Held::Ended(_)) => return Err(WireEvent::Lost(AsyncEventKind::ConnectionLost)),
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

/// Names memory as the device does, without pieces of no octets, which need not be registered.
fn pieces(host: &HostDevice, list: &SgeList) -> Result<SgeList, Held> {
    let mut named = list.iter().filter(|sge| sge.len > 0).map(|sge| host.piece(*sge));
    let named = match list.len() {
        // Without memory of a list's own.
        1 => named.next().map_or(Some(SgeList::default()), |sge| sge.map(SgeList::from)),
        _ => named.collect::<Option<Vec<Sge>>>().map(SgeList::from),
    };
    // A region that has been deregistered since the request was posted.
    named.ok_or(Held::Ended(Status::LocalProtection))
}

fn sink_of(host: &HostDevice, sink: Sge) -> Result<Sge, Held> {
    if sink.len == 0 {
        return Ok(Sge { len: 0, ..sink });
    }
    match host.sink(sink) {
        Ok(named) => named.ok_or(Held::Ended(Status::LocalProtection)),
        Err(error) => {
            tracing::warn!(%error, "a region cannot be the sink of a Read");
            Err(Held::Ended(Status::LocalProtection))
        }
    }
}

/// Returns what becomes of a request that the device refuses.
fn held(error: PostError) -> Held {
    match error {
        PostError::QueueFull { .. } | PostError::NotConnected => Held::Later,
        PostError::NoReads => Held::Ended(Status::LocalOperation),
        error => {
            tracing::warn!(%error, "the device refuses a request");
            let is_denied = matches!(error, PostError::Credentials);
            Held::Ended(if is_denied { Status::Credentials } else { Status::LocalOperation })
        }
    }
}
