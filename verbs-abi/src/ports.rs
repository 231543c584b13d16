//! Ports of this process, at which requests come for queue pairs that are joined by numbers: each
//! queue pair has a place at one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_rnic::{ConnectOptions, ConnectRequest, Listener};
use rddp_roce::own_address;

use crate::device::Device;
use crate::engine::{Engine, Host};
use crate::errors::{Outcome, of_device, of_io, of_ports};
use crate::roce::{Awaited, Hello, Places, Psn};

/// A queue pair for which requests come.
pub(crate) trait Joins: Send + Sync {
    /// Accepts the awaited peer's request, if it has come.
    fn take_parked(&self);
}

/// Finds the queue pair of a device with a number.
pub(crate) type Find = fn(device: &'static str, number: u32) -> Option<Arc<dyn Joins>>;

/// Time for the peer's end to come to RTR, which its program decides.
const JOIN: Duration = Duration::from_secs(3600);

/// Requests that wait at one port for queue pairs to come to RTR: two for each. That is half of
/// what one address may have wait for answers ([`RnicConfig::max_waiting_per_peer`]), so that
/// requests go on to come where strangers fill a port.
///
/// [`RnicConfig::max_waiting_per_peer`]: rddp_rnic::RnicConfig::max_waiting_per_peer
const PARKED: usize = 512;

/// Tries to find a number that is free as a port of TCP and of UDP.
const TRIES: usize = 16;

/// A port of this process, at which requests come for the queue pairs with its numbers.
#[derive(Debug)]
pub(crate) struct Port {
    device: &'static Device,
    number: u16,
    listener: Listener,
    /// The port of the same number that datagrams will come to: kept from others.
    _datagrams: UdpSocket,
    places: Mutex<Places>,
    /// Requests for queue pairs that are not at RTR yet.
    parked: Mutex<Vec<(Hello, ConnectRequest)>>,
    find: Find,
}

impl Port {
    fn open(
        device: &'static Device,
        address: IpAddr,
        engine: &Arc<Engine>,
        find: Find,
    ) -> Outcome<Arc<Self>> {
        // A hello comes at once, or from a stranger: the time of a join begins behind it.
        let timeout = ConnectOptions::default().timeout;
        let options = ConnectOptions { timeout, ..options(device, SocketAddr::from((address, 0)))? };
        for _ in 0..TRIES {
            let listener = engine.rnic.listen(own_address(address, 0), &options);
            let listener = listener.map_err(|error| of_ports(of_device(error)))?;
            let number = listener.local_addr().map_err(|error| of_io(&error))?.port();
            let Ok(datagrams) = UdpSocket::bind(own_address(address, number)) else { continue };
            let (places, parked) = (Mutex::new(Places::new()), Mutex::default());
            let port =
                Arc::new(Port { device, number, listener, _datagrams: datagrams, places, parked, find });
            let host: Weak<dyn Host> = Arc::<Port>::downgrade(&port);
            engine.attend(&port.listener, host)?;
            return Ok(port);
        }
        Err(of_ports(Errno::EADDRINUSE))
    }

    /// Takes the hello that is for a queue pair at RTR, if it has come, and its request.
    pub(crate) fn unpark(
        &self,
        is_meant: impl Fn(&Hello, IpAddr) -> bool,
    ) -> Option<(Hello, ConnectRequest)> {
        let mut parked = self.parked.lock();
        let at = parked.iter().position(|(hello, request)| {
            let from = request.peer_addr().map(|from| from.ip().to_canonical());
            from.is_some_and(|from| is_meant(hello, from))
        })?;
        Some(parked.remove(at))
    }

    fn park(&self, hello: Hello, request: ConnectRequest) {
        let mut parked = self.parked.lock();
        parked.retain(|(_, request)| request.peer_addr().is_some());
        if parked.len() >= PARKED {
            let origins: Vec<_> = parked
                .iter()
                .map(|(hello, request)| (hello.to, request.peer_addr().map(|at| at.ip())))
                .collect();
            parked.remove(in_excess(&origins));
        }
        parked.push((hello, request));
    }
}

/// Returns the place of the request that gives way to another: the oldest one of the queue pair and
/// address that have the most. A peer has one for each queue pair.
fn in_excess(origins: &[(u32, Option<IpAddr>)]) -> usize {
    let mut counts = HashMap::new();
    for origin in origins {
        *counts.entry(origin).or_insert(0) += 1;
    }
    // Of those with as many, the first.
    let place = (0..origins.len()).rev().max_by_key(|at| counts.get(&origins[*at]));
    place.unwrap_or(0)
}

impl Host for Port {
    fn on_requests(self: Arc<Self>) {
        while let Some(request) = self.listener.try_accept() {
            let hello = Hello::parse(request.private_data());
            let found = hello.and_then(|hello| Some((hello, (self.find)(self.device.name, hello.to)?)));
            let Some((hello, qp)) = found else {
                tracing::debug!(peer = ?request.peer_addr(), ?hello, "a request for no queue pair here");
                let _ = request.reject(b"");
                continue;
            };
            self.park(hello, request);
            // It may have come to RTR meanwhile, and looked before.
            qp.take_parked();
        }
    }
}

/// The place of a queue pair at a port: its number.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) port: Arc<Port>,
    at: u8,
}

