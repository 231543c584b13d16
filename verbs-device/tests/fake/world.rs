//! Devices, and what has been made of them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rddp_verbs_layout::{Plain, device, ibv_context, ibv_context_ops, ibv_device};

use crate::queues::{Events, Queue};
use crate::quirk;
use crate::shared::Shared;
use crate::windows::Window;
use crate::wire::Pair;

/// The device that another one is like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// iWARP in software.
    Siw,
    /// RoCE in software.
    Rxe,
    /// InfiniBand in hardware.
    Adapter,
}

pub(crate) struct Device {
    pub(crate) kind: Kind,
    pub(crate) quirks: u32,
    pub(crate) is_cut: bool,
    pub(crate) port_taken: bool,
    /// Looks for completions.
    pub(crate) looks: u32,
    /// Kinds of events, and the addresses of what they are about.
    pub(crate) events: Events<(u32, usize)>,
    /// Messages that take a shared receive stop half-way.
    pub(crate) stalls: bool,
    /// Address of an `ibv_context`.
    pub(crate) context: usize,
}

impl Device {
    pub(crate) fn new(name: &[u8], kind: Kind, quirks: u32) -> Self {
        let events = Events::new().expect("a descriptor for a device");
        let mut c = ibv_device::zeroed();
        (c.node_type, c.transport_type) = match kind {
            Kind::Siw => (device::NODE_RNIC, device::TRANSPORT_IWARP),
            Kind::Rxe | Kind::Adapter => (device::NODE_CA, device::TRANSPORT_IB),
        };
        for (to, from) in c.name.iter_mut().zip(name) {
            *to = *from as _;
        }
        let context = Box::new(ibv_context {
            device: Box::leak(Box::new(c)),
            ops: OPS,
            cmd_fd: -1,
            async_fd: events.fd,
            num_comp_vectors: 1,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: usize::MAX,
        });
        let context = Box::into_raw(context).expose_provenance();
        let port_taken = quirks & quirk::PORT_TAKEN != 0;
        Device { kind, quirks, is_cut: false, port_taken, events, stalls: false, looks: 0, context }
    }

    pub(crate) fn has(&self, quirk: u32) -> bool {
        self.quirks & quirk != 0
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.kind == Kind::Siw
    }

    pub(crate) fn max_inline(&self) -> u32 {
        match self.kind {
            Kind::Siw => 64,
            Kind::Rxe => 512,
            Kind::Adapter => 0,
        }
    }

    pub(crate) fn max_requests(&self) -> u32 {
        if self.has(quirk::SHORT) { 8 } else { 1 << 14 }
    }

    pub(crate) fn max_pieces(&self) -> u32 {
        if self.is_iwarp() { 6 } else { 32 }
    }
}

const OPS: ibv_context_ops = ibv_context_ops {
    empty_0: [None; 7],
    alloc_mw: crate::windows::alloc_mw,
    bind_mw: crate::windows::bind_mw,
    dealloc_mw: crate::windows::dealloc_mw,
    empty_10: [None],
    poll_cq: crate::queues::poll_cq,
    req_notify_cq: crate::queues::req_notify_cq,
    empty_13: [None; 7],
    post_srq_recv: crate::shared::post_srq_recv,
    empty_21: [None; 4],
    post_send: crate::wire::post_send,
    post_recv: crate::wire::post_recv,
    empty_27: [None; 5],
};

/// A region.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) device: usize,
    /// Requests and peers of its queue pairs alone reach it.
    pub(crate) domain: usize,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) flags: u32,
}

/// An id of the connection manager.
pub(crate) struct Id {
    pub(crate) device: Option<usize>,
    pub(crate) channel: usize,
    pub(crate) pair: Option<usize>,
    /// The id of the other end.
    pub(crate) peer: Option<usize>,
    pub(crate) port: Option<u16>,
    pub(crate) to: Option<SocketAddr>,
    /// A peer waits for an answer.
    pub(crate) is_asked: bool,
    /// There is a connection, which this end has not ended.
    pub(crate) is_connected: bool,
    /// Depths that this end has asked for: Reads that it answers, and that it asks for.
    pub(crate) depths: (u8, u8),
    pub(crate) unacknowledged: usize,
    pub(crate) retries: u8,
}

