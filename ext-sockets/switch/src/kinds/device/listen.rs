//! `listen` and `accept`: a thread takes the device's connections, and the program's descriptor is
//! readable while some wait.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::POLLIN;
use rddp_real as real;
use rddp_sdp::socket::Ready;
use rddp_sdp_rnic::{SdpListener, SdpStream, Watcher};
use rddp_stream::{Errno, Patience};

use super::adapter;
use super::gauge::Gauge;
use super::link::{self, Life, Link};
use super::moving::errno_of;
use super::socket::Device;
use crate::socket::{self, Mode};
use crate::{gate, switch};

/// The pause of a listener that cannot take connections.
const REST: Duration = Duration::from_millis(50);

/// Time for which a close waits for a listener that is in the middle of a startup.
const LONGEST: Duration = Duration::from_secs(1);

/// A listening socket: its connections that wait for `accept`.
#[derive(Debug)]
pub(super) struct Listening {
    /// `None` once its thread has ended.
    listener: Mutex<Option<Arc<SdpListener>>>,
    gauge: Arc<Gauge>,
    queue: Mutex<Queue>,
    has_room: Condvar,
    has_ended: Condvar,
}

#[derive(Debug)]
struct Queue {
    streams: VecDeque<SdpStream>,
    longest: usize,
    is_stopped: bool,
    /// The device takes no more connections.
    is_over: bool,
}

impl Queue {
    fn new(longest: usize) -> Self {
        Queue { streams: VecDeque::new(), longest, is_stopped: false, is_over: false }
    }
}

impl Device {
    pub(super) fn listen(&self, backlog: c_int) -> Result<(), Errno> {
        let longest = usize::try_from(backlog).unwrap_or(0).clamp(1, 4096);
        if let Some(link) = link::of(self.held.cookie()) {
            let listening = link.listening().ok_or(Errno::INVALID)?;
            listening.queue().longest = longest;
            return Ok(());
        }
        let at = real::local_address(self.fd).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let device = adapter::device()?;
        // The device's listener takes the port beside the program's socket, which keeps it.
        real::set_option(self.fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &real::Value::int(1));
        let listener = device.listen(at).map_err(|error| {
            switch::tell_not_listening(at, adapter::name(), &error);
            errno_of(&error)
        })?;
        listener.tell_rejected(|peer, reason| {
            switch::tell_not_made(format_args!("accept {peer}"), adapter::name(), reason);
        });
        let local = listener.local_addr().unwrap_or(at);
        let (gauge, programs) = Gauge::new()?;
        let gauge = Arc::new(gauge);
        let listening = Arc::new(Listening {
            listener: Mutex::new(Some(Arc::new(listener))),
            gauge: gauge.clone(),
            queue: Mutex::new(Queue::new(longest)),
            has_room: Condvar::new(),
            has_ended: Condvar::new(),
        });
        begin(&listening)?;
        let link = Link::new(gauge, Life::Listening(listening), link::hidden_number(self.fd));
        link.set_local(Some(local));
        self.install(programs, link)
    }

    pub(super) fn accept(&self, flags: c_int) -> Result<(c_int, Option<SocketAddr>), Errno> {
        let patience = Patience::new(false, self.held.settings().saved.rcvtimeo.duration());
        loop {
            let link = self.link()?;
            let listening = link.listening().ok_or(Errno::INVALID)?;
            if let Some(stream) = self.next(&listening)? {
                return self.take_in(stream, flags);
            }
            self.sleep(POLLIN, 0, &patience)?;
        }
    }

    fn next(&self, listening: &Listening) -> Result<Option<SdpStream>, Errno> {
        let _no_signals = real::NoSignals::here();
        let _at_work = self.held.work_on(self.fd).ok_or(Errno::NO_DESCRIPTOR)?;
        listening.gauge.enter();
        let stream = listening.take();
        listening.gauge.settle(self.fd);
        stream
    }

