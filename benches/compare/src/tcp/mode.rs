//! DDPMODE, requested as any program requests it: by options that `rddp/ddp.h` names, before the
//! socket is connected or listens.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use rddp_switch::socket::{DDP_CRC, DDP_GATHER, DDP_MARKERS, DDPMODE, SOL_DDP};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Outcome;
use crate::spec::{Gather, Op, Spec};

/// Connects as the spec asks.
pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Outcome<TcpStream> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    prepare(&socket, spec)?;
    socket.connect(&addr.into())?;
    Ok(socket.into())
}

/// Puts a socket, which may listen already, into DDPMODE if the spec asks for that.
pub(crate) fn prepare(socket: &impl AsFd, spec: &Spec) -> Outcome<()> {
    if spec.op != Op::Ddp {
        return Ok(());
    }
    setsockopt(socket, Mode, &1).map_err(|error| match error {
        Errno::ENOPROTOOPT => "librddp_sockets.so is not loaded: there is no DDPMODE".to_owned(),
        other => format!("DDPMODE: {other}"),
    })?;
    setsockopt(socket, Crc, &i32::from(spec.crc))?;
    setsockopt(socket, Markers, &i32::from(spec.markers))?;
    let gather = match spec.gather {
        Gather::Writev => 0,
        Gather::Copy => 1,
        Gather::Cork => 2,
    };
    Ok(setsockopt(socket, Pieces, &gather)?)
}

sockopt_impl!(Mode, SetOnly, SOL_DDP, DDPMODE, i32);
sockopt_impl!(Crc, SetOnly, SOL_DDP, DDP_CRC, i32);
sockopt_impl!(Markers, SetOnly, SOL_DDP, DDP_MARKERS, i32);
sockopt_impl!(Pieces, SetOnly, SOL_DDP, DDP_GATHER, i32);
