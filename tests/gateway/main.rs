//! The gateway between the software RNIC, as a plain host, and the fake libraries' devices.

mod bounds;
mod costs;
mod crowds;
#[allow(dead_code, reason = "the tests of the device crate use the rest")]
#[path = "../../verbs-device/tests/devices/support.rs"]
mod devices;
mod ends;
mod hostile;
mod lookups;
mod operations;
mod troubles;
mod world;