/// An event of the connection manager.
#[derive(Clone, Default)]
pub(crate) struct CmEvent {
    pub(crate) id: usize,
    pub(crate) listener: usize,
    pub(crate) kind: u32,
    pub(crate) status: i32,
    pub(crate) private_data: Vec<u8>,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// All objects, by the addresses at which C programs know them; regions by their keys.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) devices: Vec<Device>,
    pub(crate) channels: HashMap<usize, Events<usize>>,
    pub(crate) queues: HashMap<usize, Queue>,
    pub(crate) pairs: HashMap<usize, Pair>,
    pub(crate) shared: HashMap<usize, Shared>,
    pub(crate) regions: HashMap<u32, Region>,
    pub(crate) windows: HashMap<u32, Window>,
    pub(crate) cm_channels: HashMap<usize, Events<CmEvent>>,
    pub(crate) ids: HashMap<usize, Id>,
    pub(crate) listeners: HashMap<(usize, u16), usize>,
    /// Lists of devices that a program has.
    pub(crate) lists: u32,
    /// Private data of events that a program has.
    pub(crate) taken: HashMap<usize, (usize, Vec<u8>)>,
    last: u32,
    /// The devices that the process's environment asks for are there.
    has_asked_for: bool,
}

impl World {
    /// Returns a number that nothing has yet.
    pub(crate) fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// Makes the devices that the variable `FAKE_DEVICES` asks for, such as `siw0=0,rxe0=1`, with
    /// quirks as in `siw0=0:4`: of a program that knows nothing of fake ones. One whose number is
    /// written to the FIFO that `FAKE_REMOVALS` names is removed.
    pub(crate) fn make_asked_for(&mut self) {
        if std::mem::replace(&mut self.has_asked_for, true) {
            return;
        }
        let asked = std::env::var("FAKE_DEVICES").unwrap_or_default();
        for (name, kind) in asked.split(',').filter_map(|device| device.split_once('=')) {
            let (kind, quirks) = kind.split_once(':').unwrap_or((kind, "0"));
            let kind = [Kind::Siw, Kind::Rxe, Kind::Adapter][kind.parse::<usize>().expect("a kind")];
            self.devices.push(Device::new(name.as_bytes(), kind, quirks.parse().expect("quirks")));
        }
        if let Some(removals) = std::env::var_os("FAKE_REMOVALS") {
            thread::spawn(move || {
                while let Ok(number) = std::fs::read_to_string(&removals) {
                    world().remove(number.trim().parse().expect("a number"));
                }
            });
        }
    }

    pub(crate) fn device_at(&self, address: IpAddr) -> Option<usize> {
        let IpAddr::V4(address) = address else { return None };
        let [127, number, ..] = address.octets() else { return None };
        // Behind 127.255 comes 127.1.
        let number = match usize::from(number) {
            0 => return None,
            number @ 100.. => number - 100,
            number => number + 155,
        };
        Some(number).filter(|number| *number < self.devices.len())
    }

    pub(crate) fn device_of(&self, context: usize) -> usize {
        self.devices.iter().position(|device| device.context == context).expect("a context of ours")
    }

    pub(crate) fn receives_of(&self, device: usize) -> usize {
        let own = self.pairs.values().filter(|pair| pair.device == device).map(|pair| pair.receives.len());
        let shared = self.shared.values().filter(|queue| queue.device == device);
        own.chain(shared.map(|queue| queue.receives.len())).sum()
    }

    /// Requests that have not been acknowledged.
    pub(crate) fn sends_of(&self, device: usize) -> usize {
        let pairs = self.pairs.values().filter(|pair| pair.device == device);
        pairs.map(|pair| pair.outgoing.len() + pair.pending.len()).sum()
    }

    pub(crate) fn objects_of(&self, device: usize) -> usize {
        self.ids.values().filter(|id| id.device == Some(device)).count()
            + self.pairs.values().filter(|pair| pair.device == device).count()
            + self.shared.values().filter(|queue| queue.device == device).count()
            + self.queues.values().filter(|queue| queue.device == device).count()
            + self.regions.values().filter(|region| region.device == device).count()
            + self.windows.values().filter(|window| window.device == device).count()
    }
}

pub(crate) fn world() -> MutexGuard<'static, World> {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process, since the program has done what would block it for ever with a real library.
pub(crate) fn blocked(why: &str) -> ! {
    eprintln!("fake libibverbs: a real library would wait for ever: {why}");
    std::process::abort()
}

static SILENCE: (Mutex<bool>, Condvar) = (Mutex::new(true), Condvar::new());

/// Waits as for a host that is silent.
pub(crate) fn be_silent() {
    let held = SILENCE.0.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = SILENCE.1.wait_timeout_while(held, Duration::from_secs(120), |is_silent| *is_silent);
}

pub(crate) fn end_silence() {
    *SILENCE.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
    SILENCE.1.notify_all();
}

/// Sets errno, and returns -1.
pub(crate) fn fail(number: i32) -> i32 {
    // SAFETY: this thread's own errno.
    unsafe { *libc::__errno_location() = number };
    -1
}

/// Sets errno, and returns NULL.
pub(crate) fn null<T>(number: i32) -> *mut T {
    fail(number);
    std::ptr::null_mut()
}
