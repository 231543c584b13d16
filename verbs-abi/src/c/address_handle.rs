//! Address handles: where datagrams of a request go.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use nix::errno::Errno;
use rddp_rnic::Datagram;

use super::abi::{ibv_ah, ibv_ah_attr, ibv_context, ibv_pd, ibv_wc, wc_flags};
use super::border::{minus, number, pointer};
use super::context::context;
use super::handle::{Held, Object, Shared, find, publish, retire};
use super::memory::Pd;
use super::unreliable::Addressed;
use crate::errors::Outcome;
use crate::refusal::{Cause, because};

/// An address handle.
#[derive(Debug)]
#[repr(C)]
pub(super) struct AddressHandle {
    c: Shared<Addressed>,
    _pd: Held<Pd>,
}

// SAFETY: `repr(C)`, and the first field begins with an `ibv_ah`.
unsafe impl Object for AddressHandle {
    type C = ibv_ah;
}

/// Octets of a GRH, or of an IPv4 header behind 20 others.
const FRONT: usize = Datagram::LEN;

impl AddressHandle {
    fn new(pd: Arc<Pd>, attr: &ibv_ah_attr) -> Outcome<Arc<Self>> {
        let Some(own) = pd.context.device.device.roce else {
            return Err(Cause::Datagrams.refuse(Errno::EOPNOTSUPP));
        };
        if attr.port_num != 1 {
            return Err(because(Errno::EINVAL, "the device has port 1 alone"));
        }
        let address = host(attr)?;
        if address.is_ipv4() != own.is_ipv4() {
            return Err(because(Errno::EINVAL, "the peer's address is of another family than the device's"));
        }
        let c = ibv_ah { context: pd.context.handle(), pd: pd.handle(), handle: 0 };
        let c = Addressed { c, address };
        Ok(Arc::new(AddressHandle { c: Shared::new(c), _pd: Held::new(pd) }))
    }
}

/// Returns the host that attributes name.
fn host(attr: &ibv_ah_attr) -> Outcome<IpAddr> {
    if attr.is_global == 0 {
        return Err(because(Errno::EINVAL, "a peer has a GID here and no LID: ibv_ud_pingpong -g 0"));
    }
    let address = Ipv6Addr::from(attr.gid()).to_canonical();
    if address.is_unspecified() || address.is_multicast() {
        return Err(because(Errno::EINVAL, "the peer's GID is no host's of these devices"));
    }
    Ok(address)
}

/// Returns the attributes by which a datagram that was received is answered.
///
/// # Safety
/// The program passes a completion, and the octets in front of the message.
unsafe fn answer(wc: *const ibv_wc, front: *const u8) -> Outcome<ibv_ah_attr> {
    // SAFETY: promised by the caller.
    let wc = unsafe { wc.as_ref() }.ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"))?;
    if wc.wc_flags & wc_flags::GRH == 0 || front.is_null() {
        return Err(because(Errno::EINVAL, "no datagram of this device has come with the completion"));
    }
    // SAFETY: promised by the caller.
    let front = unsafe { front.cast::<[u8; FRONT]>().read_unaligned() };
    let datagram = Datagram::parse(&front)
        .ok_or_else(|| because(Errno::EINVAL, "the octets are not those in front of a datagram"))?;
    let mut attr = ibv_ah_attr { sl: wc.sl, dlid: wc.slid, is_global: 1, port_num: 1, ..Default::default() };
    let gid = match datagram.source.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    attr.set_gid(gid.octets());
    attr.set_route(0xff, datagram.traffic_class);
    Ok(attr)
}

pub(super) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: NULL or the program's structure.
    let attr = unsafe { attr.as_ref() }.ok_or_else(|| because(Errno::EINVAL, "an argument is NULL"));
    let made = find::<Pd>(pd).and_then(|pd| AddressHandle::new(pd, attr?));
    pointer("ibv_create_ah", made.map(|handle| publish(&handle)))
}

pub(super) unsafe extern "C" fn ibv_init_ah_from_wc(
    handle: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    front: *mut u8,
    to: *mut ibv_ah_attr,
) -> c_int {
    let made = context(handle).and_then(|_| {
        if port != 1 || to.is_null() {
            return Err(because(Errno::EINVAL, "the device has port 1 alone, or an argument is NULL"));
        }
        // SAFETY: the function's contract; the program has room for the attributes.
        unsafe { to.write(answer(wc, front)?) };
        Ok(())
    });
    minus("ibv_init_ah_from_wc", made)
}

pub(super) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    front: *mut u8,
    port: u8,
) -> *mut ibv_ah {
    let made = find::<Pd>(pd).and_then(|pd| {
        // SAFETY: the function's contract.
        let attr = unsafe { answer(wc, front)? };
        AddressHandle::new(pd, &ibv_ah_attr { port_num: port, ..attr })
    });
    pointer("ibv_create_ah_from_wc", made.map(|handle| publish(&handle)))
}

pub(super) extern "C" fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int {
    number("ibv_destroy_ah", retire::<AddressHandle>(handle).map(drop))
}
