//! Both legs of a connection, and what they agree on.
//!
//! The end that asked is answered when the other leg stands, or has failed: private data go on as
//! they are, and so do the words by which a program says no. The depth of the plain host's Reads is
//! that of the device's host; the gateway itself lets nobody read its memory, and reads none of the
//! plain host's.
//!
//! | file | subject |
//! |---|---|
//! | `to_device` | a plain host has connected |
//! | `to_plain` | a program behind the device has |

mod to_device;
mod to_plain;

use std::any::Any;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use rddp_iwarp::OwnMessage;
use rddp_mpa::{Negotiated, StartupConfig};
use rddp_rdma::Access;
use rddp_verbs_device::{Agreed, ConnectFailed, DeviceError, Endpoint, Event, Registration};
use socket2::{SockRef, TcpKeepalive};

use crate::bridge::{Bridge, RECEIVES, Shape, Terms};
use crate::options::Options;
use crate::reason::Reason;

/// Time in which a plain host has to send its Request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// TCP's segments, where it does not tell.
const EMSS: usize = 1460;

/// A connection whose legs both stand.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) tcp: TcpStream,
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Pool,
    pub(crate) bridge: Bridge,
}

/// The addresses of a connection, as far as they are known: this host's, and then the other end's.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The TCP connection, to the plain host.
    pub tcp: [Option<SocketAddr>; 2],
    /// The device's leg.
    pub device: [Option<SocketAddr>; 2],
    /// The device's name.
    pub device_name: String,
}

impl Opened {
    pub(crate) fn ends(&self) -> Ends {
        let (local, peer) = self.endpoint.addresses();
        Ends {
            tcp: [self.tcp.local_addr().ok(), self.tcp.peer_addr().ok()],
            device: [local, peer],
            device_name: self.endpoint.device().name().to_owned(),
        }
    }
}

/// The memory of a connection.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) octets: Registration,
    _sink: Registration,
    shape: Shape,
}

impl Pool {
    /// Registers a connection's memory, and has the device receive into it.
    fn new(endpoint: &mut Endpoint, max_message: usize) -> Result<Self, Reason> {
        let len = Shape::len_for(max_message);
        let octets = Registration::allocate(endpoint.device().domain(), len, Access::LOCAL_WRITE)?;
        let sink = octets.read_sink()?;
        let (local, sinks) = (octets.piece(0, 0), sink.piece(0, 0));
        let shape = Shape { max_message, start: local.addr, local: local.stag, sink: sinks.stag };
        for slot in 0..RECEIVES as u64 {
            endpoint.post_receive(&shape.receive(slot))?;
        }
        Ok(Pool { octets, _sink: sink, shape })
    }
}

/// The place that a peer got when it was admitted. It is free when the peer's last thread ends.
pub(crate) type Place = dyn Any + Send + Sync;

/// The limits and the end of a gateway, and the place of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) options: &'a Options,
    /// Readable when the gateway stops.
    pub(crate) stop: &'a EventFd,
    pub(crate) place: &'a Arc<Place>,
}

