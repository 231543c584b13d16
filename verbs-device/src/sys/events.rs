//! Event channels of the connection manager, and their events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

use rddp_verbs_layout::{rdma_cm_event, rdma_cm_id, rdma_event_channel};

use super::by_errno;
use super::context::set_nonblocking;
use super::library::Library;

/// A channel of events, which never blocks.
#[derive(Debug)]
pub(crate) struct EventChannel {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<rdma_event_channel>,
}

// SAFETY: functions on a channel may be called from several threads at a time (see the module).
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// An event of the connection manager, which has been acknowledged.
#[derive(Debug)]
pub(crate) struct CmEvent {
    /// Kind of the event, as [`rddp_verbs_layout::cm`] has them.
    pub(crate) kind: u32,
    pub(crate) status: i32,
    pub(crate) private_data: Vec<u8>,
    /// Depths as they are for this end: Reads and atomics that it answers, and that it may ask for.
    pub(crate) ird: u8,
    pub(crate) ord: u8,
    /// The id that a request of a peer has made.
    request: NewId,
}

/// An id that is nobody's yet.
#[derive(Debug)]
struct NewId(Option<NonNull<rdma_cm_id>>);

// SAFETY: see the module.
unsafe impl Send for NewId {}

impl EventChannel {
    pub(crate) fn new(library: &'static Library) -> io::Result<Self> {
        // SAFETY: the function takes nothing.
        let raw = unsafe { (library.table.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = EventChannel { library, raw };
        set_nonblocking(channel.as_fd())?;
        Ok(channel)
    }

    /// Takes the oldest event, if there is one, and acknowledges it: an id with an event that is
    /// not acknowledged is never destroyed.
    pub(crate) fn event(&self) -> io::Result<Option<CmEvent>> {
        let mut taken: *mut rdma_cm_event = null_mut();
        // SAFETY: a pointer can be stored.
        let got = unsafe { (self.library.table.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut taken) };
        match by_errno(got) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        // SAFETY: the event is there until it is acknowledged. Of a kind without private data, the
        // library sets pointer and length to 0.
        let event = unsafe { CmEvent::copied(&*taken) };
        // SAFETY: the event that was taken, once.
        unsafe { (self.library.table.rdma_ack_cm_event)(taken) };
        Ok(Some(event))
    }
}

/// The descriptor that is readable while there are events.
impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's, which lives as long as this.
        unsafe { BorrowedFd::borrow_raw((&raw const (*self.raw.as_ptr()).fd).read()) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: the ids that used it are gone: each holds its channel.
        unsafe { (self.library.table.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

impl CmEvent {
    /// Takes the id that a request of a peer has made.
    pub(super) fn take_request(&mut self) -> Option<NonNull<rdma_cm_id>> {
        self.request.0.take()
    }

    /// # Safety
    /// The private data are as long as the event says.
    unsafe fn copied(event: &rdma_cm_event) -> Self {
        let param = &event.param;
        let len = usize::from(param.private_data_len);
        let private_data = if param.private_data.is_null() || len == 0 {
            Vec::new()
        } else {
            // SAFETY: promised by the caller; the event is there during the copy.
            unsafe { std::slice::from_raw_parts(param.private_data.cast(), len) }.to_vec()
        };
        CmEvent {
            kind: event.event,
            status: event.status,
            private_data,
            ird: param.responder_resources,
            ord: param.initiator_depth,
            request: NewId(NonNull::new(event.id).filter(|_| !event.listen_id.is_null())),
        }
    }
}