impl Place {
    pub(crate) fn number(&self) -> u32 {
        u32::from(self.port.number) << 8 | u32::from(self.at)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.port.places.lock().give_back(self.at);
    }
}

/// The ports of this process.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<Vec<Arc<Port>>>);

impl Ports {
    /// Returns a place for a queue pair of a device that has this address.
    pub(crate) fn place(
        &self,
        device: &'static Device,
        address: IpAddr,
        engine: &Arc<Engine>,
        find: Find,
    ) -> Outcome<Place> {
        let mut ports = self.0.lock();
        for port in ports.iter().filter(|port| port.device.name == device.name) {
            if let Some(at) = port.places.lock().take() {
                return Ok(Place { port: port.clone(), at });
            }
        }
        let port = Port::open(device, address, engine, find)?;
        let at = port.places.lock().take().ok_or(Errno::EAGAIN)?;
        ports.push(port.clone());
        Ok(Place { port, at })
    }
}

/// The end of a queue pair that is joined by numbers.
#[derive(Debug)]
pub(crate) struct Joint {
    pub(crate) place: Place,
    pub(crate) progress: Mutex<Progress>,
}

/// The progress of a queue pair on the way to its peer.
#[derive(Debug)]
pub(crate) enum Progress {
    /// No peer is named, or nothing is left to do.
    None,
    /// The hello of the peer is awaited.
    Awaits(Awaited),
    /// The peer has this end's hello, and will answer.
    Asks(Awaited),
    /// The ends are joined, and the peer expects this of the requests that RTS allows.
    Expected(Psn),
}

impl Joint {
    pub(crate) fn new(place: Place) -> Self {
        Joint { place, progress: Mutex::new(Progress::None) }
    }
}

/// Returns the options of connections with a peer.
pub(crate) fn options(device: &Device, peer: SocketAddr) -> Outcome<ConnectOptions> {
    let settings = device.settings()?;
    let ConnectOptions { ird, ord, .. } = settings.options(peer, device.limits.depth);
    // Within a host no octet crosses a wire.
    let is_within = peer.ip().is_loopback() || device.roce == Some(peer.ip());
    let crc = settings.crc(peer).unwrap_or(!is_within);
    // How MPA begins is part of the private wire, and no choice.
    Ok(ConnectOptions { crc, ird, ord, timeout: JOIN, ..ConnectOptions::default() })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn who_asks_most_often_gives_way() {
        let of = |number, host| (number, Some(IpAddr::from(Ipv4Addr::new(192, 0, 2, host))));
        let (peer, other, stranger) = (of(1, 1), of(2, 1), of(1, 9));
        assert_eq!(in_excess(&[peer, stranger, other, stranger]), 1);
        assert_eq!(in_excess(&[peer, stranger, other]), 0, "the oldest of those with as many");
    }
}
