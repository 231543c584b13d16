//! Memory windows: a part of a registration that is lent to the peer of one connection.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{fmt, io};

use rddp_rdma::{Remote, Sge, Stag};
use rddp_verbs_layout::{Plain, ibv_mr, ibv_mw, ibv_mw_bind_info, ibv_send_wr, mw_type, wr};

use super::context::{Domain, Lends};
use crate::error::{DeviceError, PostError};

/// A memory window, which is bound once: by [`Endpoint::post_bind`](crate::Endpoint::post_bind). It
/// ends with the first of these that goes: itself, its registration, its connection.
#[derive(Debug)]
pub struct Window(Arc<Shared>);

/// The part of a window that all have who end it.
#[derive(Debug)]
struct Shared {
    /// Locked while a request has the pointer.
    raw: Mutex<Option<Raw>>,
    is_over: AtomicBool,
    bound: OnceLock<Remote>,
    domain: Arc<Domain>,
}

/// A window of the library, and the registration of its own that it is bound to, if it has one.
#[derive(Debug)]
struct Raw(NonNull<ibv_mw>, Option<Part>);

/// The registration of a place by itself.
pub(super) type Part = Box<dyn fmt::Debug + Send>;

// SAFETY: functions on a window may be called in any thread.
unsafe impl Send for Raw {}

/// The place where a window is bound, as the device has it.
pub(crate) struct Place<'a> {
    pub(super) region: NonNull<ibv_mr>,
    /// The registration of the place by itself, if there is one: it goes behind the window, and
    /// before that of which it is a part.
    pub(super) part: Option<Part>,
    /// Windows of the region.
    pub(super) windows: &'a Windows,
    pub(super) piece: Sge,
    /// Rights of the peer, as C has them.
    pub(crate) flags: u32,
    /// The low octet of the window's new key.
    pub(crate) key: u8,
}

impl Window {
    /// Makes a window that is not bound.
    ///
    /// # Errors
    /// The device has no windows, or no more of them.
    pub fn new(domain: &Arc<Domain>) -> Result<Self, DeviceError> {
        let name = || domain.context.name();
        if domain.lends == Lends::Nothing {
            return Err(DeviceError::Unsupported { what: "memory windows", device: name() });
        }
        let pd = domain.raw.as_ptr();
        // SAFETY: the domain and its context are there.
        let alloc = unsafe { (&raw const (*domain.context.raw.as_ptr()).ops.alloc_mw).read() };
        let raw = NonNull::new(alloc(pd, mw_type::TYPE_2))
            .ok_or_else(|| DeviceError::call("ibv_alloc_mw", &name(), io::Error::last_os_error()))?;
        Ok(Window(Arc::new(Shared {
            raw: Mutex::new(Some(Raw(raw, None))),
            is_over: AtomicBool::new(false),
            bound: OnceLock::new(),
            domain: Arc::clone(domain),
        })))
    }

    /// Returns the place of the window's first octet as peers know it, once it is bound and until
    /// it ends.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        self.0.bound.get().copied().filter(|_| !self.is_over())
    }

    /// Returns whether the window can be bound.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.0.bound.get().is_none() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Binds the window by the request that `post` hands over.
    pub(crate) fn bind(
        &self,
        place: Place<'_>,
        post: impl FnOnce(ibv_send_wr) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let mut raw = self.0.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(Raw(mw, part)), None) = (&mut *raw, self.0.bound.get()) else {
            return Err(PostError::Unsupported { what: "a window that is bound a second time" });
        };
        // SAFETY: the window is there; a field that the library does not change.
        let index = unsafe { (&raw const (*mw.as_ptr()).rkey).read() } & !0xff;
        let piece = place.piece;
        let remote = Remote { stag: Stag(index | u32::from(place.key)), to: piece.addr };
        place.windows.add(self);
        post(ibv_send_wr {
            opcode: wr::BIND_MW,
            mw: mw.as_ptr(),
            mw_rkey: remote.stag.0,
            bind_info: ibv_mw_bind_info {
                mr: place.region.as_ptr().cast(),
                addr: piece.addr,
                length: piece.len,
                mw_access_flags: place.flags,
            },
            ..ibv_send_wr::zeroed()
        })?;
        *part = place.part;
        let _ = self.0.bound.set(remote);
        Ok(())
    }
}

impl Shared {
    /// Ends the window, bound or not: behind this no peer has it.
    fn end(&self) {
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Raw(mw, part)) = raw.take() else { return };
        self.is_over.store(true, Ordering::Relaxed);
        // SAFETY: the context is open as long as the process lives.
        let dealloc = unsafe { (&raw const (*self.domain.context.raw.as_ptr()).ops.dealloc_mw).read() };
        if dealloc(mw.as_ptr()) != 0 {
            tracing::error!(device = self.domain.context.name(), "the device does not end a memory window");
        }
        drop(part);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Windows that end before something does: devices do not end a registration with windows that are
/// bound, and rxe waits for those of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<Vec<Arc<Shared>>>);

impl Windows {
    pub(crate) fn add(&self, window: &Window) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|other| !other.is_over.load(Ordering::Relaxed));
        windows.push(Arc::clone(&window.0));
    }

    pub(crate) fn end(&self) {
        let windows = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        windows.iter().for_each(|window| window.end());
    }
}
