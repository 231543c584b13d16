//! A queue pair that is connected to itself: no socket, and each request is carried out when it is
//! posted. Its Sends take its own receives, and it is its own peer for rights and windows.

use std::time::{Duration, Instant};

use rddp_ddp::{DdpError, Stag};
use rddp_rdma::{Gather, Operation, Remote, Sge, Status};
use rddp_rdmap::{AccessError, AtomicOp, Fault};
use rddp_stat::Counter;

use super::WireEvent;
use super::staging::Staging;
use crate::deadline::Deadline;
use crate::mem::{Access, AtomicError, Grant};
use crate::queues::context::Context;
use crate::queues::memory::Grants;
use crate::queues::rq::Outcome;

/// Octets that are copied at a time: what stays in the first-level cache from one copy to the next.
const CHUNK: usize = 16 * 1024;

/// The state of a QP that is connected to itself.
#[derive(Debug, Default)]
pub(crate) struct Itself {
    /// Set while a message waits for a receive: the end of its tries.
    waits: Option<Deadline>,
    /// Octets of the last Write, for the Immediate Data that may follow it.
    written: u32,
}

/// The reason why a request cannot be carried out: its status, and the fault that ends the QP.
#[derive(Debug)]
struct Refused {
    status: Status,
    fault: Fault,
}

/// The octets of a message.
enum Source<'a> {
    Granted(Grants),
    Own(&'a [u8]),
}

/// The memory that a copy has found gone bad.
enum Bad {
    Source,
    Target,
}

impl Itself {
    /// Returns whether a message waits for a receive.
    pub(crate) fn waits(&self) -> bool {
        self.waits.is_some()
    }

    /// Carries out what is posted, as far as there are receives.
    ///
    /// # Errors
    /// What the QP has to act on.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        let sent = loop {
            match self.carry_out_next(cx) {
                Ok(true) => cx.sq.finish_at_cursor(Status::Success),
                Ok(false) => break self.go_on_waiting(cx),
                Err(refused) => {
                    cx.sq.finish_at_cursor(refused.status);
                    break Err(refused.fault.into());
                }
            }
        };
        cx.retire();
        sent
    }

    /// Carries out the next request. Returns whether that has ended: there may be none, or none
    /// that has a receive.
    fn carry_out_next(&mut self, cx: &mut Context<'_>) -> Result<bool, Refused> {
        let Some(wqe) = cx.sq.get(cx.sq.cursor.seq) else { return Ok(false) };
        let (operation, solicited, len) = (wqe.wr.operation.clone(), wqe.wr.solicited, wqe.total);
        match operation {
            Operation::Send { gather, invalidate } => {
                let source = source(cx, &gather, len)?;
                return self.deliver(cx, |cx, room| place(cx, &source, len, room, invalidate, solicited));
            }
            Operation::SendImmediate { gather, data } => {
                let source = source(cx, &gather, len)?;
                return self.deliver(cx, |cx, room| {
                    let outcome = place(cx, &source, len, room, None, solicited)?;
                    Ok(Outcome { immediate: Some(data), ..outcome })
                });
            }
            Operation::Immediate { data } => {
                let byte_len = self.written;
                let outcome = Outcome { byte_len, immediate: Some(data), solicited, ..Outcome::default() };
                let ended = self.deliver(cx, |_, _| Ok(outcome))?;
                if ended {
                    self.written = 0;
                }
                return Ok(ended);
            }
            Operation::Write { gather, remote } => {
                write(cx, &gather, remote, len)?;
                self.written = len as u32;
            }
            Operation::Read { sink, remote, invalidate_sink } => read(cx, &sink, remote, invalidate_sink)?,
            Operation::FetchAdd { sink, remote, add, mask } => {
                modify(cx, &sink, remote, AtomicOp::FetchAdd { add, mask })?;
            }
            Operation::CmpSwap { sink, remote, compare, compare_mask, swap, swap_mask } => {
                modify(cx, &sink, remote, AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask })?;
            }
            local => match cx.attrs.local_operation(&local) {
                Status::Success => {}
                status => return Err(Refused { status, fault: Fault::local_catastrophic() }),
            },
        }
        Ok(true)
    }

    /// Completes the next receive with what `message` has put there, which is told the receive's
    /// room. Returns whether there was one.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        message: impl FnOnce(&mut Context<'_>, u64) -> Result<Outcome, Refused>,
    ) -> Result<bool, Refused> {
        let Some(room) = begin_receive(cx) else { return Ok(false) };
        self.waits = None;
        let outcome = message(cx, room)?;
        cx.tally.add(Counter::SendsReceived, 1);
        cx.end_receive(Status::Success, &outcome);
        Ok(true)
    }

    /// Goes on waiting for a receive, if a message needs one, as long as its tries go on.
    fn go_on_waiting(&mut self, cx: &Context<'_>) -> Result<(), WireEvent> {
        if !cx.sq.has_unsent() {
            return Ok(());
        }
        let patience = cx.sq.patience;
        let until = *self.waits.get_or_insert_with(|| {
            let until = patience.end_of_tries(patience.rnr_timer.max(Duration::from_micros(1)));
            cx.attrs.device.driver.by(until, cx.attrs.token);
            until
        });
        if until.is_over(Instant::now()) { Err(WireEvent::NoReceive) } else { Ok(()) }
    }
}

