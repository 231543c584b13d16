//! Half-open connections: those that a listener took and whose Request is still arriving.
//!
//! The background thread reads them. Each has a time limit (RFC 5044 §7.1.2), and their number is
//! bounded (see `peer_count.rs`).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use nix::sys::epoll::EpollFlags;
use parking_lot::Mutex;

use super::listen::ListenerInner;
use super::peer_count::{Counted, Origin, PeerCount};
use super::socket::DeviceSocket;
use crate::deadline::Deadline;
use crate::device::DeviceInner;
use crate::io::driver::{Driver, Failure, Source};
use crate::trace;
use crate::wire::opening::{Asked, Opening, Progress};

/// The half-open connections of a device, by their tokens, which grow. The set alone keeps them
/// alive.
#[derive(Debug, Default)]
pub(crate) struct HalfOpenSet(Mutex<BTreeMap<u64, Arc<HalfOpen>>>);

impl HalfOpenSet {
    /// Closes the oldest connection of `origin` that is counted there.
    pub(super) fn end_oldest(&self, count: &Arc<PeerCount>, origin: Origin) {
        let oldest = self.0.lock().values().find(|half_open| half_open.is_of(count, origin)).cloned();
        if let Some(half_open) = oldest {
            trace::silent(half_open.peer, "others wait, and its address has the most such connections");
            half_open.end();
        }
    }

    /// Drops the connections of a listener that is gone.
    pub(crate) fn forget(&self, listener: &Weak<ListenerInner>, driver: &Driver) {
        self.0.lock().retain(|token, half_open| {
            let stays = !half_open.belongs_to(listener);
            if !stays {
                driver.remove(*token);
            }
            stays
        });
    }
}

/// A Request that is arriving.
#[derive(Debug)]
struct Arriving {
    socket: DeviceSocket,
    opening: Opening,
    counted: Counted,
    listener: Weak<ListenerInner>,
}

/// A half-open connection.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    token: u64,
    device: Weak<DeviceInner>,
    /// The address that the kernel named when it gave the connection: of one that is reset
    /// meanwhile, the socket knows none any more.
    peer: Option<SocketAddr>,
    deadline: Deadline,
    /// `None` where it is over.
    arriving: Mutex<Option<Arriving>>,
}

impl HalfOpen {
    /// Has the background thread await the Request on a connection that a listener took.
    pub(super) fn await_request(
        device: &Arc<DeviceInner>,
        listener: Weak<ListenerInner>,
        (socket, peer): (DeviceSocket, Option<SocketAddr>),
        opening: Opening,
        counted: Counted,
        deadline: Deadline,
    ) -> io::Result<()> {
        let half_open = Arc::new_cyclic(|weak: &Weak<HalfOpen>| {
            let source: Weak<dyn Source> = weak.clone();
            let token = device.driver.add(source);
            let arriving = Mutex::new(Some(Arriving { socket, opening, counted, listener }));
            HalfOpen { token, device: Arc::downgrade(device), peer, deadline, arriving }
        });
        device.half_opens.0.lock().insert(half_open.token, half_open.clone());
        device.driver.by(deadline, half_open.token);
        let watched = match &*half_open.arriving.lock() {
            Some(it) => device.driver.watch(it.socket.as_fd(), half_open.token, EpollFlags::EPOLLIN),
            None => Ok(()),
        };
        if watched.is_err() {
            half_open.end();
        }
        watched
    }

    fn belongs_to(&self, listener: &Weak<ListenerInner>) -> bool {
        self.arriving.lock().as_ref().is_some_and(|it| Weak::ptr_eq(&it.listener, listener))
    }

    fn is_of(&self, count: &Arc<PeerCount>, origin: Origin) -> bool {
        self.arriving.lock().as_ref().is_some_and(|it| it.counted.is_of(count, origin))
    }

    fn end(&self) {
        *self.arriving.lock() = None;
        if let Some(device) = self.device.upgrade() {
            device.driver.remove(self.token);
            device.half_opens.0.lock().remove(&self.token);
        }
    }

    /// Reads what has arrived. Returns how it has ended, or `None` where more is to come.
    fn advance(&self, driver: &Driver) -> Option<Done> {
        let mut arriving = self.arriving.lock();
        let Arriving { socket, opening, .. } = arriving.as_mut()?;
        match opening.advance(socket) {
            Ok(Progress::Asked(asked)) => {
                driver.unwatch(socket.as_fd());
                Some(Done::Request(arriving.take()?, asked))
            }
            Ok(_) => {
                driver.arm(socket.as_fd(), self.token, EpollFlags::EPOLLIN);
                None
            }
            Err(failed) => {
                trace::no_request(self.peer, &failed.error);
                Some(Done::Closed)
            }
        }
    }
}

/// The end of a half-open connection.
enum Done {
    Closed,
    Request(Arriving, Asked),
}

impl Source for HalfOpen {
    fn on_ready(&self, driver: &Driver) -> bool {
        match self.advance(driver) {
            None => {}
            Some(Done::Closed) => self.end(),
            Some(Done::Request(Arriving { socket, counted, listener, .. }, asked)) => {
                self.end();
                if let Some(listener) = listener.upgrade() {
                    listener.push(socket, asked, counted);
                }
            }
        }
        false
    }

    fn on_timer(&self, _driver: &Driver, now: Instant) {
        if self.deadline.is_over(now) {
            trace::silent(self.peer, "its time for that is over");
            self.end();
        }
    }

    fn give_up(&self, _driver: &Driver, _failure: Failure) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use crate::{ConnectOptions, Rnic};

    /// RFC 5042 §6.4.2: half-open connections go with their listener, and the background thread
    /// forgets them.
    #[test]
    fn a_listener_that_goes_leaves_no_source_behind() {
        let rnic = Rnic::open().unwrap();
        let before = rnic.0.anywhere().driver.sources();
        for _ in 0..3 {
            let options = ConnectOptions::default();
            let listener = rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
            let addr = listener.local_addr().unwrap();
            let _silent = [0; 10].map(|_| TcpStream::connect(addr).unwrap());
            let deadline = Instant::now() + Duration::from_secs(20);
            while rnic.0.anywhere().half_opens.0.lock().len() < 10 {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
            drop(listener);
            assert_eq!(
                (rnic.0.anywhere().half_opens.0.lock().len(), rnic.0.anywhere().driver.sources()),
                (0, before)
            );
        }
    }
}
