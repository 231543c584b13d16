//! Requests that have come to a listener, for the program to accept or reject (RFC 5044 §7.1.2).

use std::net::SocketAddr;
use std::sync::Arc;

use rddp_mpa::{Negotiated, Request};
use rddp_rdma::ConnectOptions;

use super::half_open::HalfOpen;
use super::half_open_count::Slot;
use super::socket::{TcpSocket, write_all};
use crate::config::startup_config;
use crate::device::DeviceInner;
use crate::error::ConnectError;
use crate::home::Home;
use crate::qp::{QpState, QueuePair};

/// A peer that asks to be connected. Dropping it closes the connection without an answer.
#[derive(Debug)]
pub struct ConnectRequest(pub(super) Home<Pending>);

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) device: Arc<DeviceInner>,
    pub(super) options: ConnectOptions,
    pub(super) socket: TcpSocket,
    pub(super) request: Request,
    pub(super) slot: Slot,
}

impl ConnectRequest {
    /// Who asks.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.here().ok()?.socket.peer_addr().ok()?.as_socket()
    }

    /// What the peer's program says. Unauthenticated (RFC 5042 §5.4).
    pub fn private_data(&self) -> &[u8] {
        &self.request().private_data
    }

    /// The MPA Request: revision, depths and wishes of the peer (RFC 6581 §9.1: handed to the program).
    pub fn request(&self) -> &Request {
        &self.0.anywhere().request
    }

    /// Connects `qp`, which must be idle, by the listener's settings. What `qp` posts is sent once the peer's first
    /// FPDU has come ([`Established`](crate::AsyncEventKind::Established)).
    pub fn accept(self, qp: &QueuePair, private_data: &[u8]) -> Result<Negotiated, ConnectError> {
        let options =
            ConnectOptions { private_data: private_data.to_vec(), ..self.0.anywhere().options.clone() };
        self.accept_with(qp, &options)
    }

    /// The same, by other settings.
    pub fn accept_with(self, qp: &QueuePair, options: &ConnectOptions) -> Result<Negotiated, ConnectError> {
        let state = qp.state();
        if state != QpState::Idle {
            return Err(ConnectError::NotIdle(state));
        }
        let inner = qp.inner.here()?;
        let options = &inner.options(options);
        let Pending { socket, request, slot, .. } = self.0.into_inner()?;
        let (reply, negotiated) = request.accept(&startup_config(options), &options.private_data)?;
        write_all(&socket, &reply)?;
        inner.attach(socket, negotiated.clone(), options, false, || ())?;
        drop(slot);
        Ok(negotiated)
    }

    /// Says no, with a reason for the peer's program.
    ///
    /// The connection is kept until the peer has closed it, for two seconds at most: a FIN right behind the Reply makes
    /// some peers (siw) overlook it. So a process should not end at once.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let Pending { device, options, socket, request, slot } = self.0.into_inner()?;
        let reply = request.reject(&startup_config(&options), private_data)?;
        write_all(&socket, &reply)?;
        // A FIN right behind the Reply makes some peers overlook it, so the peer closes first.
        HalfOpen::linger(&device, socket, slot)?;
        Ok(())
    }
}
