//! Devices as the libraries have them open, and what is made of one.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::PoisonError;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rddp_verbs_layout::{
    Plain, event, ibv_async_event, ibv_context, ibv_device, ibv_device_attr, ibv_pd, ibv_port_attr, ibv_qp,
};

use super::library::Library;
use super::{by_errno, by_value};
use crate::error::DeviceError;

/// A device that a library has open, for as long as the process lives.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<ibv_context>,
}

// SAFETY: functions on a context may be called from several threads at a time (see the module), and
// the context is never freed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// An event of a device that belongs to no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEvent {
    /// Kind of the event, as [`rddp_verbs_layout::event`] has them.
    pub kind: u32,
    /// Number of the queue pair, if it is about one.
    pub qp: Option<u32>,
}

impl Context {
    /// Returns the devices. Their contexts are shared with the connection manager, and stay open.
    pub(crate) fn all(library: &'static Library) -> Result<Vec<Context>, DeviceError> {
        let mut count = 0;
        // SAFETY: the count can be stored.
        let list = unsafe { (library.table.rdma_get_devices)(&raw mut count) };
        if list.is_null() {
            let error = std::io::Error::last_os_error();
            // No module of the kernel: the same as no device.
            if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS)) {
                return Ok(Vec::new());
            }
            return Err(DeviceError::call("rdma_get_devices", "any device", error));
        }
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has as many entries as the library says, and is freed below at most.
        let entries = unsafe { std::slice::from_raw_parts(list, count) };
        let found: Vec<_> = entries.iter().filter_map(|raw| Context::new(library, *raw)).collect();
        let mut kept = library.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // By the last list that a context is in, releases that reopen devices would free it.
        let addresses = found.iter().map(|context| context.raw.addr().get());
        if addresses.clone().all(|address| kept.contains(&address)) {
            // SAFETY: the list was made above. Each context is in one that is kept.
            unsafe { (library.table.rdma_free_devices)(list) };
        } else {
            kept.extend(addresses);
        }
        Ok(found)
    }

    fn new(library: &'static Library, raw: *mut ibv_context) -> Option<Self> {
        NonNull::new(raw).map(|raw| Context { library, raw })
    }

    pub(crate) fn is(&self, other: *const ibv_context) -> bool {
        std::ptr::eq(self.raw.as_ptr(), other)
    }

    fn device(&self) -> *mut ibv_device {
        // SAFETY: a context names its device as long as it is open.
        unsafe { (&raw const (*self.raw.as_ptr()).device).read() }
    }

    pub(crate) fn name(&self) -> String {
        // SAFETY: the library returns a string of the device's, which ends with a zero.
        let name = unsafe { CStr::from_ptr((self.library.table.ibv_get_device_name)(self.device())) };
        name.to_string_lossy().into_owned()
    }

    /// Returns the transport's number.
    pub(crate) fn transport(&self) -> i32 {
        // SAFETY: a field of the device, which the library does not change.
        unsafe { (&raw const (*self.device()).transport_type).read() }
    }

    pub(crate) fn attributes(&self) -> io::Result<ibv_device_attr> {
        let mut attr = ibv_device_attr::zeroed();
        // SAFETY: the structure can be stored.
        by_value(unsafe { (self.library.table.ibv_query_device)(self.raw.as_ptr(), &raw mut attr) })?;
        Ok(attr)
    }

    pub(crate) fn port(&self, number: u8) -> io::Result<ibv_port_attr> {
        let mut attr = ibv_port_attr::default();
        // SAFETY: the function stores the structure of the first releases, of which ours is longer.
        by_value(unsafe { (self.library.table.ibv_query_port)(self.raw.as_ptr(), number, &raw mut attr) })?;
        Ok(attr)
    }

    /// Takes the oldest asynchronous event, if there is one.
    pub(crate) fn event(&self) -> io::Result<Option<DeviceEvent>> {
        set_nonblocking(self.as_fd())?;
        let (table, mut taken) = (&self.library.table, MaybeUninit::<ibv_async_event>::uninit());
        // SAFETY: an event can be stored.
        let got = by_errno(unsafe { (table.ibv_get_async_event)(self.raw.as_ptr(), taken.as_mut_ptr()) });
        match got {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        // SAFETY: the library has stored one.
        let mut taken = unsafe { taken.assume_init() };
        let kind = taken.event_type;
        // SAFETY: an event about a queue pair names it, and it stays until the event is
        // acknowledged.
        let qp = is_about_pair(kind).then(|| unsafe { (*taken.element.cast::<ibv_qp>()).qp_num });
        // SAFETY: the event that was taken, once.
        unsafe { (table.ibv_ack_async_event)(&raw mut taken) };
        Ok(Some(DeviceEvent { kind, qp }))
    }
}

fn is_about_pair(kind: u32) -> bool {
    matches!(
        kind,
        event::QP_FATAL
            | event::QP_REQ_ERR
            | event::QP_ACCESS_ERR
            | event::COMM_EST
            | event::SQ_DRAINED
            | event::QP_LAST_WQE_REACHED
    )
}

/// The descriptor that is readable while there are asynchronous events.
impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the library closes the descriptor with the context, so never.
        unsafe { BorrowedFd::borrow_raw((&raw const (*self.raw.as_ptr()).async_fd).read()) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name()).finish()
    }
}

/// Sets `O_NONBLOCK`.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    if !flags.contains(OFlag::O_NONBLOCK) {
        fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
}

/// The memory that a device's windows lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lends {
    /// Nothing, since there are no windows.
    Nothing,
    /// The octets that they are bound to.
    Octets,
    /// All of the registration: rxe compares the window's rights, and the registration's octets.
    Registrations,
}

impl Lends {
    pub(crate) fn of(has_windows: bool, vendor: u32) -> Self {
        match (has_windows, vendor) {
            (false, _) => Lends::Nothing,
            (true, RXE) => Lends::Registrations,
            (true, _) => Lends::Octets,
        }
    }
}

/// Vendor of Linux's rxe, as it tells it.
const RXE: u32 = 0xff_ffff;

/// A protection domain: registered memory and endpoints of one are used together.
#[derive(Debug)]
pub struct Domain {
    pub(super) context: Context,
    pub(super) raw: NonNull<ibv_pd>,
    pub(super) lends: Lends,
}

// SAFETY: functions on a domain may be called from several threads at a time (see the module).
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(context: Context, lends: Lends) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.table.ibv_alloc_pd)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Domain { context, raw, lends })
    }

    /// Returns another domain of the device.
    pub(crate) fn another(&self) -> io::Result<Self> {
        Self::new(self.context, self.lends)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: what was made in the domain holds it, so that nothing is left.
        unsafe { (self.context.library.table.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}
