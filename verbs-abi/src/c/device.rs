//! Devices: the list, names and identifiers.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;

use super::abi::{Plain, device, ibv_context, ibv_device};
use super::border::pointer;
use super::context::Context;
use super::environment::{roce_devices, settings};
use super::handle::{Object, Shared};
use super::process::process;
use crate::device::Device;
use crate::engine::Engine;
use crate::errors::Outcome;
use crate::refusal::because;

/// A device, as programs hold it: for ever, also in a child of `fork`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct DeviceObject {
    c: Shared<DeviceRoom>,
    pub(super) device: Device,
    /// The context of the connection manager, which programs and ids share.
    shared: OnceLock<&'static Context>,
}

/// C's part, and zeros behind it, where programs of other releases may look for more.
#[repr(C)]
struct DeviceRoom {
    c: ibv_device,
    room: [u64; 32],
}

// SAFETY: `repr(C)`, and the first field begins with an `ibv_device`.
unsafe impl Object for DeviceObject {
    type C = ibv_device;
}

/// Returns the devices of this host.
pub(super) fn devices() -> &'static [DeviceObject] {
    static DEVICES: OnceLock<Vec<DeviceObject>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let settings = settings().cloned();
        let Some(named) = roce_devices() else {
            return vec![DeviceObject::new(Device::iwarp(0, settings))];
        };
        let roce = |(named, index)| DeviceObject::new(Device::roce(index, named, settings.clone()));
        named.iter().zip(0..).map(roce).collect()
    })
}

impl DeviceObject {
    fn new(device: Device) -> Self {
        let mut c = ibv_device::zeroed();
        (c.node_type, c.transport_type) = match device.roce {
            Some(_) => (device::NODE_CA, device::TRANSPORT_IB),
            None => (device::NODE_RNIC, device::TRANSPORT_IWARP),
        };
        fill(&mut c.name, device.name);
        fill(&mut c.dev_name, device.uverbs);
        fill(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/{}", device.uverbs));
        fill(&mut c.ibdev_path, &format!("/sys/class/infiniband/{}", device.name));
        let c = Shared::new(DeviceRoom { c, room: [0; 32] });
        DeviceObject { c, device, shared: OnceLock::new() }
    }

    /// Returns the device at work in this process.
    pub(super) fn engine(&self) -> Outcome<Arc<Engine>> {
        process().engine(self.device.name)
    }

    /// Returns the context that ids of the connection manager use.
    pub(super) fn shared_context(&'static self) -> Outcome<&'static Context> {
        if let Some(context) = self.shared.get() {
            return Ok(context);
        }
        let context = Context::open(self)?;
        Ok(self.shared.get_or_init(|| context))
    }
}

/// Fills a C string that has room for `text` and a zero.
fn fill(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// Looks a device up.
pub(super) fn device(handle: *mut ibv_device) -> Outcome<&'static DeviceObject> {
    devices()
        .iter()
        .find(|device| std::ptr::eq(device.handle(), handle))
        .ok_or_else(|| because(Errno::EINVAL, "the device is none of rddp"))
}

/// Allocates an array that C code frees by a function of ours.
fn allocate(len: usize) -> Outcome<*mut *mut c_void> {
    // SAFETY: asks for zeroed memory, of at least one octet.
    let list = unsafe { libc::calloc(len.max(1), size_of::<*mut c_void>()) };
    if list.is_null() { Err(Errno::ENOMEM) } else { Ok(list.cast()) }
}

/// Returns an array of pointers that a NULL ends, and stores their number.
///
/// # Safety
/// `count` is NULL, or an `int` can be stored there.
pub(super) unsafe fn list(entries: &[*mut c_void], count: *mut c_int) -> Outcome<*mut *mut c_void> {
    let list = allocate(entries.len() + 1)?;
    for (index, entry) in entries.iter().enumerate() {
        // SAFETY: the array has one place more than there are entries.
        unsafe { list.add(index).write(*entry) };
    }
    if !count.is_null() {
        // SAFETY: promised by the caller.
        unsafe { count.write(entries.len() as c_int) };
    }
    Ok(list)
}

pub(super) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let entries: Vec<_> = devices().iter().map(|device| device.handle().cast()).collect();
    // SAFETY: the function's contract.
    pointer("ibv_get_device_list", unsafe { list(&entries, count) }).cast()
}

pub(super) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the program passes what `ibv_get_device_list` has returned, which `allocate` made.
    unsafe { libc::free(list.cast()) };
}

pub(super) extern "C" fn ibv_get_device_name(handle: *mut ibv_device) -> *const c_char {
    match device(handle) {
        // SAFETY: the object lives for ever, and the name in it is not written any more.
        Ok(object) => unsafe { (&raw const (*object.c.get()).c.name).cast() },
        Err(_) => std::ptr::null(),
    }
}

pub(super) extern "C" fn ibv_get_device_guid(handle: *mut ibv_device) -> u64 {
    device(handle).map_or(0, |object| u64::from_ne_bytes(object.device.guid))
}

pub(super) extern "C" fn ibv_get_device_index(handle: *mut ibv_device) -> c_int {
    let place = devices().iter().position(|device| std::ptr::eq(device.handle(), handle));
    place.map_or(-1, |place| place as c_int)
}

pub(super) extern "C" fn ibv_open_device(handle: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", device(handle).and_then(Context::open).map(Context::handle))
}

pub(super) extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    super::border::minus("ibv_close_device", super::context::context(context).and_then(Context::close))
}