impl Opening<'_> {
    /// Reads octets of a startup frame, and none behind it. Returns `false` at TCP's end.
    fn read_more(
        &self,
        mut tcp: &TcpStream,
        octets: &mut Vec<u8>,
        total: usize,
        until: Instant,
        what: &'static str,
    ) -> Result<bool, Reason> {
        let mut chunk = [0; 64];
        let want = chunk.len().min(total.saturating_sub(octets.len()));
        loop {
            match tcp.read(&mut chunk[..want]) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    octets.extend_from_slice(&chunk[..count]);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(tcp, PollFlags::POLLIN, until, what)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_all(&self, mut tcp: &TcpStream, mut octets: &[u8]) -> Result<(), Reason> {
        let until = Instant::now() + REQUEST_TIME;
        while !octets.is_empty() {
            match tcp.write(octets) {
                Ok(count) => octets = &octets[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(tcp, PollFlags::POLLOUT, until, "a startup frame to the plain host")?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for a descriptor, but no longer than the gateway goes on.
    fn wait(
        &self,
        fd: &impl AsFd,
        flags: PollFlags,
        until: Instant,
        what: &'static str,
    ) -> Result<(), Reason> {
        let mut fds = [PollFd::new(fd.as_fd(), flags), PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        if !poll_until(&mut fds, Some(until))? {
            return Err(Reason::TooLong(what));
        }
        let is_stopped = fds[1].any().unwrap_or(true);
        if is_stopped { Err(Reason::Stopped) } else { Ok(()) }
    }

    /// Looks a name up. The C library has no deadline for that, so a thread waits, which has the
    /// connection's place until it ends.
    fn addresses(&self, name: &str, until: Instant) -> Result<Vec<SocketAddr>, Reason> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let (tell, told) = mpsc::channel();
        let (asked, place) = (name.to_owned(), Arc::clone(self.place));
        let look_up = move || {
            // Nobody hears an answer that is late.
            let _ = tell.send(asked.to_socket_addrs().map(Iterator::collect));
            drop(place);
        };
        thread::Builder::new().name("rddp-lookup".into()).spawn(look_up).map_err(Reason::Host)?;
        let left = until.saturating_duration_since(Instant::now());
        let found = told.recv_timeout(left).map_err(|_| Reason::TooLong("looking up the host behind it"))?;
        found.map_err(|error| Reason::Unknown { name: name.to_owned(), error })
    }

    /// Waits until the device's leg stands.
    fn established(&self, endpoint: &mut Endpoint, until: Instant) -> Result<Agreed, Reason> {
        loop {
            if let Event::Connected(agreed) = self.next(endpoint, until)? {
                return Ok(agreed);
            }
        }
    }

    /// Waits for the next step of the device's leg.
    fn next(&self, endpoint: &mut Endpoint, until: Instant) -> Result<Event, Reason> {
        loop {
            match endpoint.event()? {
                Some(Event::Failed(failed)) => return Err(Reason::Connect(failed)),
                Some(Event::Disconnected) => return Err(Reason::DeviceClosed),
                Some(Event::Removed) => return Err(Reason::removed(endpoint.device())),
                Some(event) => return Ok(event),
                None => self.wait(endpoint, PollFlags::POLLIN, until, "the device's leg")?,
            }
        }
    }
}

/// Waits for descriptors until a moment; returns whether one is ready.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up: a wait must not end before its time.
    let milliseconds = left.map(|left| left.as_millis() + 1);
    let time = milliseconds.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
    match poll(fds, time) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Sets what TCP does for a connection. A host that has vanished is noticed by keepalive, or, with
/// octets on the way to it, by the end of TCP's retransmissions. A user timeout would be sooner
/// then, but Linux counts the time of a closed window by it, too, though the host answers.
fn prepare(tcp: &TcpStream) -> io::Result<()> {
    let alive = TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
    SockRef::from(tcp).set_tcp_keepalive(&alive.with_retries(3))?;
    tcp.set_nodelay(true)?;
    tcp.set_nonblocking(true)
}

fn nowhere(name: &str) -> Reason {
    Reason::Unknown { name: name.to_owned(), error: ErrorKind::AddrNotAvailable.into() }
}

/// Returns the octets by which the end that asked gets to know a reason, as many as it takes: a
/// program's own words as they are, and of this host nothing that is a stranger's business.
fn told(reason: &Reason, max: usize) -> Vec<u8> {
    let mut octets = match reason {
        Reason::PlainRejected { private_data }
        | Reason::Connect(ConnectFailed::Rejected { private_data }) => private_data.clone(),
        reason => format!("rddp gateway: {}", said(reason)).into_bytes(),
    };
    octets.truncate(max);
    octets
}

fn said(reason: &Reason) -> String {
    let words = match reason {
        Reason::TooLong(_) | Reason::Stopped => return reason.to_string(),
        Reason::Device(DeviceError::PrivateData { len, max, .. }) => {
            return format!("{len} octets of private data, and the other leg carries {max}");
        }
        reason if reason.is_of_this_host() => "it cannot serve at the moment",
        Reason::Connect(ConnectFailed::Refused { .. }) => "nothing listens at the host behind it",
        Reason::Connect(_) | Reason::Unknown { .. } | Reason::Tcp(_) => "the host behind it is not reached",
        Reason::Startup(_) => "the host behind it speaks no MPA",
        _ => "it cannot serve at the moment",
    };
    words.to_owned()
}

/// Returns this end's part of the startup, as the end that connects to a plain host.
fn initiator(depth: u16) -> StartupConfig {
    // The first Read may be the one that says that an initiator is ready; it is answered here.
    StartupConfig { ird: depth, ord: 0, max_ird: depth.max(1), ..StartupConfig::default() }
}

fn terms(tcp: &TcpStream, negotiated: &Negotiated, first: Option<OwnMessage>) -> Terms {
    let emss = SockRef::from(tcp).tcp_mss().map_or(EMSS, |emss| emss as usize);
    Terms { rx: negotiated.rx(), tx: negotiated.tx(), ird: negotiated.ird.into(), emss, first }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_host_that_has_vanished_is_noticed_and_one_that_answers_may_take_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&tcp).unwrap();
        let socket = SockRef::from(&tcp);
        assert!(socket.keepalive().unwrap());
        let (time, interval) =
            (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        assert_eq!(time + interval * socket.tcp_keepalive_retries().unwrap(), Duration::from_secs(60));
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }
}
