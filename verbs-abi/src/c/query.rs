//! Attributes of a device, its port and its tables.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use super::abi::{
    Plain, device, device_cap, gid_type, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid_entry,
    ibv_port_attr,
};
use super::border::{given, minus, number};
use super::context::context;
use super::gate::pass;
use super::process::process;
use super::trouble;
use crate::device::Device;
use crate::errors::Outcome;
use crate::refusal::because;

/// Objects of one kind that a program may have, said where the host's memory is the limit.
const MANY: c_int = 1 << 20;

/// The one port.
const PORT: u32 = 1;

/// Octets of `ibv_port_attr` that programs of the first releases know.
const FIRST_PORT_ATTR: usize = 48;

/// The vendor, whose number is never 0 (pyverbs): an OUI that is administered locally, since there
/// is none of ours, with the letters "rd".
const VENDOR: u32 = 0x02_7264;

/// Capabilities (`device_cap_flags`). A window of type 2 is tied to a queue pair and a
/// domain.
const CAPABILITIES: u32 = device_cap::MEM_MGT_EXTENSIONS
    | device_cap::MEM_WINDOW
    | device_cap::MEM_WINDOW_TYPE_2B
    | device_cap::SRQ_RESIZE;

/// Atomics of this device are those of the processor, and so exclude the program's own, too.
fn device_attr(of: &Device) -> ibv_device_attr {
    let limits = &of.limits;
    let version = env!("CARGO_PKG_VERSION").bytes();
    let mut attr = ibv_device_attr {
        node_guid: u64::from_ne_bytes(of.guid),
        sys_image_guid: u64::from_ne_bytes(of.guid),
        max_mr_size: u64::MAX,
        page_size_cap: 4096,
        vendor_id: VENDOR,
        max_qp: MANY,
        max_qp_wr: limits.requests as c_int,
        device_cap_flags: CAPABILITIES,
        max_sge: limits.sge as c_int,
        max_sge_rd: 1,
        max_cq: MANY,
        max_cqe: limits.cqes as c_int,
        max_mr: MANY,
        max_pd: MANY,
        max_mw: MANY,
        max_qp_rd_atom: c_int::from(limits.depth),
        max_res_rd_atom: c_int::from(limits.depth) * 1024,
        max_qp_init_rd_atom: c_int::from(limits.depth),
        atomic_cap: if of.has_atomics() { device::ATOMIC_GLOB } else { device::ATOMIC_NONE },
        max_ah: if of.roce.is_some() { MANY } else { 0 },
        max_srq: MANY,
        max_srq_wr: limits.requests as c_int,
        max_srq_sge: limits.sge as c_int,
        max_pkeys: u16::from(of.roce.is_some()),
        phys_port_cnt: 1,
        ..ibv_device_attr::zeroed()
    };
    for (to, from) in attr.fw_ver.iter_mut().zip(version) {
        *to = from as c_char;
    }
    attr
}

/// Returns the path MTU, which no packet has: programs with datagrams keep within it.
pub(super) fn mtu(of: &Device) -> c_int {
    // Ethernet's 1,500 octets hold 1,024 of RoCE, and those of the loopback more than the most.
    if of.roce.is_some_and(|address| address.is_loopback()) { device::MTU_4096 } else { device::MTU_1024 }
}

/// Returns the longest message of a datagram.
pub(super) fn mtu_octets(of: &Device) -> u64 {
    // The numbers of `enum ibv_mtu` begin with 1, for 256 octets.
    128 << mtu(of)
}

fn port_attr(of: &'static Device) -> ibv_port_attr {
    let is_down = trouble::is_port_down();
    ibv_port_attr {
        state: if is_down { device::PORT_DOWN } else { device::PORT_ACTIVE },
        max_mtu: mtu(of),
        active_mtu: mtu(of),
        gid_tbl_len: 1,
        pkey_tbl_len: u16::from(of.roce.is_some()),
        port_cap_flags: rddp_roce::PORT_CAPABILITIES,
        max_msg_sz: of.limits.message,
        qkey_viol_cntr: process().qkey_violations(of.name),
        active_width: FOUR_LANES,
        active_speed: QDR,
        phys_state: if is_down { PHYSICALLY_DISABLED } else { PHYSICALLY_UP },
        link_layer: device::LINK_LAYER_ETHERNET as u8,
        ..ibv_port_attr::default()
    }
}

/// Numbers of a width and a speed (`ibv_query_port(3)`), and what they make: 40 Gb/s.
const FOUR_LANES: u8 = 2;
const QDR: u8 = 4;
const SPEED: u64 = 400;

