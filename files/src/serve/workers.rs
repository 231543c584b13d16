//! The threads of a server: each drives the transfers of many clients.
//!
//! There are as many as processors, whatever devices clients come by, started as they are needed; a
//! client goes to the one that has the fewest.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rddp_command::signals;
use rddp_command::threads;
use rddp_rnic::{CompletionQueue, ConnectRequest, Rnic};

use super::Server;
use super::startups::Entry;
use crate::greeting::Hello;
use crate::tasks::{Hub, PER_CONNECTION, Tasks};

/// A client that has asked for a connection, and the device that it has come by.
pub(super) struct Newcomer {
    pub(super) rnic: Rnic,
    pub(super) request: ConnectRequest,
    pub(super) hello: Hello,
    pub(super) host: Option<IpAddr>,
    pub(super) entry: Entry,
}

pub(super) struct Workers {
    server: Arc<Server>,
    list: Vec<Worker>,
    most: usize,
}

pub(super) struct Worker {
    cq: CompletionQueue,
    door: Arc<Door>,
}

/// Clients on their way to a thread, and how many it has.
#[derive(Default)]
struct Door(Mutex<(Vec<Newcomer>, usize)>);

impl Workers {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        let most = thread::available_parallelism().map_or(1, usize::from);
        Workers { server: server.clone(), list: Vec::new(), most }
    }

    /// Returns the thread for the next client, which has come by this device. Fails if there is
    /// none, and none can be made.
    pub(super) fn next(&mut self, rnic: &Rnic) -> io::Result<&Worker> {
        let is_worth_another = self.list.iter().all(|worker| worker.door.load() > 0);
        if is_worth_another
            && self.list.len() < self.most
            && let Err(error) = self.start(rnic)
            && self.list.is_empty()
        {
            return Err(error);
        }
        let worker = self.list.iter().min_by_key(|worker| worker.door.load());
        worker.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Starts a thread, whose completion queue is one for all devices, which are open beside this
    /// one.
    fn start(&mut self, rnic: &Rnic) -> io::Result<()> {
        let cq = rnic.create_cq(PER_CONNECTION).map_err(io::Error::other)?;
        let (door, server, rnic) = (Arc::<Door>::default(), self.server.clone(), rnic.clone());
        let worker = Worker { cq: cq.clone(), door: door.clone() };
        threads::start((), move |()| work(&server, &Hub::on(&rnic, cq), &door))
            .map_err(|((), error)| error)?;
        self.list.push(worker);
        Ok(())
    }
}

impl Worker {
    /// Gives a client to the thread.
    pub(super) fn take(&self, newcomer: Newcomer) {
        self.door.enter(newcomer);
        self.cq.wake();
    }
}

impl Door {
    fn locked(&self) -> std::sync::MutexGuard<'_, (Vec<Newcomer>, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many clients the thread has.
    fn load(&self) -> usize {
        self.locked().1
    }

    fn enter(&self, newcomer: Newcomer) {
        let mut locked = self.locked();
        locked.0.push(newcomer);
        locked.1 += 1;
    }

    /// Takes the clients that have come. `present` is how many the thread has without them.
    fn admit(&self, present: usize) -> Vec<Newcomer> {
        let mut locked = self.locked();
        locked.1 = present + locked.0.len();
        std::mem::take(&mut locked.0)
    }

    fn is_empty(&self) -> bool {
        self.locked().0.is_empty()
    }
}

/// Serves clients until the server is stopped and none is left.
fn work(server: &Server, hub: &Rc<Hub>, door: &Door) {
    let mut tasks = Tasks::default();
    loop {
        for newcomer in door.admit(tasks.len()) {
            tasks.add(server.serve(hub.clone(), newcomer));
        }
        if signals::stopped() && tasks.len() == 0 {
            return;
        }
        if let Err(failure) = tasks.turn(hub, || !door.is_empty()) {
            // Some time passes: descriptors may be closed meanwhile.
            server.warnings.cannot_wait(&failure);
            thread::sleep(signals::CHECK_INTERVAL);
        }
    }
}
