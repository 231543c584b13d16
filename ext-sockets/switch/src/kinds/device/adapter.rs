//! The device of this process, opened at the first `connect` or `listen` that needs it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use rddp_real as real;
use rddp_rnic::{Rnic, RnicConfig};
use rddp_sdp::socket::Config;
use rddp_sdp_rnic::{Scheme, SdpDevice};
use rddp_stream::Errno;

use crate::sdp::DEVICE;
use crate::switch;

/// The name of the device, if the environment has one.
static NAME: OnceLock<String> = OnceLock::new();

static DEVICE_OF_PROCESS: Mutex<Option<SdpDevice>> = Mutex::new(None);

/// This process, or one it was forked from, has asked for the device.
static WAS_USED: AtomicBool = AtomicBool::new(false);

/// This process was forked from one that had opened a device of the host. Both would have the same
/// file of it, by which the kernel takes requests of the process alone that has opened it.
static IS_PARENTS: AtomicBool = AtomicBool::new(false);

/// Reads the environment, when the library is loaded.
pub(crate) fn load() {
    let name = real::secure_variable(DEVICE).filter(|name| !name.is_empty());
    if let Some(name) = name.and_then(|name| name.into_string().ok()) {
        // This is the only place that sets it.
        let _ = NAME.set(name);
    }
}

/// Returns whether sockets of SDP are to be those of a device.
pub(crate) fn is_asked() -> bool {
    NAME.get().is_some()
}

pub(super) fn name() -> &'static str {
    NAME.get().map_or("", String::as_str)
}

/// Returns the device, and opens it if need be. Nothing of a device is loaded before.
///
/// # Errors
/// ENODEV: it cannot be used, as the log says.
pub(super) fn device() -> Result<SdpDevice, Errno> {
    WAS_USED.store(true, Ordering::Release);
    if IS_PARENTS.load(Ordering::Acquire) {
        switch::tell_parents_device(name());
        return Err(Errno(libc::ENODEV));
    }
    let mut device = real::lock(&DEVICE_OF_PROCESS);
    if device.is_none() {
        let opened = open().map_err(|error| {
            switch::tell_device(name(), &error);
            Errno(libc::ENODEV)
        })?;
        *device = Some(opened);
    }
    device.clone().ok_or(Errno(libc::ENODEV))
}

fn open() -> io::Result<SdpDevice> {
    let settings = RnicConfig { device: Some(name().to_owned()), ..RnicConfig::default() };
    let rnic = Rnic::with_config(&settings).map_err(io::Error::other)?;
    SdpDevice::on(rnic, Config::default(), Scheme::PerCall)
}

/// Returns whether this process, or one it was forked from, has asked for the device.
pub(super) fn was_used() -> bool {
    WAS_USED.load(Ordering::Acquire)
}

/// Returns the device, if it was opened.
pub(super) fn opened() -> Option<SdpDevice> {
    real::lock(&DEVICE_OF_PROCESS).clone()
}

/// Forgets the parent's device in the child of a `fork`: its threads are the parent's.
pub(super) fn forget() {
    let parents = real::lock(&DEVICE_OF_PROCESS).take();
    if parents.is_some() && name() != RnicConfig::SOFTWARE {
        IS_PARENTS.store(true, Ordering::Release);
    }
    std::mem::forget(parents);
}