/// Numbers of physical states (`ibv_query_port(3)`).
const PHYSICALLY_DISABLED: u8 = 3;
const PHYSICALLY_UP: u8 = 5;

/// Copies the beginning of a structure to a program that knows `len` octets of it.
///
/// # Safety
/// `len` octets can be stored at `to`.
unsafe fn copy_out<T>(value: &T, to: *mut T, len: usize) -> Outcome<()> {
    if to.is_null() {
        return Err(because(Errno::EINVAL, "an argument is NULL"));
    }
    let known = len.min(size_of::<T>());
    // SAFETY: as many octets are there, and the caller promises the room; `value` is no program's.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, len - known);
    }
    Ok(())
}

pub(super) unsafe extern "C" fn ibv_query_device(
    handle: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let said = context(handle).map(|context| device_attr(&context.device.device));
    // SAFETY: the program passes a whole structure.
    number(
        "ibv_query_device",
        said.and_then(|said| unsafe { copy_out(&said, attr, size_of::<ibv_device_attr>()) }),
    )
}

pub(super) unsafe extern "C" fn query_device_ex(
    handle: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    len: usize,
) -> c_int {
    let opened = pass("ibv_query_device_ex").and_then(|()| context(handle));
    let said = opened.map(|context| ibv_device_attr_ex {
        orig_attr: device_attr(&context.device.device),
        device_cap_flags_ex: u64::from(CAPABILITIES),
        phys_port_cnt_ex: PORT,
        ..ibv_device_attr_ex::zeroed()
    });
    // SAFETY: the program says how long its structure is.
    number("ibv_query_device_ex", said.and_then(|said| unsafe { copy_out(&said, attr, len) }))
}

fn is_port(port: u32) -> Outcome<()> {
    if port == PORT { Ok(()) } else { Err(because(Errno::EINVAL, "the device has port 1 alone")) }
}

/// # Safety
/// `len` octets can be stored at `attr`.
unsafe fn answer_port(handle: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, len: usize) -> c_int {
    let said = pass("ibv_query_port").and_then(|()| context(handle)).and_then(|context| {
        is_port(u32::from(port))?;
        Ok(port_attr(&context.device.device))
    });
    // SAFETY: promised by the caller.
    number("ibv_query_port", said.and_then(|said| unsafe { copy_out(&said, attr, len) }))
}

pub(super) unsafe extern "C" fn ibv_query_port(
    handle: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: a program that calls this function has room for the structure of the first releases.
    unsafe { answer_port(handle, port, attr, FIRST_PORT_ATTR) }
}

pub(super) unsafe extern "C" fn query_port(
    handle: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: the program says how long its structure is.
    unsafe { answer_port(handle, port, attr, len) }
}

/// Stores the speed of the port in units of 100 Mb/s, that of `active_width` and `active_speed`.
pub(super) unsafe extern "C" fn ibv_query_port_speed(
    handle: *mut ibv_context,
    port: u32,
    to: *mut u64,
) -> c_int {
    let said = context(handle).and_then(|_| is_port(port)).and_then(|()| given(to));
    // SAFETY: the program passes room for a number.
    number("ibv_query_port_speed", said.map(|to| unsafe { to.write(SPEED) }))
}

/// Returns the GID at an index; `ENODATA` where a table has no entry.
fn gid(handle: *mut ibv_context, port: u32, index: u32) -> Outcome<[u8; 16]> {
    let context = context(handle)?;
    match (port, index) {
        (PORT, 0) => Ok(context.device.device.gid),
        (PORT, 1..rddp_roce::GIDS) if context.device.device.roce.is_some() => Ok(context.device.device.gid),
        (PORT, _) => Err(because(Errno::ENODATA, "the table has one entry, at 0")),
        _ => Err(because(Errno::EINVAL, "the device has port 1 alone")),
    }
}

pub(super) unsafe extern "C" fn ibv_query_gid(
    handle: *mut ibv_context,
    port: u8,
    index: c_int,
    to: *mut [u8; 16],
) -> c_int {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    minus(
        "ibv_query_gid",
        gid(handle, u32::from(port), index).map(|gid| {
            // SAFETY: the program passes room for a GID.
            unsafe { to.write(gid) };
        }),
    )
}

/// Returns the number of the interface that has an address.
fn interface_of(address: IpAddr) -> u32 {
    rddp_roce::interface_of(address).and_then(|name| if_nametoindex(&*name).ok()).unwrap_or(0)
}

