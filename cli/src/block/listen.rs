//! The ports of a server of disks, and who is let in.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use rddp_block::nvme;
use rddp_command::failure::Failure;
use rddp_command::places::{Places, TOO_MANY};
use rddp_command::seldom::Seldom;
use rddp_command::{addr, signals};
use rddp_rnic::{ConnectOptions, Listener, Rnic, Transport};

use super::bell::Bell;
use super::server::{Newcomer, Protocol};

/// A listener, and its address.
type Port = (Listener, SocketAddr);

/// The listeners of the protocols that are spoken.
pub(super) struct Entrance {
    nbd: Option<Port>,
    nvme: Option<Port>,
}

impl Entrance {
    /// Listens, for each of these protocols. Where no port is named for NVMe, it is its own if
    /// that is free, or any if NBD has any.
    pub(super) fn open(
        rnic: &Rnic,
        protocols: &[Protocol],
        bind: IpAddr,
        port: u16,
        nvme: Option<u16>,
    ) -> Result<Self, Failure> {
        let has = |protocol| protocols.contains(&protocol);
        let nbd = has(Protocol::Nbd).then(|| nbd_listener(rnic, bind, port)).transpose()?;
        let options = ConnectOptions::default();
        let listen = |port| addr::rdma_listener(rnic, Some(bind), port, &options);
        let nvme = has(Protocol::Nvme).then(|| match nvme {
            Some(port) => listen(port)
                .map_err(|failure| failure.remedy("name another port for NVMe with --nvme-port (0: any)")),
            None if port == 0 => listen(0),
            // Another server of disks may have it.
            None => listen(nvme::PORT).or_else(|_| listen(0)),
        });
        Ok(Entrance { nbd, nvme: nvme.transpose()? })
    }

    /// Returns the address for clients of NBD.
    pub(super) fn nbd(&self) -> Option<SocketAddr> {
        self.nbd.as_ref().map(|(_, at)| *at)
    }

    /// Returns the address for hosts of NVMe.
    pub(super) fn nvme(&self) -> Option<SocketAddr> {
        self.nvme.as_ref().map(|(_, at)| *at)
    }

    /// Lets clients in until it is over.
    pub(super) fn admit(
        &self,
        places: &Arc<Places>,
        newcomers: &Sender<Newcomer>,
        bell: &Bell,
        is_over: &(impl Fn() -> bool + Sync),
    ) -> Result<(), Failure> {
        // Where one has failed, the other ends as well.
        let has_failed = AtomicBool::new(false);
        let is_over = || has_failed.load(Ordering::SeqCst) || is_over();
        let admit = |port: Option<&Port>, protocol, newcomers: Sender<Newcomer>| {
            let Some((listener, _)) = port else { return Ok(()) };
            admit(listener, protocol, places, &newcomers, bell, &is_over)
                .inspect_err(|_| has_failed.store(true, Ordering::SeqCst))
        };
        thread::scope(|scope| {
            let of_nvme = newcomers.clone();
            let nvme = scope.spawn(|| admit(self.nvme.as_ref(), Protocol::Nvme, of_nvme));
            let nbd = admit(self.nbd.as_ref(), Protocol::Nbd, newcomers.clone());
            let nvme = nvme.join().unwrap_or_else(|_| Err(Failure::failed("a listener has panicked")));
            nbd.and(nvme)
        })
    }
}

fn nbd_listener(rnic: &Rnic, bind: IpAddr, port: u16) -> Result<Port, Failure> {
    let options = ConnectOptions::default();
    let nbd = addr::listen_on(Some(bind), port, |addr| rnic.listen_by(Transport::Tcp, addr, &options))?;
    let at = nbd.local_addr().map_err(|error| Failure::failed(format!("listening: {error}")))?;
    Ok((nbd, at))
}

fn admit(
    listener: &Listener,
    protocol: Protocol,
    places: &Arc<Places>,
    newcomers: &Sender<Newcomer>,
    bell: &Bell,
    is_over: &impl Fn() -> bool,
) -> Result<(), Failure> {
    let mut away = Seldom::default();
    while !is_over() {
        let request = listener.accept(Some(signals::CHECK_INTERVAL));
        let Some(request) = request.map_err(|error| Failure::failed(format!("accepting: {error}")))? else {
            continue;
        };
        let host = request.peer_addr().map(|peer| addr::plain(peer).ip());
        let Some(place) = places.take(host) else {
            away.warn(format_args!("{}: turned away: {TOO_MANY}", addr::of_client(&request)));
            let told = match protocol {
                Protocol::Nbd => Vec::new(),
                Protocol::Nvme => nvme::private_data::Refusal::NoResources.emit().to_vec(),
            };
            // One that does not hear of it is gone.
            let _ = request.reject(&told);
            continue;
        };
        // Where the thread has ended, the loop ends.
        let _ = newcomers.send(Newcomer { request, place, protocol });
        bell.ring();
    }
    Ok(())
}
