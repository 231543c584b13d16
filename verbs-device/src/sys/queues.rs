//! A completion queue with a channel of its own, and the requests of a queue pair.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rddp_verbs_layout::{
    Plain, ibv_comp_channel, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_wc, qp_mask, qp_state, qp_type, send,
};

use super::context::{Context, Domain, set_nonblocking};
use super::library::Library;
use super::shared::SharedQueue;
use super::{by_errno, by_value, count};

/// The local octets of a request.
pub(crate) enum Octets<'a> {
    Pieces(&'a [ibv_sge]),
    /// Octets that the device copies while the request is posted.
    Inline(&'a [u8]),
}

/// Lengths of the queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) send_pieces: u32,
    pub(crate) receive_pieces: u32,
    pub(crate) inline: u32,
}

/// A completion queue and its channel.
#[derive(Debug)]
pub(crate) struct Completions {
    library: &'static Library,
    channel: NonNull<ibv_comp_channel>,
    queue: NonNull<ibv_cq>,
}

// SAFETY: functions on both may be called from several threads at a time (see the module).
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Completions {
    /// Makes both. Of a call that fails, the name comes with the error.
    pub(super) fn new(context: &Context, capacity: u32) -> Result<Self, (&'static str, io::Error)> {
        let (library, raw) = (context.library, context.raw.as_ptr());
        let capacity = c_int::try_from(capacity).unwrap_or(c_int::MAX);
        // SAFETY: the context is open.
        let channel = unsafe { (library.table.ibv_create_comp_channel)(raw) };
        let channel =
            NonNull::new(channel).ok_or_else(|| ("ibv_create_comp_channel", io::Error::last_os_error()))?;
        // SAFETY: the channel is of this context.
        let queue = unsafe { (library.table.ibv_create_cq)(raw, capacity, null_mut(), channel.as_ptr(), 0) };
        let Some(queue) = NonNull::new(queue) else {
            let error = io::Error::last_os_error();
            // SAFETY: nothing uses the channel.
            unsafe { (library.table.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(("ibv_create_cq", error));
        };
        let completions = Completions { library, channel, queue };
        set_nonblocking(completions.as_fd()).map_err(|error| ("fcntl", error))?;
        Ok(completions)
    }

    /// Takes up to as many completions as there is room for; returns how many.
    pub(crate) fn poll(&self, into: &mut [ibv_wc]) -> io::Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        let queue = self.queue.as_ptr();
        // SAFETY: the queue is there, its context has the function, and there is that much room.
        let polled = unsafe { ((*(*queue).context).ops.poll_cq)(queue, room, into.as_mut_ptr()) };
        usize::try_from(polled).map_err(|_| io::Error::from_raw_os_error(polled.saturating_abs()))
    }

    /// Asks for an event by the next completion.
    pub(crate) fn arm(&self) -> io::Result<()> {
        let queue = self.queue.as_ptr();
        // SAFETY: as above.
        by_value(unsafe { ((*(*queue).context).ops.req_notify_cq)(queue, 0) })
    }

    /// Takes all events, and acknowledges them.
    pub(crate) fn take_events(&self) -> io::Result<()> {
        let (mut queue, mut program, mut taken) = (null_mut(), null_mut(), 0);
        let table = &self.library.table;
        let last = loop {
            // SAFETY: two pointers can be stored.
            let got =
                unsafe { (table.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut program) };
            match by_errno(got) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
        };
        if taken > 0 {
            // SAFETY: this many events of the queue were taken.
            unsafe { (table.ibv_ack_cq_events)(self.queue.as_ptr(), taken) };
        }
        if last.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(last) }
    }
}

