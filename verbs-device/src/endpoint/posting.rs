//! Requests.

use std::io;
use std::ops::Range;

use rddp_rdma::{Access, Atomics, Completed, Operation, RecvWr, Remote, SendWr, Sge, Stag};
use rddp_verbs_layout::{access, send};

use super::outstanding::Sent;
use super::{Endpoint, OWN, Stage};
use crate::error::PostError;
use crate::sys::{Octets, Registration, Window};
use crate::words::{Local, Prepared, RECEIVE, fill, inbound, prepare};

impl Endpoint {
    /// Posts a request to the send queue. Memory is named by the device's keys, and kept until the
    /// request has completed.
    ///
    /// # Errors
    /// The queue is full, or the request is beyond the device or the connection; it was not posted.
    pub fn post_send(&mut self, request: &SendWr) -> Result<(), PostError> {
        if request.local_fence {
            return Err(PostError::Unsupported { what: "local fences" });
        }
        self.post_send_as(request, (request.wr_id, request.signaled), Some)
    }

    /// Posts a request under a number of the caller's, who says whether its success is told, and
    /// holds it back behind a local fence. `name` makes the device's names of those of its memory.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send), or some memory has no name.
    pub fn post_send_as(
        &mut self,
        request: &SendWr,
        (wr_id, signaled): (u64, bool),
        name: impl FnMut(Sge) -> Option<Sge>,
    ) -> Result<(), PostError> {
        self.takes_requests()?;
        let mut prepared = prepare(request)?;
        self.refuse_beyond_device(&prepared, &request.operation)?;
        self.hand_over(&mut prepared, (wr_id, signaled), false, name)
    }

    /// Posts a request that binds a window to a part of a registration, with these rights of the
    /// connection's peer. `key` becomes the low octet of the window's key.
    ///
    /// The window is unbound by a request that invalidates its key, by a Send with Invalidate of
    /// the peer's, or by its end.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send), or the window has been bound before.
    pub fn post_bind(
        &mut self,
        (window, key): (&Window, u8),
        (of, range): (&Registration, Range<usize>),
        rights: Access,
        (wr_id, signaled): (u64, bool),
    ) -> Result<(), PostError> {
        self.takes_requests()?;
        self.windows.add(window);
        let flags = inbound(rights) & !access::LOCAL_WRITE;
        let place =
            of.place(range, flags, key).map_err(|error| PostError::Device(io::Error::other(error)))?;
        window.bind(place, |request| {
            let (completed, local, read) = (Completed::Bind, Local::None, 0);
            let mut prepared = Prepared { request, completed, local, read };
            self.hand_over(&mut prepared, (wr_id, signaled), false, Some)
        })
    }

    /// Refuses a request while there is no connection, or no place in the queue.
    fn takes_requests(&self) -> Result<(), PostError> {
        if self.stage != Stage::Connected {
            return Err(PostError::NotConnected);
        }
        if self.sends.is_full() {
            return Err(PostError::QueueFull { capacity: self.sends.capacity() });
        }
        Ok(())
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
        if matches!(of, Operation::Invalidate { .. }) && !limits.windows {
            return Err(PostError::Unsupported { what: "memory windows" });
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
        prepared: &mut Prepared<'_>,
        (wr_id, signaled): (u64, bool),
        own: bool,
        name: impl FnMut(Sge) -> Option<Sge>,
    ) -> Result<(), PostError> {
        let Prepared { request, completed, local, read } = prepared;
        let Some(pair) = self.link.id.pair() else { return Err(PostError::NotConnected) };
        let octets = match local {
            Local::None => Octets::Pieces(&[]),
            Local::Pieces(list) => {
                let (max, wants_one) = (self.device.capabilities().max_sge, *completed == Completed::Read);
                Octets::Pieces(fill(&mut self.pieces, list, max, wants_one, name)?)
            }
            Local::Inline(octets) if octets.len() > pair.inline as usize => {
                return Err(PostError::InlineTooLong { len: octets.len(), max: pair.inline as usize });
            }
            Local::Inline(octets) => Octets::Inline(octets),
        };
        let (number, is_signaled) = self.sends.next(signaled || self.device.signals_all());
        request.wr_id = number;
        request.send_flags |= if is_signaled { send::SIGNALED } else { 0 };
        pair.post_send(request, &octets)?;
        let (completed, read) = (*completed, *read);
        self.sends.push(Sent { wr_id, completed, read, signaled, own }, is_signaled);
        Ok(())
    }

    /// Posts a receive, whose `wr_id` is below 2^63; before there is a connection, too.
    ///
    /// # Errors
    /// The queue is full, or the receive has more pieces than the device takes.
    pub fn post_receive(&mut self, request: &RecvWr) -> Result<(), PostError> {
        self.post_receive_as(request.wr_id, &request.scatter, Some)
    }

    /// Posts a receive, with names of memory as in [`post_send_as`](Self::post_send_as).
    ///
    /// # Errors
    /// As [`post_receive`](Self::post_receive), or some memory has no name.
    pub fn post_receive_as(
        &mut self,
        wr_id: u64,
        scatter: &[Sge],
        name: impl FnMut(Sge) -> Option<Sge>,
    ) -> Result<(), PostError> {
        if self.receives >= self.queues.receives {
            return Err(PostError::QueueFull { capacity: self.queues.receives });
        }
        if self.shared.is_some() {
            return Err(PostError::Unsupported { what: "receives of its own beside shared ones" });
        }
        let Some(pair) = self.link.id.pair() else { return Err(PostError::NotConnected) };
        let (max, wants_one) = (self.device.capabilities().max_sge, self.is_iwarp());
        let pieces = fill(&mut self.pieces, scatter, max, wants_one, name)?;
        pair.post_receive(RECEIVE | wr_id, pieces)?;
        self.receives += 1;
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
        self.hand_over(&mut prepare(&request)?, (0, true), true, Some)
    }
}
