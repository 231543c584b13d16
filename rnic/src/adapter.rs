//! The parts of a device that its connections work with: memory, the background thread, budgets.
//! What finds connections by number or by address is in [`device`](crate::device).

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use rddp_verbs_device::DeviceError;

use crate::budget::Budget;
use crate::conn::linger::LingerSet;
use crate::event::{EventQueue, EventSink};
use crate::io::driver::Driver;
use crate::io::readers::Readers;
use crate::kernel::Kernel;
use crate::mem::{HostDevice, MemTable};
use crate::stat::StatFile;

/// Time that dropping the last user waits for connections without a QP.
const LEAVE: Duration = Duration::from_secs(1);

pub(crate) struct Adapter {
    pub(crate) driver: Arc<Driver>,
    /// Held for as long as the background thread is needed: by devices beside this one, too.
    pub(crate) running: Arc<Running>,
    pub(crate) readers: Readers,
    /// The device of the host that moves the octets, if it is not this library that does. Its
    /// registrations end before the memory of the table does.
    pub(crate) host: Option<HostDevice>,
    pub(crate) mem: MemTable,
    pub(crate) kernel: Option<Arc<Kernel>>,
    pub(crate) events: EventQueue,
    pub(crate) event_sink: Option<Arc<dyn EventSink>>,
    /// Octets of partial FPDUs.
    pub(crate) partial: Budget,
    /// Octets of Responses that are promised to TCP and not taken yet.
    pub(crate) promised: Budget,
    /// Connections whose QP is gone.
    pub(crate) lingering: Arc<LingerSet>,
    /// Connections that were rejected.
    pub(crate) rejected: Arc<LingerSet>,
    /// Datagrams that were dropped for their `Q_Key`.
    pub(crate) qkey_violations: AtomicU32,
    /// Counts of the QPs, where other processes can read them.
    pub(crate) stat: Arc<StatFile>,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").finish_non_exhaustive()
    }
}

impl Adapter {
    /// Refuses what this library has and devices of the host have not.
    pub(crate) fn only_software(&self, what: &'static str) -> Result<(), DeviceError> {
        self.host.as_ref().map_or(Ok(()), |host| Err(host.lacks(what)))
    }

    /// Waits until the peers of connections without a QP have closed, for at most `limit`.
    pub(crate) fn linger(&self, limit: Duration) {
        let until = Instant::now() + limit;
        self.lingering.wait(&self.driver, until);
        self.rejected.wait(&self.driver, until);
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.linger(LEAVE);
    }
}

/// The background thread of devices that are beside each other, which ends with the last of them.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Arc<Driver>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}