/// Takes a receive, and has a shared queue tell of the next one where it has none.
fn begin_receive(cx: &mut Context<'_>) -> Option<u64> {
    loop {
        let room = cx.begin_receive();
        if room.is_some() || cx.rq.srq().is_none_or(|srq| srq.await_receive(cx.attrs.num)) {
            return room;
        }
    }
}

/// Puts the octets of a Send into the receive at hand, and invalidates the STag that it names.
fn place(
    cx: &mut Context<'_>,
    source: &Source<'_>,
    len: u64,
    room: u64,
    invalidate: Option<Stag>,
    solicited: bool,
) -> Result<Outcome, Refused> {
    if len > room {
        cx.end_receive(Status::MessageTooLong, &Outcome::default());
        let fault = DdpError::TooLong { mo: 0, len: len as usize, buffer: room }.into();
        return Err(Refused { status: Status::RemoteInvalidRequest, fault });
    }
    let mut grants = Grants::new();
    let placed = match cx.receive_grants(0, len as usize, &mut grants) {
        Ok(()) => copy(source, &grants),
        Err(_) => Err(Bad::Target),
    };
    drop(grants);
    let fault = Fault::local_catastrophic();
    placed.map_err(|bad| match bad {
        Bad::Source => {
            cx.end_receive(Status::Flushed, &Outcome::default());
            Refused { status: Status::LocalProtection, fault }
        }
        Bad::Target => {
            cx.end_receive(Status::LocalProtection, &Outcome::default());
            Refused { status: Status::RemoteOperation, fault }
        }
    })?;
    let outcome = Outcome { byte_len: len as u32, invalidated: invalidate, solicited, ..Outcome::default() };
    if let Some(stag) = invalidate {
        cx.attrs.invalidate_remote(stag).map_err(|error| {
            let outcome = Outcome { byte_len: len as u32, ..Outcome::default() };
            cx.end_receive(Status::RemoteInvalidate, &outcome);
            Refused { status: Status::RemoteInvalidRequest, fault: Fault::invalidate(error) }
        })?;
    }
    Ok(outcome)
}

fn write(cx: &Context<'_>, gather: &Gather, remote: Remote, len: u64) -> Result<(), Refused> {
    let source = source(cx, gather, len)?;
    // RFC 5040 §5.1: where nothing is written, nothing is checked.
    if len == 0 {
        return Ok(());
    }
    let refused = |error| Refused { status: Status::RemoteAccess, fault: Fault::write_access(error) };
    let target = cx.attrs.check_remote(remote.stag, remote.to, len, Access::REMOTE_WRITE);
    let target = target.map_err(refused)?;
    copy(&source, std::slice::from_ref(&target)).map_err(|bad| match bad {
        Bad::Source => not_ours(),
        Bad::Target => refused(AccessError::Bounds),
    })?;
    cx.tally.add(Counter::WritesReceived, 1);
    Ok(())
}

