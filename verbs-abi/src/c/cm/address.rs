//! Addresses of ids: binding them, and finding the way to a peer.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::Arc;

use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::super::abi::{Plain, cm, port_space, rdma_cm_id};
use super::super::border::minus;
use super::super::handle::find;
use super::event::Told;
use super::id::{Id, Phase, State};
use crate::errors::{Outcome, of_io};
use crate::refusal::because;

/// Reads a socket address of the program's.
///
/// # Safety
/// NULL, or an address that is as long as its family says.
pub(in crate::c) unsafe fn load(from: *const libc::sockaddr) -> Outcome<SocketAddr> {
    if from.is_null() {
        return Err(because(Errno::EINVAL, "an address is NULL"));
    }
    // SAFETY: promised by the caller.
    match c_int::from(unsafe { (*from).sa_family }) {
        libc::AF_INET => {
            // SAFETY: as above.
            let addr = unsafe { from.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(addr.sin_addr.s_addr));
            Ok(SocketAddr::from((ip, u16::from_be(addr.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let addr = unsafe { from.cast::<libc::sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(addr.sin6_addr.s6_addr), u16::from_be(addr.sin6_port));
            Ok(SocketAddrV6::new(ip, port, addr.sin6_flowinfo, addr.sin6_scope_id).into())
        }
        _ => Err(because(Errno::EAFNOSUPPORT, "addresses are of IPv4 or IPv6")),
    }
}

/// Stores a socket address for the program.
///
/// # Safety
/// The structure may be written.
pub(super) unsafe fn store(addr: SocketAddr, to: *mut libc::sockaddr_storage) {
    let addr = SockAddr::from(addr);
    // SAFETY: an address is never longer than the structure that has room for each.
    unsafe {
        to.write(libc::sockaddr_storage::zeroed());
        std::ptr::copy_nonoverlapping(addr.as_ptr().cast::<u8>(), to.cast::<u8>(), addr.len() as usize);
    }
}

impl Id {
    /// Gives the id an address of this host, with the port that the kernel chooses if it is 0.
    pub(super) fn bind(&self, state: &mut State, addr: SocketAddr) -> Outcome<()> {
        if state.phase != Phase::Idle {
            return Err(because(Errno::EINVAL, "the id has an address already"));
        }
        let bound = self.take_port(state, addr)?;
        if !addr.ip().is_unspecified() {
            self.bind_device()?;
        }
        self.set_source(bound);
        state.phase = Phase::Bound;
        Ok(())
    }

    /// Takes a port for the id, whose socket keeps it until the id listens or is connected.
    /// Returns the address with it.
    fn take_port(&self, state: &mut State, addr: SocketAddr) -> Outcome<SocketAddr> {
        let socket = socket(self.space(), addr)?;
        // As with any server, connections of the last run must not keep the port; and the sockets
        // with which the id connects share it.
        socket.set_reuse_address(true).map_err(|error| of_io(&error))?;
        if let (SocketAddr::V6(_), Some(only)) = (addr, state.settings.one_family) {
            socket.set_only_v6(only).map_err(|error| of_io(&error))?;
        }
        socket.bind(&SockAddr::from(addr)).map_err(|error| of_io(&error))?;
        let bound = socket.local_addr().ok().and_then(|addr| addr.as_socket()).unwrap_or(addr);
        state.socket = Some(socket);
        Ok(bound)
    }

    /// Finds the source address for a destination. The outcome is an event.
    fn resolve(self: &Arc<Self>, source: Option<SocketAddr>, destination: SocketAddr) -> Outcome<()> {
        let mut state = self.state.lock();
        if let Some(source) = source.filter(|_| state.phase == Phase::Idle) {
            self.bind(&mut state, source)?;
        }
        if !matches!(state.phase, Phase::Idle | Phase::Bound) {
            return Err(because(
                Errno::EINVAL,
                "the address of the peer is resolved already, or the id is not for connecting",
            ));
        }
        let bound = state.socket.as_ref().and_then(|socket| socket.local_addr().ok()?.as_socket());
        if bound.is_some_and(|bound| bound.is_ipv4() != destination.is_ipv4()) {
            return Err(because(Errno::EINVAL, "the id is bound to an address of another family"));
        }
        self.set_destination(destination);
        let found = match (route(bound, destination), bound) {
            (Ok(source), None) => self.take_port(&mut state, source),
            (found, _) => found,
        };
        match found {
            Ok(source) => {
                self.bind_device()?;
                self.set_source(source);
                (state.destination, state.phase) = (Some(destination), Phase::AddressResolved);
                self.tell(&state, cm::ADDR_RESOLVED, &Told::default());
            }
            Err(error) => {
                let told = Told { error: Some(error), ..Told::default() };
                self.tell(&state, cm::ADDR_ERROR, &told);
            }
        }
        Ok(())
    }

    fn resolve_route(self: &Arc<Self>) -> Outcome<()> {
        let mut state = self.state.lock();
        if state.phase != Phase::AddressResolved {
            return Err(because(Errno::EINVAL, "the address of the peer is not resolved yet"));
        }
        state.phase = Phase::RouteResolved;
        self.tell(&state, cm::ROUTE_RESOLVED, &Told::default());
        Ok(())
    }
}

fn socket(space: u32, addr: SocketAddr) -> Outcome<Socket> {
    let (kind, protocol) = match space {
        port_space::TCP => (Type::STREAM, Protocol::TCP),
        _ => (Type::DGRAM, Protocol::UDP),
    };
    Socket::new(Domain::for_address(addr), kind, Some(protocol)).map_err(|error| of_io(&error))
}

/// Asks the kernel from which address it would reach a destination. Nothing is sent.
pub(super) fn route(bound: Option<SocketAddr>, destination: SocketAddr) -> Outcome<SocketAddr> {
    let any = if destination.is_ipv4() {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let from = bound.map_or(any, |bound| bound.ip());
    let probe = UdpSocket::bind((from, 0)).and_then(|probe| {
        // A port is needed, whichever.
        let port = if destination.port() == 0 { 9 } else { destination.port() };
        let mut towards = destination;
        towards.set_port(port);
        probe.connect(towards)?;
        probe.local_addr()
    });
    let mut source = probe.map_err(|error| of_io(&error))?;
    source.set_port(bound.map_or(0, |bound| bound.port()));
    Ok(source)
}

pub(in crate::c) unsafe extern "C" fn rdma_bind_addr(
    handle: *mut rdma_cm_id,
    addr: *const libc::sockaddr,
) -> c_int {
    // SAFETY: the function's contract.
    let addr = unsafe { load(addr) };
    minus("rdma_bind_addr", find::<Id>(handle).and_then(|id| id.bind(&mut id.state.lock(), addr?)))
}

pub(in crate::c) unsafe extern "C-unwind" fn rdma_resolve_addr(
    handle: *mut rdma_cm_id,
    source: *const libc::sockaddr,
    destination: *const libc::sockaddr,
    _timeout: c_int,
) -> c_int {
    // SAFETY: the function's contract.
    let (source, destination) =
        unsafe { ((!source.is_null()).then(|| load(source)).transpose(), load(destination)) };
    minus(
        "rdma_resolve_addr",
        find::<Id>(handle).and_then(|id| {
            id.resolve(source?, destination?)?;
            id.complete()
        }),
    )
}

pub(in crate::c) extern "C-unwind" fn rdma_resolve_route(handle: *mut rdma_cm_id, _timeout: c_int) -> c_int {
    minus(
        "rdma_resolve_route",
        find::<Id>(handle).and_then(|id| {
            id.resolve_route()?;
            id.complete()
        }),
    )
}

/// Returns the port of an address of an id, in network order.
fn port(handle: *mut rdma_cm_id, offset: usize) -> u16 {
    const { assert!(offset_of!(libc::sockaddr_in, sin_port) == offset_of!(libc::sockaddr_in6, sin6_port)) };
    let Ok(id) = find::<Id>(handle) else { return 0 };
    // SAFETY: an address of the id, and in it the port, at the same place for both families.
    unsafe {
        let addr = id.c().byte_add(offset).cast::<libc::sockaddr_in>();
        (*addr).sin_port
    }
}

pub(in crate::c) extern "C" fn rdma_get_src_port(handle: *mut rdma_cm_id) -> u16 {
    port(handle, offset_of!(rdma_cm_id, route.src_addr))
}

pub(in crate::c) extern "C" fn rdma_get_dst_port(handle: *mut rdma_cm_id) -> u16 {
    port(handle, offset_of!(rdma_cm_id, route.dst_addr))
}

const _: () = assert!(size_of::<libc::sockaddr_in6>() <= size_of::<libc::sockaddr_storage>());
