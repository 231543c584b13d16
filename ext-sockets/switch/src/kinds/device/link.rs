//! The sockets that a device has, each with its stream, by the cookie of the program's end.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rddp_real::{self as real, hidden};
use rddp_sdp_rnic::SdpStream;
use rddp_stream::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::adapter;
use super::gauge::Gauge;
use super::listen::Listening;
use crate::switch;

static LINKS: Mutex<BTreeMap<u64, Arc<Link>>> = Mutex::new(BTreeMap::new());

/// A socket of the program's.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) gauge: Arc<Gauge>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    life: Life,
    /// The program's TCP socket, or one like it, which keeps the kernel's options: a hidden number.
    tcp: Option<c_int>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// An error that no call has told yet.
    error: Option<Errno>,
    /// A `connect` has told that the socket is connected.
    is_told: bool,
    /// The program has shut down what it receives.
    receives_no_more: bool,
}

/// A socket's stream, or what there is before and behind it.
#[derive(Debug)]
pub(super) enum Life {
    Connecting,
    Connected(Arc<SdpStream>),
    Listening(Arc<Listening>),
    Failed(Errno),
}

impl Link {
    pub(super) fn new(gauge: Arc<Gauge>, life: Life, tcp: Option<c_int>) -> Arc<Self> {
        let state = State {
            life,
            tcp,
            local: None,
            peer: None,
            error: None,
            is_told: false,
            receives_no_more: false,
        };
        Arc::new(Link { gauge, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn life(&self) -> impl std::ops::Deref<Target = Life> + '_ {
        Shown(self.state())
    }

    /// Returns the stream; `None`: not yet.
    ///
    /// # Errors
    /// There will be none.
    pub(super) fn stream(&self) -> Result<Option<Arc<SdpStream>>, Errno> {
        let mut state = self.state();
        match &state.life {
            Life::Connecting => Ok(None),
            Life::Connected(stream) => Ok(Some(stream.clone())),
            Life::Listening(_) => Err(Errno(libc::ENOTCONN)),
            Life::Failed(errno) => {
                let errno = *errno;
                Err(state.error.take().unwrap_or(errno))
            }
        }
    }

    pub(super) fn listening(&self) -> Option<Arc<Listening>> {
        match &self.state().life {
            Life::Listening(listening) => Some(listening.clone()),
            _ => None,
        }
    }

    /// Takes the result of a `connect`.
    pub(super) fn connected(&self, result: Result<SdpStream, Errno>) {
        let stream = match result {
            Ok(stream) => Arc::new(stream),
            Err(errno) => {
                let mut state = self.state();
                (state.life, state.error) = (Life::Failed(errno), Some(errno));
                drop(state);
                return self.gauge.show_over();
            }
        };
        self.names_of(&stream);
        if let Some(peer) = self.state().peer {
            switch::tell_on_device("connect", peer, adapter::name());
        }
        self.state().life = Life::Connected(stream.clone());
        stream.watch(self.gauge.clone());
    }

    pub(super) fn names_of(&self, stream: &SdpStream) {
        let (local, peer) = stream.addresses();
        let mut state = self.state();
        (state.local, state.peer) = (local, peer.or(state.peer));
    }

    pub(super) fn set_local(&self, local: Option<SocketAddr>) {
        self.state().local = local;
    }

    pub(super) fn set_peer(&self, peer: Option<SocketAddr>) {
        self.state().peer = peer;
    }

    /// Returns the address of this end, and of the peer's once it is connected.
    pub(super) fn names(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.state();
        let is_connected = matches!(state.life, Life::Connected(_));
        (state.local, state.peer.filter(|_| is_connected))
    }

    /// Returns the result of a `connect` on a socket that has begun one.
    pub(super) fn connect_again(&self) -> Result<(), Errno> {
        let mut state = self.state();
        let state = &mut *state;
        match state.life {
            Life::Connecting => Err(Errno(libc::EALREADY)),
            Life::Connected(_) if !std::mem::replace(&mut state.is_told, true) => Ok(()),
            Life::Connected(_) | Life::Listening(_) => Err(Errno(libc::EISCONN)),
            Life::Failed(errno) => Err(state.error.take().unwrap_or(errno)),
        }
    }

    /// Notes that a `connect` that has slept tells of the connection itself.
    pub(super) fn set_told(&self) {
        self.state().is_told = true;
    }

    pub(super) fn take_error(&self) -> Errno {
        self.state().error.take().unwrap_or(Errno::NONE)
    }

    /// Notes that the program receives no more; returns whether it had said so before.
    pub(super) fn receives_no_more(&self) -> bool {
        std::mem::replace(&mut self.state().receives_no_more, true)
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.state().receives_no_more
    }

    /// Returns a TCP socket that has the kernel's options of this one.
    pub(super) fn tcp(&self) -> Option<c_int> {
        let mut state = self.state();
        if state.tcp.is_none() {
            let domain = match state.local {
                Some(SocketAddr::V6(_)) => Domain::IPV6,
                _ => Domain::IPV4,
            };
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).ok()?;
            state.tcp = hidden_number(std::os::fd::AsRawFd::as_raw_fd(&socket));
        }
        state.tcp
    }

    /// Returns `SO_LINGER` of the socket, if it is on.
    pub(super) fn lingers(&self) -> Option<Duration> {
        self.state().tcp.and_then(real::linger)
    }

    /// Ends the socket, whose last number of this process is closed; `linger` is its `SO_LINGER`.
    pub(super) fn close(&self, linger: Option<Duration>) {
        self.gauge.close();
        let mut state = self.state();
        if let Some(tcp) = state.tcp.take() {
            hidden::close(tcp);
        }
        let life = std::mem::replace(&mut state.life, Life::Failed(Errno::NO_DESCRIPTOR));
        drop(state);
        match life {
            // A call in another thread may hold it a moment longer.
            Life::Connected(stream) => stream.set_linger(linger),
            Life::Listening(listening) => listening.stop(),
            Life::Connecting | Life::Failed(_) => {}
        }
    }

    /// Closes what a child of `fork` has of the parent's.
    pub(super) fn close_inherited(&self) {
        self.gauge.close_inherited();
        // Another thread of the parent's may have had a lock.
        if let Ok(state) = self.state.try_lock()
            && let Some(tcp) = state.tcp
        {
            hidden::close(tcp);
        }
    }
}

struct Shown<'a>(MutexGuard<'a, State>);

impl std::ops::Deref for Shown<'_> {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.0.life
    }
}

/// Makes a hidden number of a file.
pub(super) fn hidden_number(fd: c_int) -> Option<c_int> {
    real::duplicate_high(fd).inspect(|number| hidden::hide(*number))
}

/// Returns the socket with this cookie.
pub(super) fn of(cookie: u64) -> Option<Arc<Link>> {
    real::lock(&LINKS).get(&cookie).cloned()
}

pub(super) fn add(cookie: u64, link: Arc<Link>) {
    real::lock(&LINKS).insert(cookie, link);
}

pub(super) fn forget(cookie: u64) -> Option<Arc<Link>> {
    real::lock(&LINKS).remove(&cookie)
}

/// Takes all sockets.
pub(super) fn take_all() -> BTreeMap<u64, Arc<Link>> {
    std::mem::take(&mut *real::lock(&LINKS))
}
