//! Listeners, and a thread for each connection.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rddp_verbs_device::{Device, DeviceError, Listener, Presence, Request};
use socket2::SockRef;

use crate::bridge::Counts;
use crate::opening::{Ends, Opening, Place, poll_until};
use crate::options::Options;
use crate::pair::Pair;
use crate::reason::{Reason, RunError};
use crate::watch::Watch;

/// Time between two looks at whether the gateway is to stop.
const CHECK: Duration = Duration::from_millis(100);
/// The pause of a listener that cannot take connections, as when there are no descriptors.
const REST: Duration = Duration::from_millis(50);

/// A way through a gateway: where peers connect, and where they get to.
#[derive(Debug)]
pub enum Route {
    /// Plain hosts connect to programs behind a device.
    FromPlain {
        /// The listener of TCP, which does not block.
        listener: TcpListener,
        /// The device.
        device: Device,
        /// Name and port of the host behind it.
        to: String,
    },
    /// Programs behind a device connect to plain hosts.
    FromDevice {
        /// The device's listener.
        listener: Listener,
        /// Name and port of the plain host.
        to: String,
    },
}

/// An event of a connection.
#[derive(Debug)]
pub enum Event<'a> {
    /// A peer has connected, and is connected to the host behind the gateway.
    Opened {
        /// The peer.
        peer: Option<SocketAddr>,
        /// The host behind the gateway.
        to: &'a str,
        /// Both ends.
        ends: &'a Ends,
    },
    /// A connection has moved something since it was told of last ([`Options::interval`]).
    Moved {
        /// The peer.
        peer: Option<SocketAddr>,
        /// The host behind the gateway.
        to: &'a str,
        /// Both ends.
        ends: &'a Ends,
        /// The connection's numbers so far.
        counts: Counts,
    },
    /// A peer was refused.
    Refused {
        /// The peer.
        peer: Option<SocketAddr>,
        /// The host behind the gateway.
        to: &'a str,
        /// The reason.
        reason: Reason,
    },
    /// A connection has ended.
    Ended {
        /// The peer.
        peer: Option<SocketAddr>,
        /// The host behind the gateway.
        to: &'a str,
        /// Both ends.
        ends: &'a Ends,
        /// The connection's numbers.
        counts: Counts,
        /// The reason.
        reason: Reason,
    },
    /// No peer can be taken at the moment.
    CannotAccept {
        /// The reason.
        reason: Reason,
    },
}

/// A peer that has connected.
enum Incoming<'a> {
    Plain { tcp: TcpStream, device: &'a Device },
    Device { request: Request, device: &'a Device },
}

/// Serves until it is to stop, and then until all connections have ended: they have a few seconds
/// for that.
///
/// `admit` says who may come, and gives what is kept for as long as the connection lasts, and any
/// attempt to make it, such as a place among a limited number. `tell` hears of each connection, in
/// its thread.
///
/// # Errors
/// No listener is left, or the gateway cannot wait.
pub fn run<P: Send + Sync + 'static>(
    routes: &[Route],
    options: &Options,
    admit: impl Fn(Option<SocketAddr>) -> Result<P, String>,
    tell: impl Fn(Event<'_>) + Sync,
    stopped: impl Fn() -> bool,
) -> Result<(), RunError> {
    let stop =
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(io::Error::from)?;
    let (tell, stop) = (&tell, &stop);
    thread::scope(|scope| {
        let served = serve(
            routes,
            stopped,
            |route, incoming, peer| {
                let to = route.to();
                let place = match admit(peer) {
                    Ok(place) => Arc::new(place),
                    Err(why) => return tell(Event::Refused { peer, to, reason: Reason::NotAdmitted(why) }),
                };
                let thread = move || {
                    let place: Arc<Place> = place;
                    carry(Opening { options, stop, place: &place }, incoming, to, peer, tell);
                };
                if let Err(error) =
                    thread::Builder::new().name("rddp-gateway".into()).spawn_scoped(scope, thread)
                {
                    tell(Event::Refused { peer, to, reason: Reason::Host(error) });
                }
            },
            tell,
        );
        let told = stop.write(1);
        served.and(told.map(drop).map_err(|error| RunError::Wait(error.into())))
    })
}

/// Takes connections until the gateway is to stop.
fn serve<'a>(
    routes: &'a [Route],
    stopped: impl Fn() -> bool,
    mut take: impl FnMut(&'a Route, Incoming<'a>, Option<SocketAddr>),
    tell: &impl Fn(Event<'_>),
) -> Result<(), RunError> {
    let mut doors: Vec<_> = routes.iter().map(Door::new).collect();
    while !stopped() {
        let fds = doors.iter().flat_map(Door::fds);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        if !poll_until(&mut fds, Some(Instant::now() + CHECK))? {
            continue;
        }
        let mut gone = None;
        doors.retain(|door| match door.accept() {
            Ok(found) => {
                found.into_iter().for_each(|(incoming, peer)| take(door.route, incoming, peer));
                true
            }
            Err(reason @ Reason::Device(DeviceError::Removed { .. })) => {
                door.route.close();
                gone = Some(reason);
                false
            }
            Err(reason) => {
                tell(Event::CannotAccept { reason });
                thread::sleep(REST);
                true
            }
        });
        match gone {
            Some(reason) if doors.is_empty() => return Err(RunError::NoListener(reason)),
            Some(reason) => tell(Event::CannotAccept { reason }),
            None => {}
        }
    }
    Ok(())
}

/// A route that takes peers.
struct Door<'a> {
    route: &'a Route,
    /// A listener of TCP does not hear of the end of the device behind it.
    presence: Option<Presence>,
}

