//! DDPMODE and SDP, requested as any program requests them: by options that `rddp/ddp.h` names,
//! before the socket is connected or listens.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use rddp_switch::socket::{
    DDP_CRC, DDP_GATHER, DDP_MARKERS, DDP_SDP_BCOPY, DDP_SDP_SINK_THRESHOLD, DDP_SDP_SOURCE_THRESHOLD,
    DDPMODE, SOL_DDP,
};
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

/// Puts a socket, which may listen already, into the mode that the spec asks for.
pub(crate) fn prepare(socket: &impl AsFd, spec: &Spec) -> Outcome<()> {
    let mode = match spec.op {
        Op::Ddp => 1,
        Op::Sdp => 3,
        _ => return Ok(()),
    };
    setsockopt(socket, Mode, &mode).map_err(|error| match error {
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
    setsockopt(socket, Pieces, &gather)?;
    if spec.op == Op::Sdp { prepare_sdp(socket, spec) } else { Ok(()) }
}

fn prepare_sdp(socket: &impl AsFd, spec: &Spec) -> Outcome<()> {
    if let Some(octets) = spec.source_threshold {
        setsockopt(socket, SourceThreshold, &octets)?;
    }
    if let Some(octets) = spec.sink_threshold {
        setsockopt(socket, SinkThreshold, &octets)?;
    }
    Ok(setsockopt(socket, BCopy, &i32::from(spec.bcopy))?)
}

sockopt_impl!(Mode, SetOnly, SOL_DDP, DDPMODE, i32);
sockopt_impl!(Crc, SetOnly, SOL_DDP, DDP_CRC, i32);
sockopt_impl!(Markers, SetOnly, SOL_DDP, DDP_MARKERS, i32);
sockopt_impl!(Pieces, SetOnly, SOL_DDP, DDP_GATHER, i32);
sockopt_impl!(SourceThreshold, SetOnly, SOL_DDP, DDP_SDP_SOURCE_THRESHOLD, i32);
sockopt_impl!(SinkThreshold, SetOnly, SOL_DDP, DDP_SDP_SINK_THRESHOLD, i32);
sockopt_impl!(BCopy, SetOnly, SOL_DDP, DDP_SDP_BCOPY, i32);
