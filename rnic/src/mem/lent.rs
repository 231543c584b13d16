//! Memory windows as a device of the host has them, beside the table.
//!
//! The table says whether a window may be bound, and to what. The device has a window of its own
//! for each binding, which ends with it: another binding has another key.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rddp_ddp::Stag;
use rddp_rdma::Remote;
use rddp_verbs_device::{Device, DeviceError, Window};

/// Windows, by their present STags.
#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<BTreeMap<Stag, Arc<Lent>>>);

/// A window as the device knows it, in the domain of its PD.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) window: Window,
    domain: Arc<Device>,
}

impl Lent {
    fn new(domain: Arc<Device>) -> Result<Self, DeviceError> {
        Ok(Lent { window: Window::new(domain.domain())?, domain })
    }
}

impl Windows {
    /// Makes the device's window for one that is new in the table.
    pub(super) fn allocate(&self, stag: Stag, domain: Arc<Device>) -> Result<(), DeviceError> {
        let lent = Lent::new(domain)?;
        self.0.lock().insert(stag, Arc::new(lent));
        Ok(())
    }

    /// Returns the device's window for a binding by which the STag has changed: another one than
    /// that of the binding before, which ends.
    pub(super) fn renew(&self, from: Stag, to: Stag) -> Result<Option<Arc<Lent>>, DeviceError> {
        let Some(mut lent) = self.0.lock().remove(&from) else { return Ok(None) };
        if !lent.window.is_new() {
            let next = Lent::new(lent.domain.clone());
            // A device that has none more now may have one for the next bind.
            lent = match next {
                Ok(next) => Arc::new(next),
                Err(error) => {
                    self.0.lock().insert(to, lent);
                    return Err(error);
                }
            };
        }
        self.0.lock().insert(to, lent.clone());
        Ok(Some(lent))
    }

    pub(super) fn forget(&self, stag: Stag) {
        let forgotten = self.0.lock().remove(&stag);
        drop(forgotten);
    }

    /// Returns the first octet of a window as its peer knows it, while it is bound.
    pub(super) fn remote(&self, stag: Stag) -> Option<Remote> {
        self.0.lock().get(&stag)?.window.remote()
    }

    /// Returns the STag of the window that its peer knows by this key.
    pub(super) fn stag_of(&self, key: Stag) -> Option<Stag> {
        let windows = self.0.lock();
        let mut named =
            windows.iter().filter(|(_, lent)| lent.window.remote().is_some_and(|it| it.stag == key));
        named.next().map(|(stag, _)| *stag)
    }
}
