//! The process's own RNIC, made when it is first needed, and the program's objects by their
//! numbers.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use once_cell::race::OnceBox;
use parking_lot::{Mutex, RwLock};
use rddp_rnic::{Error, MemError, ProtectionDomain, QpState, Rnic, RnicConfig};
use rddp_stream::{Errno, lent};

use super::endpoint::Endpoint;
use super::memory::Registered;
use super::queue::Queue;
use super::shared::Shared;
use crate::placement;

/// The RNIC of one process, and the program's objects on it.
pub(super) struct Adapter {
    pub(super) rnic: Rnic,
    /// `Ok` if the device can place in the kernel, or the errno for those who ask for that.
    pub(super) kernel: Result<(), Errno>,
    /// Protection domains by the program's numbers of them; 0 exists from the beginning.
    pub(super) domains: RwLock<HashMap<c_int, ProtectionDomain>>,
    next_domain: AtomicI32,
    /// Memory regions and windows by the index of their STags, which stays when the key changes.
    pub(super) memory: RwLock<HashMap<u32, Registered>>,
    /// Event queues by their descriptors.
    pub(super) queues: RwLock<HashMap<c_int, Arc<Queue>>>,
    /// Shared receives by the program's numbers of them.
    pub(super) shared: RwLock<HashMap<c_int, Arc<Shared>>>,
    next_shared: AtomicI32,
    /// Endpoints by their sockets' cookies.
    pub(super) endpoints: RwLock<HashMap<u64, Arc<Endpoint>>>,
    /// Endpoints that the program has closed, while TCP still takes a Terminate or a FIN to the
    /// peer.
    lingering: Mutex<Vec<Arc<Endpoint>>>,
}

/// The largest number of processes in a line of descent that may use raw mode, each with an RNIC of
/// its own.
const GENERATIONS: usize = 64;

/// One adapter for each generation: after `fork` the parent's RNIC has no thread, and its locks are
/// in the state in which the fork found them.
static ADAPTERS: [OnceBox<Adapter>; GENERATIONS] = [const { OnceBox::new() }; GENERATIONS];

static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// Moves on to the next adapter in the child of a `fork`: none of the parent's objects is its own.
pub(in crate::kinds) fn after_fork() {
    let generation = GENERATION.load(Ordering::Relaxed);
    if ADAPTERS.get(generation).is_some_and(|adapter| adapter.get().is_some()) {
        GENERATION.store(generation + 1, Ordering::Relaxed);
    }
}

impl Adapter {
    /// Returns this process's adapter, if it has made one.
    pub(super) fn existing() -> Option<&'static Adapter> {
        // The calling thread moves octets of registered memory, which may have been unmapped.
        lent::guard();
        ADAPTERS.get(GENERATION.load(Ordering::Relaxed))?.get()
    }

    /// Returns this process's adapter, and makes it if need be.
    pub(super) fn get() -> Result<&'static Adapter, Errno> {
        lent::guard();
        let place = ADAPTERS.get(GENERATION.load(Ordering::Relaxed)).ok_or(Errno::WOULD_BLOCK)?;
        place.get_or_try_init(|| Self::new().map(Box::new)).map_err(|error| errno_of(&error))
    }

    fn new() -> Result<Self, Error> {
        let (rnic, kernel) = open()?;
        let domains = HashMap::from([(0, rnic.alloc_pd())]);
        Ok(Adapter {
            rnic,
            kernel,
            domains: RwLock::new(domains),
            next_domain: AtomicI32::new(1),
            memory: RwLock::default(),
            queues: RwLock::default(),
            shared: RwLock::default(),
            next_shared: AtomicI32::new(1),
            endpoints: RwLock::default(),
            lingering: Mutex::default(),
        })
    }

    pub(super) fn next_domain(&self) -> c_int {
        self.next_domain.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_shared(&self) -> c_int {
        self.next_shared.fetch_add(1, Ordering::Relaxed)
    }

    /// Keeps an endpoint that the program has closed until its peer has been told. Forgets those
    /// kept earlier whose peers have been.
    pub(super) fn linger(&self, endpoint: Arc<Endpoint>) {
        let mut lingering = self.lingering.lock();
        lingering.push(endpoint);
        let over: Vec<_> = lingering
            .extract_if(.., |endpoint| {
                !matches!(endpoint.qp.state(), QpState::ReadyToSend | QpState::Closing | QpState::Terminate)
            })
            .collect();
        drop(lingering);
        drop(over);
    }
}

/// Opens the device, with placement in the kernel where that is asked for. Where that is refused,
/// programs go on without it.
fn open() -> Result<(Rnic, Result<(), Errno>), Error> {
    // The program's own sockets are connected, which no device of the host does.
    let software = RnicConfig { device: Some(RnicConfig::SOFTWARE.to_owned()), ..RnicConfig::default() };
    let Some(kernel) = placement::of_device() else {
        return Ok((Rnic::with_config(&software)?, Err(Errno::UNSUPPORTED)));
    };
    match Rnic::with_config(&RnicConfig { kernel: Some(kernel), ..software.clone() }) {
        Ok(rnic) => Ok((rnic, Ok(()))),
        // If something else was refused, it will be now.
        Err(error) => Rnic::with_config(&software).map(|rnic| (rnic, Err(placement::refused(&error)))),
    }
}

/// Returns the errno for an object that could not be made.
pub(super) fn errno_of(error: &Error) -> Errno {
    match error {
        Error::Memory(error) => memory_errno(error),
        Error::Host { error, .. } => Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)),
        _ => Errno::INVALID,
    }
}

pub(super) fn memory_errno(error: &MemError) -> Errno {
    match error {
        MemError::Wrap { .. } | MemError::NotMapped { .. } | MemError::OutOfBounds { .. } => Errno::FAULT,
        MemError::NotPermitted { .. } | MemError::OtherPd(_) => Errno(libc::EACCES),
        MemError::Maps(source) | MemError::Os { error: source, .. } => {
            Errno(source.raw_os_error().unwrap_or(libc::EIO))
        }
        MemError::File(source) => Errno(source.raw_os_error().unwrap_or(libc::EINVAL)),
        MemError::Random(_) => Errno(libc::EIO),
        MemError::TooManyStags { .. } => Errno(libc::ENOMEM),
        MemError::WindowsBound { .. } => Errno(libc::EBUSY),
        _ => Errno::INVALID,
    }
}