impl<'a> Door<'a> {
    fn new(route: &'a Route) -> Self {
        let presence = match route {
            Route::FromPlain { device, to, .. } => presence(device, to),
            Route::FromDevice { .. } => None,
        };
        Door { route, presence }
    }

    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(self.route.as_fd()), self.presence.as_ref().map(AsFd::as_fd)].into_iter().flatten()
    }

    fn accept(&self) -> Result<Option<(Incoming<'a>, Option<SocketAddr>)>, Reason> {
        self.presence.as_ref().map_or(Ok(()), Presence::check)?;
        self.route.accept()
    }
}

/// Watches a device, by any address that it has at this host.
fn presence(device: &Device, to: &str) -> Option<Presence> {
    let by_own = || Presence::at(device, to.parse::<SocketAddr>().ok()?.ip()).ok();
    Presence::of(device).ok().or_else(by_own)
}

/// Opens the other leg of a connection, and carries it to its end.
fn carry(
    opening: Opening<'_>,
    incoming: Incoming<'_>,
    to: &str,
    peer: Option<SocketAddr>,
    tell: &dyn Fn(Event<'_>),
) {
    let opened = match incoming {
        Incoming::Plain { tcp, device } => opening.plain(tcp, device, to),
        Incoming::Device { request, device } => opening.device(request, device, to),
    };
    match opened {
        Ok(opened) => {
            let ends = &opened.ends();
            tell(Event::Opened { peer, to, ends });
            let moved = |counts| tell(Event::Moved { peer, to, ends, counts });
            let watch = Watch::new(opening.options.interval, &moved);
            let (counts, reason) = Pair::new(opened, opening, watch).run();
            tell(Event::Ended { peer, to, ends, counts, reason });
        }
        Err(reason) => tell(Event::Refused { peer, to, reason }),
    }
}

impl Route {
    /// Returns the host behind the gateway.
    #[must_use]
    pub fn to(&self) -> &str {
        match self {
            Route::FromPlain { to, .. } | Route::FromDevice { to, .. } => to,
        }
    }

    /// Lets nobody in any more, where the device is gone: a device's listener is closed by that.
    fn close(&self) {
        if let Route::FromPlain { listener, .. } = self {
            let _ = SockRef::from(listener).shutdown(Shutdown::Both);
        }
    }

    /// Takes a peer that has connected, if there is one.
    fn accept(&self) -> Result<Option<(Incoming<'_>, Option<SocketAddr>)>, Reason> {
        match self {
            Route::FromPlain { listener, device, .. } => match listener.accept() {
                Ok((tcp, peer)) => Ok(Some((Incoming::Plain { tcp, device }, Some(peer)))),
                Err(error) if is_nobody(&error) => Ok(None),
                Err(error) => Err(Reason::Host(error)),
            },
            Route::FromDevice { listener, .. } => Ok(listener.take()?.map(|request| {
                let peer = request.asked().peer;
                (Incoming::Device { request, device: listener.device() }, peer)
            })),
        }
    }
}

/// The descriptor that is readable while there is a peer to take.
impl AsFd for Route {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Route::FromPlain { listener, .. } => listener.as_fd(),
            Route::FromDevice { listener, .. } => listener.as_fd(),
        }
    }
}

/// Returns whether an error of `accept` is that nobody is there, or not any more.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}