/// The descriptor that is readable while there are events.
impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's, which lives as long as this.
        unsafe { BorrowedFd::borrow_raw((&raw const (*self.channel.as_ptr()).fd).read()) }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let table = &self.library.table;
        // SAFETY: the queue pair, which holds this, is gone; all events are acknowledged.
        unsafe {
            (table.ibv_destroy_cq)(self.queue.as_ptr());
            (table.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// A queue pair of an id, which destroys it: this holds what it uses.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(super) raw: NonNull<ibv_qp>,
    pub(crate) completions: Completions,
    /// Octets that the device takes inline.
    pub(crate) inline: u32,
    _domain: Arc<Domain>,
    _shared: Option<Arc<SharedQueue>>,
}

// SAFETY: functions on a queue pair may be called from several threads at a time (see the module).
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

/// Returns the attributes of which a queue pair is made.
pub(super) fn attributes(
    completions: &Completions,
    shape: Shape,
    shared: Option<&Arc<SharedQueue>>,
) -> ibv_qp_init_attr {
    let srq = shared.map_or(null_mut(), |shared| shared.raw.as_ptr());
    let queue = completions.queue.as_ptr();
    let of_own = |number| if shared.is_some() { 0 } else { number };
    let cap = ibv_qp_cap {
        max_send_wr: shape.sends,
        max_recv_wr: of_own(shape.receives),
        max_send_sge: shape.send_pieces,
        max_recv_sge: of_own(shape.receive_pieces),
        max_inline_data: shape.inline,
    };
    ibv_qp_init_attr { send_cq: queue, recv_cq: queue, srq, cap, qp_type: qp_type::RC, ..Plain::zeroed() }
}

impl Pair {
    pub(super) fn new(
        raw: NonNull<ibv_qp>,
        completions: Completions,
        inline: u32,
        domain: &Arc<Domain>,
        shared: Option<Arc<SharedQueue>>,
    ) -> Self {
        Pair { raw, completions, inline, _domain: Arc::clone(domain), _shared: shared }
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: a field that the library does not change.
        unsafe { (&raw const (*self.raw.as_ptr()).qp_num).read() }
    }

    /// Posts one request to the send queue.
    pub(crate) fn post_send(&self, request: &mut ibv_send_wr, octets: &Octets<'_>) -> io::Result<()> {
        let mut inline = ibv_sge { addr: 0, length: 0, lkey: 0 };
        let pieces: *const ibv_sge = match octets {
            Octets::Pieces(pieces) => {
                request.num_sge = count(pieces.len())?;
                pieces.as_ptr()
            }
            Octets::Inline(octets) => {
                inline.addr = octets.as_ptr().expose_provenance() as u64;
                inline.length = octets.len() as u32;
                request.num_sge = 1;
                request.send_flags |= send::INLINE;
                &raw const inline
            }
        };
        (request.sg_list, request.next) = (pieces.cast_mut(), null_mut());
        let (pair, mut bad) = (self.raw.as_ptr(), null_mut());
        // SAFETY: the queue pair is there, and its context has the function. Request, pieces and
        // inline octets are there during the call, behind which the device needs none of them; it
        // reads other memory by keys alone, which it checks.
        by_value(unsafe { ((*(*pair).context).ops.post_send)(pair, request, &raw mut bad) })
    }

    /// Posts one receive.
    pub(crate) fn post_receive(&self, id: u64, pieces: &[ibv_sge]) -> io::Result<()> {
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: null_mut(),
            sg_list: pieces.as_ptr().cast_mut(),
            num_sge: count(pieces.len())?,
        };
        let (pair, mut bad) = (self.raw.as_ptr(), null_mut());
        // SAFETY: as above.
        by_value(unsafe { ((*(*pair).context).ops.post_recv)(pair, &raw mut request, &raw mut bad) })
    }

    /// Ends the queue pair, from whatever state: it never gets a connection, and all its requests
    /// are flushed.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.modify(ibv_qp_attr { qp_state: qp_state::ERR, ..Plain::zeroed() }, qp_mask::STATE)
    }

    /// Changes those attributes of the queue pair that the mask names.
    pub(crate) fn modify(&self, mut attributes: ibv_qp_attr, mask: u32) -> io::Result<()> {
        let table = &self.completions.library.table;
        // SAFETY: the queue pair and the structure are there.
        by_value(unsafe { (table.ibv_modify_qp)(self.raw.as_ptr(), &raw mut attributes, mask as c_int) })
    }
}