fn read(cx: &Context<'_>, sink: &Sge, remote: Remote, invalidate_sink: bool) -> Result<(), Refused> {
    if sink.len > 0 {
        let target = local(cx, sink, sink.len)?;
        let refused = |error| Refused { status: Status::RemoteAccess, fault: Fault::read_source(error) };
        let source = cx.attrs.check_remote(remote.stag, remote.to, sink.len, Access::REMOTE_READ);
        let source = Source::Granted([source.map_err(refused)?].into());
        copy(&source, std::slice::from_ref(&target)).map_err(|bad| match bad {
            Bad::Source => refused(AccessError::Bounds),
            Bad::Target => not_ours(),
        })?;
    }
    cx.tally.add(Counter::ReadsReceived, 1);
    let memory = &cx.attrs.device.mem;
    if invalidate_sink && memory.invalidate_local(sink.stag, cx.attrs.pd, cx.attrs.num).is_err() {
        // draft-hilland-rddp-verbs §8.3.2: as where the invalidation is a request of its own.
        return Err(Refused { status: Status::MemoryBind, fault: Fault::local_catastrophic() });
    }
    Ok(())
}

/// Carries out an atomic operation, and puts the original into the sink (RFC 7306 §5).
fn modify(cx: &Context<'_>, sink: &Sge, remote: Remote, op: AtomicOp) -> Result<(), Refused> {
    let sink = local(cx, sink, 8)?;
    let refused = |error| Refused { status: Status::RemoteAccess, fault: Fault::atomic_access(error) };
    let target = cx.attrs.check_remote(remote.stag, remote.to, 8, Access::REMOTE_ATOMIC).map_err(refused)?;
    let original = target.fetch_modify_u64(|original| op.apply(original)).map_err(|error| match error {
        AtomicError::Misaligned { .. } => {
            Refused { status: Status::RemoteInvalidRequest, fault: Fault::misaligned_atomic() }
        }
        AtomicError::Faulted(_) => refused(AccessError::Bounds),
    })?;
    sink.place(0, &original.to_ne_bytes()).map_err(|_| not_ours())
}

/// Returns the octets that the program sends.
fn source<'a>(cx: &Context<'_>, gather: &'a Gather, len: u64) -> Result<Source<'a>, Refused> {
    let list = match gather {
        Gather::Inline(octets) => return Ok(Source::Own(octets)),
        Gather::List(list) => list,
    };
    let mut grants = Grants::new();
    cx.attrs.grants_of(list, 0, len as usize, None, &mut grants).map_err(|_| not_ours())?;
    Ok(Source::Granted(grants))
}

/// Returns the program's own memory that a request fills.
fn local(cx: &Context<'_>, sink: &Sge, len: u64) -> Result<Grant, Refused> {
    let memory = &cx.attrs.device.mem;
    memory.check_local(sink.stag, sink.addr, len, true, cx.attrs.pd).map_err(|_| not_ours())
}

/// Returns the reason where memory that the request names is no good.
fn not_ours() -> Refused {
    Refused { status: Status::LocalProtection, fault: Fault::local_catastrophic() }
}

/// Copies a message to memory that has its length, the last octet last: a program may poll it.
fn copy(source: &Source<'_>, target: &[Grant]) -> Result<(), Bad> {
    Staging::with_own(|staging| {
        let mut at = 0;
        for grant in target {
            let mut done = 0;
            while done < grant.len() {
                let octets = &mut staging.octets[..CHUNK.min(grant.len() - done)];
                source.copy_to(at + done, octets)?;
                grant.place_in_order(done, octets).map_err(|_| Bad::Target)?;
                done += octets.len();
            }
            at += grant.len();
        }
        Ok(())
    })
}

impl Source<'_> {
    /// Copies octets of the message, from this one on.
    fn copy_to(&self, mut at: usize, mut out: &mut [u8]) -> Result<(), Bad> {
        let grants = match self {
            Source::Granted(grants) => grants,
            Source::Own(octets) => {
                out.copy_from_slice(&octets[at..at + out.len()]);
                return Ok(());
            }
        };
        for grant in grants {
            let count = out.len().min(grant.len().saturating_sub(at));
            let (now, later) = out.split_at_mut(count);
            let is_copied = match grant.in_file(at.min(grant.len())) {
                Some(part) => part.read(now, true).1.is_none(),
                None => grant.copy_to(at.min(grant.len()), now).is_ok(),
            };
            if !is_copied {
                return Err(Bad::Source);
            }
            (out, at) = (later, at.saturating_sub(grant.len()));
        }
        Ok(())
    }
}
