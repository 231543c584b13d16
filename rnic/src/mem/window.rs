//! Memory windows: part of a region lent to the peer of one QP (draft-hilland-rddp-verbs §7.10).
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rddp_ddp::Stag;
use rddp_rdmap::InvalidateError;

use super::region::{Region, Revoker};
use super::slot::{Scope, SlotTable};
use super::status::Status;
use super::{Access, MemError, PdId, QpNum};

/// A memory window. Its STag is invalid until it is bound, and then valid only for the peer of the
/// QP on which it was bound.
pub struct Window {
    pd: PdId,
    /// True if a bind may take the place of another.
    rebindable: bool,
    status: Status,
    life: Mutex<Life>,
}

enum Life {
    Unbound,
    /// `base` is the Tagged Offset of the first octet.
    Bound {
        region: Arc<Region>,
        qp: QpNum,
        base: u64,
    },
    Deallocated,
}

/// The parameters of a bind.
#[derive(Clone, Copy, Debug)]
pub struct BindWindow {
    /// The window, unbound or rebindable.
    pub window: Stag,
    /// The region, which must be valid and have the right [`Access::BIND`].
    pub region: Stag,
    /// The first octet, by the region's Tagged Offset.
    pub addr: u64,
    /// Number of octets. 0 unbinds a rebindable window, whatever the region.
    pub len: u64,
    /// Remote rights, [`Access::REMOTE_INVALIDATE`] and [`Access::ZERO_BASED`] only.
    pub access: Access,
    /// The PD of the QP.
    pub pd: PdId,
    /// The QP that asks, and whose peer may use the window.
    pub qp: QpNum,
    /// The new key; `None` for a random one, which the peer cannot guess.
    pub key: Option<u8>,
}

impl Window {
    pub(super) fn new(pd: PdId, stag: Stag, rebindable: bool) -> Self {
        Self { pd, rebindable, status: Status::new(stag, Access::empty()), life: Mutex::new(Life::Unbound) }
    }

    /// Returns the STag. Binding changes it.
    pub fn stag(&self) -> Stag {
        self.status.stag()
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// Returns the rights of the last binding.
    pub fn access(&self) -> Access {
        self.status.access()
    }

    /// Returns whether the window is bound.
    pub fn is_valid(&self) -> bool {
        self.status.is_valid()
    }

    /// Returns the Tagged Offset of the first octet, while the window is bound.
    pub(crate) fn base(&self) -> Option<u64> {
        match *self.life.lock() {
            Life::Bound { base, .. } => Some(base),
            Life::Unbound | Life::Deallocated => None,
        }
    }

    /// Returns whether a bind may take the place of another.
    pub(super) fn is_rebindable(&self) -> bool {
        self.rebindable
    }

    /// Binds the window to `region` under the STag that `rekey` makes, or unbinds it where that is
    /// `None`. Returns the STag, and the QP of the binding before.
    pub(super) fn bind(
        &self,
        request: &BindWindow,
        region: Option<Arc<Region>>,
        rekey: impl FnOnce() -> Result<Stag, MemError>,
        slots: &SlotTable,
    ) -> Result<(Stag, Option<QpNum>), MemError> {
        let &BindWindow { window, addr, len, access, pd, qp, .. } = request;
        let mut life = self.alive(Some(window))?;
        if self.pd != pd {
            return Err(MemError::OtherPd(window));
        }
        if !self.rebindable && !matches!(*life, Life::Unbound) {
            return Err(MemError::AlreadyBound(window));
        }
        let stag = rekey()?;
        let Some(region) = region else {
            let before = self.replace(&mut life, Life::Unbound, slots);
            self.status.set_invalid_as(stag);
            return Ok((stag, before));
        };
        let ptr = region.bind(request.region, pd, (addr, len), access)?;
        let base = if access.contains(Access::ZERO_BASED) { 0 } else { addr };
        let (lent, file) = (region.is_lent(), region.file().cloned());
        // Now that nothing can fail any more: a bind that is refused leaves the old binding.
        let before = self.replace(&mut life, Life::Unbound, slots);
        *life = Life::Bound { region, qp, base };
        self.status.set_valid(stag, access);
        // `is_file` is false whatever the region is: only the sources of own messages are asked for
        // it, and those are regions.
        let (qp, window, is_file) = (Some(qp), true, false);
        let scope = Scope { base, len, ptr, pd, qp, access, window, is_file, lent, file };
        slots.open(stag, &scope);
        Ok((stag, before))
    }

    /// Unbinds the window, which makes its STag invalid (draft-hilland-rddp-verbs §7.10.6.3).
    /// Returns the QP on which it was bound; does nothing to a window that is not bound.
    pub(super) fn invalidate(
        &self,
        stag: Stag,
        by: Revoker,
        slots: &SlotTable,
    ) -> Result<Option<QpNum>, InvalidateError> {
        let mut life = self.life.lock();
        match *life {
            Life::Deallocated => return Err(InvalidateError::Unknown),
            _ if self.stag() != stag => return Err(InvalidateError::Key),
            Life::Bound { qp, .. } if qp != by.qp => return Err(InvalidateError::Pd),
            Life::Bound { .. } if by.remote && !self.access().contains(Access::REMOTE_INVALIDATE) => {
                return Err(InvalidateError::Rights);
            }
            Life::Unbound if self.pd != by.pd => return Err(InvalidateError::Pd),
            _ => {}
        }
        Ok(self.replace(&mut life, Life::Unbound, slots))
    }

    /// Ends the window, bound or not. Returns the QP on which it was bound.
    pub(super) fn retire(&self, stag: Option<Stag>, slots: &SlotTable) -> Result<Option<QpNum>, MemError> {
        let mut life = self.alive(stag)?;
        Ok(self.replace(&mut life, Life::Deallocated, slots))
    }

    /// Invalidates the window if it is bound to this region. Returns the QP on which it was bound.
    pub(super) fn unbind_from(&self, region: &Arc<Region>, slots: &SlotTable) -> Option<QpNum> {
        let mut life = self.life.lock();
        match &*life {
            Life::Bound { region: mine, .. } if Arc::ptr_eq(mine, region) => {
                self.replace(&mut life, Life::Unbound, slots)
            }
            _ => None,
        }
    }

    /// Ends the window under whatever STag it has. Called when the table is dropped.
    pub(super) fn abandon(&self, slots: &SlotTable) {
        self.replace(&mut self.life.lock(), Life::Deallocated, slots);
    }

    /// Returns the lifecycle, locked, if the window has this STag, or any when `None`.
    fn alive(&self, stag: Option<Stag>) -> Result<MutexGuard<'_, Life>, MemError> {
        let life = self.life.lock();
        let wanted = stag.unwrap_or(self.stag());
        let ended = matches!(*life, Life::Deallocated);
        if !ended && self.stag() == wanted { Ok(life) } else { Err(MemError::UnknownStag(wanted)) }
    }

    /// Releases the region, once nobody uses the window's octets any more.
    fn replace(&self, life: &mut Life, next: Life, slots: &SlotTable) -> Option<QpNum> {
        if self.is_valid() {
            slots.close(self.stag());
            self.status.set_invalid();
        }
        match std::mem::replace(life, next) {
            Life::Bound { region, qp, .. } => {
                region.unbind();
                Some(qp)
            }
            Life::Unbound | Life::Deallocated => None,
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("stag", &self.stag())
            .field("pd", &self.pd)
            .field("access", &self.access())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
