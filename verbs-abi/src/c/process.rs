//! State of a process that its child after `fork` has not: objects, and engines at work.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rddp_fault_guard::fork::Origin;
use rddp_fault_guard::sockets;

use super::abi::ibv_pd;
use super::context::Context;
use super::handle::{Handles, Object, publish};
use super::memory::Pd;
use super::queue_pair::Qp;
use super::rsocket::Sockets;
use crate::device::Device;
use crate::engine::Engine;
use crate::errors::Outcome;
use crate::ports::{Joins, Place, Ports};

/// The state of one process.
#[derive(Debug)]
pub(super) struct Process {
    origin: Origin,
    pub(super) handles: Handles,
    /// Engines by the names of their devices.
    engines: Mutex<HashMap<&'static str, Arc<Engine>>>,
    /// Protection domains, by the names of their devices, for ids whose programs name none.
    default_pds: Mutex<HashMap<&'static str, Arc<Pd>>>,
    /// Queue pairs by their devices and numbers, for ids to which programs name them so.
    pairs: Mutex<HashMap<(&'static str, u32), Weak<Qp>>>,
    pub(super) sockets: Sockets,
    ports: Ports,
}

static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Returns the state of this process. A child of `fork` begins with an empty one: what it has
/// inherited is not touched, since a thread that it does not have may hold locks of it.
pub(super) fn process() -> &'static Process {
    let found = CURRENT.load(Ordering::Acquire);
    // SAFETY: null, or made by `begin`, which never frees one.
    match unsafe { found.as_ref() } {
        Some(process) if process.origin.is_here() => process,
        _ => begin(found),
    }
}

/// Makes the state of this process, unless another thread has done so.
fn begin(inherited: *mut Process) -> &'static Process {
    sockets::close_inherited();
    let (handles, engines, default_pds, pairs, sockets, ports) = Default::default();
    let origin = Origin::here();
    let fresh =
        Box::into_raw(Box::new(Process { origin, handles, engines, default_pds, pairs, sockets, ports }));
    let current = match CURRENT.compare_exchange(inherited, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(other) => {
            // SAFETY: nobody else has seen `fresh`.
            drop(unsafe { Box::from_raw(fresh) });
            other
        }
    };
    // SAFETY: made by this function, in this thread or another, and not freed.
    unsafe { &*current }
}

/// Time that a process which ends leaves its peers to take what was sent.
const LEAVE: Duration = Duration::from_secs(1);

/// Lets connections end in order whose queue pairs the program has destroyed before it ends: a
/// socket that is closed with octets unread is reset, and with it is lost what the peer has not
/// read.
extern "C" fn at_exit() {
    // A child of `fork` has inherited the handler, and no engine.
    let engines: Vec<_> = process().engines.lock().values().cloned().collect();
    engines.iter().for_each(|engine| engine.rnic.linger(LEAVE));
}

/// Closes a child's copies of the connections and listeners of its parent. The child cannot use
/// them, and if it has them for long, peers do not learn that the parent has left, and its ports
/// stay taken.
extern "C" fn in_child() {
    sockets::close_inherited();
}

impl Process {
    /// Returns the engine of a device, which starts with the first object that needs it.
    pub(super) fn engine(&self, device: &'static str) -> Outcome<Arc<Engine>> {
        let mut engines = self.engines.lock();
        if let Some(engine) = engines.get(device) {
            return Ok(engine.clone());
        }
        let engine = Engine::start()?;
        // SAFETY: functions of this library, which is never unloaded. If there is no room for one,
        // the end is as abrupt as without; a child closes its copies when it first calls us.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(in_child));
        }
        engines.insert(device, engine.clone());
        Ok(engine)
    }

    /// Returns the datagrams of a device that were dropped for their `Q_Key`.
    pub(super) fn qkey_violations(&self, device: &'static str) -> u32 {
        self.engines.lock().get(device).map_or(0, |engine| engine.rnic.qkey_violations())
    }

    /// Returns the protection domain for ids whose programs name none.
    pub(super) fn default_pd(&self, device: &'static str, context: &'static Context) -> Outcome<*mut ibv_pd> {
        let mut pds = self.default_pds.lock();
        if let Some(pd) = pds.get(device) {
            return Ok(pd.handle());
        }
        let pd = Pd::new(context)?;
        pds.insert(device, pd.clone());
        Ok(publish(&pd))
    }

    /// Returns a place at a port for a queue pair of a device with this address.
    pub(super) fn place(
        &self,
        device: &'static Device,
        address: IpAddr,
        engine: &Arc<Engine>,
    ) -> Outcome<Place> {
        let find = |device, number| Some(process().pair(device, number)? as Arc<dyn Joins>);
        self.ports.place(device, address, engine, find)
    }

    pub(super) fn add_pair(&self, qp: &Arc<Qp>) {
        self.pairs.lock().insert(qp.key(), Arc::downgrade(qp));
    }

    pub(super) fn remove_pair(&self, qp: &Qp) {
        self.pairs.lock().remove(&qp.key());
    }

    pub(super) fn all_pairs(&self) -> Vec<Arc<Qp>> {
        self.pairs.lock().values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn pair(&self, device: &'static str, num: u32) -> Option<Arc<Qp>> {
        self.pairs.lock().get(&(device, num)).and_then(Weak::upgrade)
    }
}
