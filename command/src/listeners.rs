//! Listening on one port by several devices.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use rddp_rnic::{ConnectOptions, ConnectRequest, Listener, Protocol, Rnic};
use serde::Serialize;

use crate::addr::{rdma_listener, shown};
use crate::device::{ADD_ADDRESS, By, Choice};
use crate::failure::Failure;
use crate::out;

/// The listeners of a server: one, or more where a device has several addresses, for each device.
/// The devices are open beside each other, so that one completion queue serves all.
///
/// A device that is removed is left out, with a line that says so, for as long as there is another.
#[derive(Default)]
pub struct Listeners {
    doors: Vec<Door>,
    /// The door that is looked at first, so that a crowd at one does not keep those of others out.
    first: usize,
    /// The end of the device that was left out last.
    lost: Option<Failure>,
}

/// A listener, with its device.
struct Door {
    rnic: Rnic,
    listener: Listener,
    at: At,
}

/// The place of a listener, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct At {
    /// The device.
    #[serde(flatten)]
    pub by: By,
    /// The address, with the port.
    pub listening: SocketAddr,
}

impl Listeners {
    /// Listens by each device at this address of the host, or at all of its addresses, and at one
    /// port.
    pub fn open(
        devices: &[Choice],
        bind: Option<IpAddr>,
        port: u16,
        options: &ConnectOptions,
    ) -> Result<Self, Failure> {
        let mut rnics: Vec<Rnic> = Vec::new();
        for device in devices {
            rnics.push(rnics.first().map_or_else(|| device.open(), |first| device.open_beside(first))?);
        }
        refuse_two_of_tcp(&rnics)?;
        // Software can find a free port for all: other devices have ports of their own.
        rnics.sort_by_key(|rnic| By::of(rnic).is_host());
        let (mut all, mut port) = (Listeners::default(), port);
        for rnic in rnics {
            for bind in places(&rnic, bind)? {
                let (listener, listening) = rdma_listener(&rnic, bind, port, options)?;
                port = listening.port();
                all.doors.push(Door {
                    rnic: rnic.clone(),
                    listener,
                    at: At { by: By::of(&rnic), listening },
                });
            }
        }
        Ok(all)
    }

    /// Returns what a listener that is there already is.
    pub fn of(rnic: &Rnic, listener: Listener, listening: SocketAddr) -> Self {
        let door = Door { rnic: rnic.clone(), listener, at: At { by: By::of(rnic), listening } };
        Listeners { doors: vec![door], ..Listeners::default() }
    }

    /// Returns the address of the first device.
    pub fn addr(&self) -> SocketAddr {
        self.doors.first().map_or(SocketAddr::from(([0; 4], 0)), |door| door.at.listening)
    }

    /// Returns all places.
    pub fn places(&self) -> Vec<At> {
        self.doors.iter().map(|door| door.at.clone()).collect()
    }

    /// Returns the devices.
    pub fn devices(&self) -> impl Iterator<Item = &Rnic> {
        self.doors.iter().map(|door| &door.rnic)
    }

    /// Returns the words for all places; of software alone, the address.
    pub fn shown(&self) -> String {
        let place = |door: &Door| {
            let At { by, listening } = &door.at;
            let others = self.doors.len() > 1 || by.is_host();
            if others { format!("{} by {by}", shown(*listening)) } else { shown(*listening) }
        };
        self.doors.iter().map(place).collect::<Vec<_>>().join(", ")
    }

