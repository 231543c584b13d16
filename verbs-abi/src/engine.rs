//! A device at work in this process: the RNIC, and a thread that waits for what happens to
//! connections and tells the program's objects. The thread starts when there is something to wait
//! for: with the first listener, or the first event. Whoever notices an event first holds locks of
//! the device, and so cannot tell the program's objects itself.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock, Weak};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use parking_lot::Mutex;
use rddp_rnic::{AsyncEvent, EventSink, Listener, QpNum, Rnic, RnicConfig};

use crate::errors::{self, Outcome};

/// An object that is told what happens to its queue pair.
pub(crate) trait Watcher: Send + Sync {
    /// Takes an event. Called by the engine's thread, which holds no lock.
    fn on_event(&self, event: &AsyncEvent);
}

/// An object that listens.
pub(crate) trait Host: Send + Sync {
    /// Takes the requests that have come to its listener. Called as `on_event` is.
    fn on_requests(self: Arc<Self>);
}

/// A device at work. Lives as long as the process.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) rnic: Rnic,
    notes: Arc<Notes>,
    epoll: Epoll,
    watchers: Mutex<HashMap<QpNum, Weak<dyn Watcher>>>,
    hosts: Mutex<Hosts>,
    has_thread: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Hosts {
    by_key: HashMap<u64, Weak<dyn Host>>,
    next: u64,
}

/// The key of the notes in the epoll set; listeners have greater ones.
const NOTES: u64 = 0;

impl Engine {
    /// Opens the RNIC.
    pub(crate) fn start() -> Outcome<Arc<Self>> {
        let notes = Arc::new(Notes::new()?);
        // A device of the host is a C program's own affair.
        let device = Some(RnicConfig::SOFTWARE.to_owned());
        let config = RnicConfig { event_sink: Some(notes.clone()), device, ..RnicConfig::default() };
        let rnic = Rnic::with_config(&config).map_err(errors::of_device)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&notes.bell, EpollEvent::new(EpollFlags::EPOLLIN, NOTES))?;
        let (watchers, hosts, has_thread) = Default::default();
        let engine = Arc::new(Engine { rnic, notes, epoll, watchers, hosts, has_thread });
        let _ = engine.notes.engine.set(Arc::downgrade(&engine));
        Ok(engine)
    }

    /// Starts the thread, unless it runs.
    fn begin(self: &Arc<Self>) -> Outcome<()> {
        let mut has_thread = self.has_thread.lock();
        if !*has_thread {
            let engine = self.clone();
            spawn(move || engine.run())?;
            *has_thread = true;
        }
        Ok(())
    }

    fn run(&self) {
        let mut ready = [EpollEvent::empty(); 64];
        loop {
            let count = self.epoll.wait(&mut ready, EpollTimeout::NONE).unwrap_or(0);
            for event in &ready[..count] {
                match event.data() {
                    NOTES => self.deliver(),
                    key => self.call(key),
                }
            }
        }
    }

    fn deliver(&self) {
        for event in self.notes.take_all() {
            let watcher = self.watchers.lock().get(&event.qp).and_then(Weak::upgrade);
            if let Some(watcher) = watcher {
                watcher.on_event(&event);
            }
        }
    }

    fn call(&self, key: u64) {
        let host = self.hosts.lock().by_key.get(&key).and_then(Weak::upgrade);
        if let Some(host) = host {
            host.on_requests();
        }
    }

    /// Has `watcher` told of the events of a queue pair, until [`unwatch`](Self::unwatch).
    pub(crate) fn watch(&self, qp: QpNum, watcher: Weak<dyn Watcher>) {
        self.watchers.lock().insert(qp, watcher);
    }

    pub(crate) fn unwatch(&self, qp: QpNum) {
        self.watchers.lock().remove(&qp);
    }

    /// Has `host` told of the requests that come to a listener. Dropping the listener ends that.
    pub(crate) fn attend(self: &Arc<Self>, listener: &Listener, host: Weak<dyn Host>) -> Outcome<u64> {
        self.begin()?;
        let mut hosts = self.hosts.lock();
        hosts.next += 1;
        let key = hosts.next;
        hosts.by_key.insert(key, host);
        self.epoll.add(listener.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        Ok(key)
    }

    pub(crate) fn forget(&self, listener: &Listener, key: u64) {
        let _ = self.epoll.delete(listener.as_fd());
        self.hosts.lock().by_key.remove(&key);
    }
}

/// Starts a thread, with all signals blocked: they are for the program's own threads.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> Outcome<()> {
    let mut mask = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut mask))?;
    let thread = std::thread::Builder::new().name("rddp-verbs".into()).spawn(work);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
    thread.map(drop).map_err(|error| errors::of_io(&error))
}

/// Events of the RNIC, on their way to the engine's thread: whoever notices one holds locks of the
/// RNIC, and must not call it.
#[derive(Debug)]
struct Notes {
    events: Mutex<VecDeque<AsyncEvent>>,
    bell: EventFd,
    /// The engine whose thread takes them.
    engine: OnceLock<Weak<Engine>>,
}

impl Notes {
    fn new() -> Outcome<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let (events, engine) = Default::default();
        Ok(Notes { events, bell: EventFd::from_value_and_flags(0, flags)?, engine })
    }

    fn take_all(&self) -> VecDeque<AsyncEvent> {
        let _ = self.bell.read();
        std::mem::take(&mut *self.events.lock())
    }
}

impl EventSink for Notes {
    fn take(&self, event: AsyncEvent) {
        self.events.lock().push_back(event);
        let _ = self.bell.write(1);
        let begun = self.engine.get().and_then(Weak::upgrade).map(|engine| engine.begin());
        if let Some(Err(error)) = begun {
            // The next event tries again.
            tracing::error!(%error, "no thread to tell the program of an event");
        }
    }
}