    /// Makes a descriptor of an accepted connection.
    fn take_in(&self, stream: SdpStream, flags: c_int) -> Result<(c_int, Option<SocketAddr>), Errno> {
        let _no_signals = real::NoSignals::here();
        let (gauge, programs) = Gauge::new()?;
        gate::fresh(programs);
        real::set_nonblocking(programs, flags & libc::SOCK_NONBLOCK != 0);
        real::set_close_on_exec(programs, flags & libc::SOCK_CLOEXEC != 0);
        let (gauge, stream) = (Arc::new(gauge), Arc::new(stream));
        let link = Link::new(gauge.clone(), Life::Connected(stream.clone()), None);
        link.names_of(&stream);
        let peer = stream.addresses().1;
        if let Some(peer) = peer {
            switch::tell_on_device("accept", peer, adapter::name());
        }
        let settings = self.held.settings().of_child();
        let cookie = real::cookie(programs).ok_or(Errno(libc::ENOSYS))?;
        link::add(cookie, link.clone());
        if socket::adopt(programs, socket::Settings { mode: Mode::Starting, ..settings }).is_err() {
            link::forget(cookie);
            link.close(Some(Duration::ZERO));
            real::close_number(programs);
            return Err(Errno(libc::ECONNABORTED));
        }
        stream.watch(gauge);
        Ok((programs, peer))
    }
}

impl Listening {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the oldest connection.
    fn take(&self) -> Result<Option<SdpStream>, Errno> {
        let mut queue = self.queue();
        let stream = queue.streams.pop_front();
        self.show(&queue);
        self.has_room.notify_one();
        // As TCP answers at a socket that listens no more.
        if stream.is_none() && queue.is_over { Err(Errno::INVALID) } else { Ok(stream) }
    }

    fn show(&self, queue: &Queue) {
        let octets = queue.streams.len();
        self.gauge.now(Ready { reads: octets > 0, octets, ..Ready::default() });
    }

    fn listener(&self) -> MutexGuard<'_, Option<Arc<SdpListener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections until the listener is stopped, and closes it.
    fn run(&self) {
        let listener = self.listener().clone();
        if let Some(listener) = &listener {
            self.run_on(listener);
        }
        drop(listener);
        *self.listener() = None;
        self.has_ended.notify_all();
    }

    fn run_on(&self, listener: &SdpListener) {
        loop {
            let mut queue = self.queue();
            while queue.streams.len() >= queue.longest && !queue.is_stopped {
                queue = self.has_room.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            drop(queue);
            match listener.accept() {
                Ok(stream) => {
                    let mut queue = self.queue();
                    queue.streams.push_back(stream);
                    self.show(&queue);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                Err(error) => {
                    switch::tell_not_made("accept", adapter::name(), &error);
                    if listener.failure().is_some() {
                        return self.set_over();
                    }
                    std::thread::sleep(REST);
                }
            }
        }
    }

    /// Has the program hear that there will be no more connections than those that wait.
    fn set_over(&self) {
        self.queue().is_over = true;
        self.gauge.show_over();
    }

    /// Ends the listening: whoever connects from now on is refused. Connections that nobody has
    /// accepted are reset.
    pub(super) fn stop(&self) {
        let mut queue = self.queue();
        queue.is_stopped = true;
        for stream in queue.streams.drain(..) {
            stream.abort();
        }
        self.has_room.notify_all();
        drop(queue);
        let listener = self.listener();
        listener.iter().for_each(|listener| listener.stop());
        let is_open = |listener: &mut Option<_>| listener.is_some();
        drop(self.has_ended.wait_timeout_while(listener, LONGEST, is_open));
    }
}

/// Starts the thread that takes connections.
fn begin(listening: &Arc<Listening>) -> Result<(), Errno> {
    let listening = listening.clone();
    let _no_signals = real::NoSignals::here();
    let thread = std::thread::Builder::new().name("rddp-accept".into());
    thread.spawn(move || listening.run()).map(drop).map_err(|_| Errno::WOULD_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_waits_hears_of_the_end_of_the_device() {
        let (gauge, programs) = Gauge::new().unwrap();
        let listening = Listening {
            listener: Mutex::default(),
            gauge: Arc::new(gauge),
            queue: Mutex::new(Queue::new(1)),
            has_room: Condvar::new(),
            has_ended: Condvar::new(),
        };
        let shown = || real::events_now(programs, POLLIN) & POLLIN != 0;
        assert!(listening.take().unwrap().is_none() && !shown());
        listening.set_over();
        assert!(shown());
        assert_eq!(listening.take().unwrap_err(), Errno::INVALID);
        assert!(shown(), "for good");
    }
}