    /// Takes a request, with the device that it has come by. Sleeps until there is one, for at most
    /// this time. Requests of each listener have their turn.
    ///
    /// # Errors
    /// No device is left.
    pub fn accept(&mut self, patience: Duration) -> Result<Option<(Rnic, ConnectRequest)>, Failure> {
        let mut fds: Vec<_> =
            self.doors.iter().map(|door| PollFd::new(door.listener.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut fds, u16::try_from(patience.as_millis()).unwrap_or(u16::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(Failure::failed(format!("accepting: {}", io::Error::from(error)))),
        }
        let ready: Vec<_> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let count = ready.len();
        for index in (0..count).map(|turn| (self.first + turn) % count).filter(|index| ready[*index]) {
            let Door { rnic, listener, .. } = &self.doors[index];
            match listener.accept(Some(Duration::ZERO)) {
                Ok(None) => {}
                Ok(Some(request)) => {
                    self.first = index + 1;
                    return Ok(Some((rnic.clone(), request)));
                }
                Err(error) => return self.lose(index, &error).map(|()| None),
            }
        }
        Ok(None)
    }

    /// Leaves a device out whose listener has ended.
    fn lose(&mut self, index: usize, error: &io::Error) -> Result<(), Failure> {
        let by = self.doors[index].at.by.clone();
        self.doors.retain(|door| door.at.by != by);
        let lost = Failure::failed(format!("nobody can connect by {by} any more: {error}"))
            .remedy("start the server again when the device is back");
        if self.doors.is_empty() {
            return Err(lost);
        }
        out::server_warns(format_args!("{lost}; served on {}", self.shown()));
        self.lost = Some(lost);
        Ok(())
    }

    /// Ends all.
    ///
    /// # Errors
    /// A device was left out.
    pub fn end(self) -> Result<(), Failure> {
        self.lost.map_or(Ok(()), Err)
    }
}

/// Refuses software beside an RNIC, whose listener takes the TCP port itself.
fn refuse_two_of_tcp(rnics: &[Rnic]) -> Result<(), Failure> {
    let is_rnic = |rnic: &&Rnic| By::of(rnic).is_host() && rnic.capabilities().protocol == Protocol::Iwarp;
    let is_soft = |rnic: &&Rnic| !By::of(rnic).is_host();
    match (rnics.iter().find(is_rnic), rnics.iter().find(is_soft)) {
        (Some(rnic), Some(soft)) => {
            let [rnic, soft] = [rnic, soft].map(Rnic::device);
            Err(Failure::usage(format!("{rnic} speaks iWARP, and takes the TCP port that {soft} would take"))
                .remedy("name one of them: software answers RNICs, too"))
        }
        _ => Ok(()),
    }
}

/// Returns the addresses at which a device listens, for one of the host or for all. The connection
/// manager would take all devices for all addresses.
fn places(rnic: &Rnic, bind: Option<IpAddr>) -> Result<Vec<Option<IpAddr>>, Failure> {
    let Some(own) = rnic.own_addresses() else { return Ok(vec![bind]) };
    match bind.filter(|ip| !ip.is_unspecified()) {
        Some(one) => Ok(vec![Some(one)]),
        None if own.is_empty() => {
            Err(Failure::failed(format!("{} has no IP address", rnic.device())).remedy(ADD_ADDRESS))
        }
        None => Ok(own.into_iter().map(Some).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use rddp_rnic::QpConfig;

    use super::*;

    #[test]
    fn software_alone_listens_as_ever() {
        let local = Some("127.0.0.1".parse().unwrap());
        let options = ConnectOptions::default();
        let mut all = Listeners::open(&[Choice::software()], local, 0, &options).unwrap();
        assert_eq!(all.shown(), all.addr().to_string());
        assert!(all.accept(Duration::ZERO).unwrap().is_none());
        // Whoever says nothing is no request.
        let _silent = TcpStream::connect(all.addr()).unwrap();
        assert!(all.accept(Duration::from_millis(20)).unwrap().is_none());
        let json = serde_json::to_value(all.places()).unwrap();
        assert_eq!((&json[0]["device"], &json[0]["transport"]), (&"soft".into(), &"iwarp".into()));
    }

    #[test]
    fn a_crowd_at_one_listener_keeps_nobody_out_at_another() {
        let rnic = Choice::software().open().unwrap();
        let (local, options) = (Some("127.0.0.1".parse().unwrap()), ConnectOptions::default());
        let listen = |_| {
            let (listener, at) = rdma_listener(&rnic, local, 0, &options).unwrap();
            Listeners::of(&rnic, listener, at).doors
        };
        let doors: Vec<_> = [0; 3].into_iter().flat_map(listen).collect();
        let mut all = Listeners { doors, ..Listeners::default() };
        let (cq, pd) = (rnic.create_cq(16).unwrap(), rnic.alloc_pd());
        let ask = |door: usize| {
            let qp = pd.create_qp(&QpConfig::new(&cq)).unwrap();
            let saying = ConnectOptions { private_data: vec![door as u8], ..ConnectOptions::default() };
            qp.begin_to(all.doors[door].at.listening, &saying).unwrap();
            qp
        };
        let clients: Vec<_> = [0, 0, 0, 0, 2].map(ask).into();
        // All are there before the first is taken.
        for door in &all.doors {
            let mut fds = [PollFd::new(door.listener.as_fd(), PollFlags::POLLIN)];
            let is_asked = door.at.listening != all.doors[1].at.listening;
            assert!(!is_asked || poll(&mut fds, 20_000_u16) == Ok(1));
        }
        let taken = [0; 2].map(|_| all.accept(Duration::from_secs(20)).unwrap().unwrap().1);
        assert_eq!(taken.map(|request| request.private_data().to_vec()), [[0], [2]]);
        drop(clients);
    }
}