/// Returns the number of a network interface, by which programs look for the device's: the first
/// that is up, and a loopback only where there is no other. The device serves them all.
fn interface() -> u32 {
    let found = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let up = found.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let first = up.min_by_key(|interface| interface.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    first.and_then(|interface| if_nametoindex(&*interface.interface_name).ok()).unwrap_or(0)
}

/// Returns an entry of the GID table.
fn entry(of: &Device, index: u32) -> ibv_gid_entry {
    let gid = of.gid;
    let mut halves = [0; 2];
    for (half, octets) in halves.iter_mut().zip(gid.chunks_exact(8)) {
        *half = u64::from_ne_bytes(octets.try_into().unwrap_or_default());
    }
    let (gid_type, ndev_ifindex) = match of.roce {
        Some(address) => (gid_type::ROCE_V2, interface_of(address)),
        None => (gid_type::INFINIBAND, interface()),
    };
    ibv_gid_entry { gid: halves, gid_index: index, port_num: PORT, gid_type, ndev_ifindex }
}

pub(super) unsafe extern "C" fn _ibv_query_gid_ex(
    handle: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    len: usize,
) -> c_int {
    let said = if flags == 0 {
        gid(handle, port, index).and_then(|_| Ok(entry(&context(handle)?.device.device, index)))
    } else {
        Err(because(Errno::EINVAL, "there are no such flags"))
    };
    // SAFETY: the program says how long its structure is.
    number("_ibv_query_gid_ex", said.and_then(|said| unsafe { copy_out(&said, to, len) }))
}

pub(super) unsafe extern "C" fn _ibv_query_gid_table(
    handle: *mut ibv_context,
    to: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    len: usize,
) -> isize {
    let said = if flags == 0 && room > 0 {
        context(handle).map(|context| entry(&context.device.device, 0))
    } else {
        Err(because(Errno::EINVAL, "there are no such flags, or there is no room for an entry"))
    };
    // SAFETY: the program says how long each of its structures is, and has room for one.
    match said.and_then(|said| unsafe { copy_out(&said, to, len) }) {
        Ok(()) => 1,
        Err(error) => -(error as isize),
    }
}

/// Stores the GID type: 0, that of InfiniBand and of devices that have none, or 1 for RoCE v2.
pub(super) unsafe extern "C" fn ibv_query_gid_type(
    handle: *mut ibv_context,
    port: u8,
    index: u32,
    to: *mut c_int,
) -> c_int {
    minus(
        "ibv_query_gid_type",
        gid(handle, u32::from(port), index).and_then(|_| {
            let is_roce = context(handle)?.device.device.roce.is_some();
            // SAFETY: the program passes room for a number.
            unsafe { to.write(c_int::from(is_roce)) };
            Ok(())
        }),
    )
}

const NO_PKEYS: &str = "an iWARP device has no table of partition keys";

/// The one partition key of a device that looks like RoCE, in the order of the network.
const PKEY: u16 = 0xffff;

fn pkeys(handle: *mut ibv_context) -> Outcome<()> {
    let is_roce = context(handle)?.device.device.roce.is_some();
    if is_roce { Ok(()) } else { Err(because(Errno::EINVAL, NO_PKEYS)) }
}

pub(super) unsafe extern "C" fn ibv_query_pkey(
    handle: *mut ibv_context,
    _: u8,
    index: c_int,
    to: *mut u16,
) -> c_int {
    minus(
        "ibv_query_pkey",
        pkeys(handle).and_then(|()| {
            if index != 0 {
                return Err(because(Errno::EINVAL, "the table has one entry, at 0"));
            }
            // SAFETY: the program passes room for a key.
            unsafe { to.write(PKEY) };
            Ok(())
        }),
    )
}

pub(super) extern "C" fn ibv_get_pkey_index(handle: *mut ibv_context, _: u8, key: u16) -> c_int {
    let index = pkeys(handle).and_then(|()| {
        if key == PKEY { Ok(()) } else { Err(because(Errno::EINVAL, "the one key is 0xffff")) }
    });
    minus("ibv_get_pkey_index", index)
}

pub(super) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

pub(super) unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    to: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the program passes two C strings.
    let path = unsafe { [CStr::from_ptr(folder).to_bytes(), b"/", CStr::from_ptr(file).to_bytes()].concat() };
    let mut text = Vec::new();
    let read = std::fs::File::open(std::ffi::OsStr::from_bytes(&path))
        .and_then(|file| file.take(room as u64).read_to_end(&mut text));
    if read.is_err() {
        return -1;
    }
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    // SAFETY: at most as many octets as the program has room for; a zero behind them if it fits.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        if text.len() < room {
            to.add(text.len()).write(0);
        }
    }
    text.len() as c_int
}

pub(super) extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Nothing is pinned, so that `fork` needs no preparation.
pub(super) extern "C" fn ibv_is_fork_initialized() -> c_int {
    super::abi::fork::UNNEEDED
}

pub(super) extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

pub(super) extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}
