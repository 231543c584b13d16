//! Listening, and the ids that requests make.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use rddp_rnic::{ConnectOptions, ConnectRequest};

use super::super::abi::{cm, rdma_cm_id};
use super::super::border::minus;
use super::super::handle::{find, publish};
use super::address::route;
use super::event::{Event, Told};
use super::id::{Id, Phase};
use crate::engine::Host;
use crate::errors::{Outcome, of_device};
use crate::refusal::because;

impl Id {
    fn listen(self: &Arc<Self>, backlog: c_int) -> Outcome<()> {
        // None, or one below, asks for a large one.
        let backlog = u32::try_from(backlog).ok().filter(|backlog| *backlog > 0).unwrap_or(1024);
        let mut state = self.state.lock();
        // SAFETY: a field of our own object, which programs only read.
        self.connects(unsafe { (*self.c()).qp_type })?;
        if state.phase == Phase::Idle {
            self.bind(&mut state, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        }
        if state.phase != Phase::Bound {
            return Err(because(Errno::EINVAL, "the id listens already, or is used for a connection"));
        }
        let engine = self.device.engine()?;
        let socket = state.socket.take().ok_or(Errno::EINVAL)?;
        let options = ConnectOptions { extensions: false, ..ConnectOptions::default() };
        let listener = engine.rnic.listen_on(socket, backlog, &options).map_err(of_device)?;
        let host: Weak<dyn Host> = Arc::<Id>::downgrade(self);
        let key = engine.attend(&listener, host)?;
        state.listener = Some((listener, key));
        state.phase = Phase::Listening;
        Ok(())
    }

    /// Makes the id of a request, and tells the program of it.
    fn requested(self: &Arc<Self>, request: ConnectRequest) -> Outcome<()> {
        let state = self.state.lock();
        let peer = request.peer_addr().ok_or(Errno::ENOTCONN)?;
        // SAFETY: fields of our own object; the context is the program's to set when it likes.
        let (context, space) = unsafe { ((*self.c()).context, (*self.c()).ps) };
        let channel = (!state.waits).then(|| state.channel.clone());
        let id = Id::new(channel, context, space)?;
        id.bind_device()?;
        let bound = state.listener.as_ref().and_then(|(listener, _)| listener.local_addr().ok());
        let here = bound.filter(|bound| !bound.ip().is_unspecified());
        let source = here.map_or_else(|| route(None, peer), Ok)?;
        let port = bound.map_or(0, |bound| bound.port());
        id.set_source(with_port(source, port));
        id.set_destination(peer);
        let asked = request.request();
        let told = Told {
            error: None,
            data: request.private_data().to_vec(),
            // As siw tells it: Reads that the peer may have outstanding are its initiator's.
            initiator: asked.and_then(|asked| asked.peer_ord).unwrap_or(255),
            responder: asked.and_then(|asked| asked.peer_ird).unwrap_or(255),
        };
        {
            let mut new = id.state.lock();
            new.phase = Phase::Requested;
            new.destination = Some(with_port(peer, port));
            new.request = Some(request);
        }
        publish(&id);
        let event = Event::new(self.clone(), cm::CONNECT_REQUEST, &told, Some(id));
        // The lock is released behind the event: an id that is being destroyed finds it.
        if state.phase == Phase::Listening {
            state.channel.events.push(event);
        }
        drop(state);
        Ok(())
    }
}

/// Returns the address with another port; a link-local one keeps its scope.
fn with_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

impl Host for Id {
    fn on_requests(self: Arc<Self>) {
        loop {
            let request = {
                let state = self.state.lock();
                state.listener.as_ref().and_then(|(listener, _)| listener.try_accept())
            };
            let Some(request) = request else { return };
            if let Err(error) = self.requested(request) {
                tracing::warn!(%error, "a request for a connection was dropped");
            }
        }
    }
}

pub(in crate::c) extern "C" fn rdma_listen(handle: *mut rdma_cm_id, backlog: c_int) -> c_int {
    minus("rdma_listen", find::<Id>(handle).and_then(|id| id.listen(backlog)))
}
