//! The device that the tests run on: software, or what the variable `RDDP_TEST_DEVICE` names. That
//! is a device of the host, or `fake-siw` and `fake-rxe`, which our library plays.
//!
//! On a device, a test that needs what only software has ends by [`needs_software`], and one that
//! needs what the device lacks by [`needs`]: `tests/device/each-test` counts them as skipped.

#[path = "../../../verbs-device/tests/devices/fake.rs"]
mod fake;

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use rddp_rnic::{Access, Atomics, Capabilities, Rnic, RnicConfig};
use rddp_verbs_device::Device;

use fake::{Kind, fake};

/// Returns the device of the process, which all its ends share, and its address.
fn device() -> Option<&'static (Device, IpAddr)> {
    static DEVICE: OnceLock<Option<(Device, IpAddr)>> = OnceLock::new();
    let played = |kind| {
        let number = fake().make("played", kind, 0) as u8;
        (Device::named_in(fake().library, "played").unwrap(), IpAddr::from([127, 100 + number, 0, 1]))
    };
    let named = |name: String| match name.as_str() {
        "fake-siw" => played(Kind::Siw),
        "fake-rxe" => played(Kind::Rxe),
        _ => {
            let device = Device::named(&name).unwrap();
            let address = device.addresses()[0];
            (device, address)
        }
    };
    DEVICE.get_or_init(|| std::env::var("RDDP_TEST_DEVICE").ok().map(named)).as_ref()
}

/// Opens an RNIC on the device.
pub fn open() -> Rnic {
    open_with(&RnicConfig::default())
}

/// Opens an RNIC on the device, with these settings.
pub fn open_with(config: &RnicConfig) -> Rnic {
    Rnic::with_device(config, device().map(|(device, _)| device.clone())).unwrap()
}

/// Returns an address of the device with the port of this one, which is loopback's in software.
pub fn local(addr: &str) -> SocketAddr {
    let addr: SocketAddr = addr.parse().unwrap();
    device().map_or(addr, |(_, own)| SocketAddr::new(*own, addr.port()))
}

/// Returns whether the tests run on a device, and not in software.
pub fn is_on_device() -> bool {
    device().is_some()
}

/// Returns these rights, on a device without those of what it lacks: tests that are about something
/// else ask for all.
pub fn rights(wanted: Access) -> Access {
    if !is_on_device() {
        return wanted;
    }
    let device = open().capabilities();
    let lacking = [
        (Access::REMOTE_ATOMIC, device.atomics == Atomics::None),
        (Access::BIND, !device.windows),
        // Devices have it of windows alone.
        (Access::REMOTE_INVALIDATE, true),
    ];
    lacking.into_iter().filter(|(_, lacks)| *lacks).fold(wanted, |rights, (right, _)| rights - right)
}

/// Skips the test on a device: it is about something of software, such as TCP.
pub fn needs_software(what: &str) {
    assert!(!is_on_device(), "skipped: {what}");
}

/// Skips the test where the device lacks a capability, which has this name.
pub fn needs(what: &str, has: impl Fn(&Capabilities) -> bool) {
    assert!(has(&open().capabilities()), "skipped: {what}");
}
