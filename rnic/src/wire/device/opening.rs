//! From an address, or from a peer's request, to a connection by a device.
//!
//! Receives that are posted by then are the device's before the peer can know of the connection:
//! RNICs end it by a message that finds none.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rddp_rdma::ConnectOptions;
use rddp_verbs_device::{
    self as verbs, ConnectFailed, DeviceError, Endpoint, Event, Offer, Queues, Request, SharedReceives,
};

use super::Device;
use crate::capabilities::CAPABILITIES;
use crate::conn::socket::DeviceSocket;
use crate::error::ConnectError;
use crate::mem::HostDevice;
use crate::queues::attributes::QpAttributes;
use crate::queues::context::Context;
use crate::queues::srq::SrqInner;
use crate::wire::opening::{Failed, Progress, Terms};

/// Requests that an endpoint posts beside the program's.
const OWN: usize = 4;

/// A connection by a device that is being made.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Gone once there is a connection.
    wire: Option<Box<Device>>,
    offer: Offer,
    /// The way to the peer is known, and the peer is to be asked.
    is_resolved: bool,
}

impl Opening {
    /// Begins to look for the way to an address, for queues of these lengths. Returns what is to be
    /// watched, too.
    pub(crate) fn begin(
        attrs: &QpAttributes,
        lengths: &Lengths,
        to: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<(DeviceSocket, Self), ConnectError> {
        let host = host_for(attrs, options)?;
        let domain = host.domain(attrs.pd)?;
        let (queues, shared) = (queues(&domain, lengths), lengths.shared(host, attrs)?);
        let endpoint = Endpoint::open(&domain, options.source, to, queues, options.timeout)?;
        let endpoint = endpoint.sharing(shared.clone());
        let socket = descriptor(&endpoint)?;
        let wire = Device::new(domain, endpoint, queues, shared);
        Ok((socket, Opening { wire: Some(Box::new(wire)), offer: offer(attrs, options), is_resolved: false }))
    }

    /// Hands over the receives that are posted, once the device's queue pair is there.
    pub(crate) fn give_receives(&mut self, cx: &Context<'_>) {
        if let Some(wire) = &mut self.wire {
            // What the device refuses now it refuses once there is a connection, too.
            let _ = wire.give_more_receives(cx);
        }
    }

    /// Takes the steps that can be taken now. The receives have been handed over.
    pub(crate) fn advance(&mut self) -> Result<Progress, Failed> {
        let gone = || Failed::from(ConnectError::GivenUp);
        let endpoint = &mut self.wire.as_mut().ok_or_else(gone)?.endpoint;
        if std::mem::take(&mut self.is_resolved) {
            endpoint.connect(self.offer.clone()).map_err(failed)?;
        }
        match endpoint.event().map_err(failed)? {
            None => Ok(Progress::Wait),
            Some(Event::Resolved) => {
                self.is_resolved = true;
                Ok(Progress::Again)
            }
            Some(Event::Connected(agreed)) => {
                let wire = self.wire.take().ok_or_else(gone)?;
                Ok(Progress::Agreed { terms: Terms::Device(wire), private_data: agreed.private_data })
            }
            Some(Event::Failed(ConnectFailed::Rejected { private_data })) => {
                Err(ConnectError::Rejected { private_data }.into())
            }
            Some(Event::Failed(why)) => Err(ConnectError::Unreached(why).into()),
            Some(Event::Disconnected) => Err(ConnectError::Unreached(ConnectFailed::Ended).into()),
            Some(Event::Removed) => {
                Err(failed(DeviceError::Removed { device: endpoint.device().name().to_owned() }))
            }
        }
    }
}

/// Accepts the request of a peer, for queues of these lengths: the receives that are posted are the
/// device's before. Returns what is to be watched, too; the connection is there once the device has
/// told so.
pub(crate) fn accept(
    cx: &Context<'_>,
    lengths: &Lengths,
    request: Request,
    options: &ConnectOptions,
) -> Result<(DeviceSocket, Box<Device>), ConnectError> {
    let host = host_for(cx.attrs, options)?;
    let domain = host.domain(cx.attrs.pd)?;
    let (queues, shared) = (queues(&domain, lengths), lengths.shared(host, cx.attrs)?);
    let endpoint = request.endpoint_sharing(&domain, queues, shared.clone())?;
    let socket = descriptor(&endpoint)?;
    let mut wire = Box::new(Device::new(domain, endpoint, queues, shared));
    // As for the end that connects.
    let _ = wire.give_more_receives(cx);
    wire.endpoint.accept(offer(cx.attrs, options))?;
    Ok((socket, wire))
}

/// Returns the device, if it has what is asked for.
fn host_for<'a>(attrs: &'a QpAttributes, options: &ConnectOptions) -> Result<&'a HostDevice, ConnectError> {
    let host = attrs.device.host.as_ref().ok_or(ConnectError::Transport)?;
    host.check_options(options)?;
    Ok(host)
}

/// The lengths of a queue pair's queues, and the shared queue that it takes its receives from.
#[derive(Debug)]
pub(crate) struct Lengths {
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    pub(crate) srq: Option<Arc<SrqInner>>,
}

impl Lengths {
    /// Returns the device's queue behind the shared one, if receives are shared.
    fn shared(&self, host: &HostDevice, attrs: &QpAttributes) -> Result<Option<SharedReceives>, DeviceError> {
        self.srq.as_ref().map(|srq| srq.on_device(host, attrs.pd)).transpose()
    }
}

/// Returns the lengths of the device's queues, as near to those of the program's as it can have.
fn queues(domain: &verbs::Device, &Lengths { sends, receives, .. }: &Lengths) -> Queues {
    let most = domain.capabilities().max_requests.unwrap_or(usize::MAX).saturating_sub(OWN).max(1);
    Queues { sends: sends.clamp(1, most), receives: receives.min(most), inline: CAPABILITIES.max_inline }
}

fn offer(attrs: &QpAttributes, options: &ConnectOptions) -> Offer {
    Offer {
        private_data: options.private_data.clone(),
        ird: options.ird,
        ord: options.ord,
        inbound: attrs.inbound.get(),
        ack_timeout: None,
    }
}

/// Returns what is to be watched.
fn descriptor(endpoint: &Endpoint) -> io::Result<DeviceSocket> {
    Ok(DeviceSocket::new(endpoint.as_fd().try_clone_to_owned()?.into()))
}

fn failed(error: DeviceError) -> Failed {
    ConnectError::Device(error).into()
}
