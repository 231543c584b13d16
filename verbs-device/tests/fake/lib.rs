//! A libibverbs and librdmacm whose devices play the quirks of real ones, for tests without a
//! kernel's help: one process is both ends of its connections.
//!
//! A test makes a device of its own with [`fake_device`]; for a program that is run, the variable
//! `FAKE_DEVICES` does. Device `n` has the addresses 127.(100 + n).0.0 to 127.(100 + n).255.255;
//! where that is beyond 255, those of 127.(n - 155). At one that ends with 200 there is a host that
//! is silent.
//!
//! | file | subject |
//! |---|---|
//! | `world` | devices, and what has been made of them |
//! | `verbs` | functions of libibverbs |
//! | `queues` | completion queues, and their events |
//! | `wire`, `octets`, `completing` | requests: what is done; their memory; how they complete |
//! | `shared` | shared receive queues |
//! | `manager`, `connecting` | functions of librdmacm: ids and events; connections |
//! | `bare` | a program that calls them, and does nothing beside |
#![allow(unsafe_code)] // functions that C programs call
#![allow(clippy::missing_safety_doc)] // their contracts are those of the manual pages

mod bare;
mod completing;
mod connecting;
mod manager;
mod octets;
mod queues;
mod shared;
mod verbs;
mod windows;
mod wire;
mod world;

use std::ffi::{CStr, c_char, c_int};

use world::{Device, Kind, world};

/// The number of a port, which stands for an address in an event about it.
const PORT: usize = 1;

/// Quirks of a device, as bits.
pub mod quirk {
    /// A completion comes between the last poll and the request for an event.
    pub const LATE: u32 = 1;
    /// Events come without a completion.
    pub const IDLE_EVENTS: u32 = 2;
    /// No more than 64 KiB may be registered.
    pub const LOCKED_MEMORY: u32 = 4;
    /// The process has changed its user.
    pub const CREDENTIALS: u32 = 8;
    /// An acknowledgement takes its time, and so does the end of a queue pair.
    pub const SLOW: u32 = 16;
    /// A request that fails by a fault of this end is told to be flushed, as by rxe in Linux 6.12.
    pub const FLUSHED: u32 = 32;
    /// A request that fails by a fault of this end is told with a number that few devices use.
    pub const STRANGE: u32 = 64;
    /// A queue holds no more than eight requests.
    pub const SHORT: u32 = 128;
    /// The port of the next connection is one that a socket of TCP has.
    pub const PORT_TAKEN: u32 = 256;
    /// A look for completions takes its time, as on a processor that is slow.
    pub const SLOW_LOOKS: u32 = 512;
    /// A signal comes while an address is looked up.
    pub const SIGNAL: u32 = 1024;
    /// Completion queues are more than the process may have of memory.
    pub const NO_QUEUES: u32 = 2048;
    /// A program that disconnects is not told of the end, as by an RNIC whose driver waits for the
    /// peer.
    pub const UNTOLD: u32 = 4096;
    /// There are no shared receive queues.
    pub const UNSHARED: u32 = 8192;
    /// Nothing tells that a queue pair has taken its last shared receive.
    pub const NO_LAST: u32 = 16384;
    /// The first word of an end is lost. The connection manager says it again, as long as there is
    /// the id.
    pub const LOST: u32 = 32768;
    /// Nothing that is sent gets through, nor fails: the peer's window is closed.
    pub const STALLED: u32 = 65536;
    /// Each completion comes just behind a look for it, though an event has told of it.
    pub const BEHIND: u32 = 131_072;
    /// InfiniBand: the passive end is never told that the active one has its reply.
    pub const NO_WORD: u32 = 262_144;
}

/// Makes a device: like siw (0), rxe (1), or an adapter of InfiniBand (2). Returns its number.
///
/// # Safety
/// The name is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device(name: *const c_char, kind: c_int, quirks: u32) -> c_int {
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let kind = [Kind::Siw, Kind::Rxe, Kind::Adapter][kind as usize];
    let mut world = world();
    world.devices.push(Device::new(name, kind, quirks));
    world.devices.len() as c_int - 1
}

/// Cuts the link of a device: nothing arrives any more, and nobody is told.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cut(device: c_int) {
    world().devices[device as usize].is_cut = true;
}

/// Has a device tell of an asynchronous event.
#[unsafe(no_mangle)]
pub extern "C" fn fake_event(device: c_int, kind: u32) {
    world().devices[device as usize].events.push((kind, PORT));
}

/// Has messages that take a shared receive of a device stop half-way, or go on.
#[unsafe(no_mangle)]
pub extern "C" fn fake_stall(device: c_int, stalls: c_int) {
    world().stall(device as usize, stalls != 0);
}

/// Takes a device away, of which all its ids are told.
#[unsafe(no_mangle)]
pub extern "C" fn fake_remove(device: c_int) {
    world().remove(device as usize);
}

/// Lets calls return that wait for a silent host.
#[unsafe(no_mangle)]
pub extern "C" fn fake_end_silence() {
    world::end_silence();
}

/// Returns how many receives the queue pairs of a device have, and its shared queues.
#[unsafe(no_mangle)]
pub extern "C" fn fake_receives(device: c_int) -> c_int {
    world().receives_of(device as usize) as c_int
}

/// Returns how many requests of the queue pairs of a device have not been acknowledged.
#[unsafe(no_mangle)]
pub extern "C" fn fake_sends(device: c_int) -> c_int {
    world().sends_of(device as usize) as c_int
}

/// Returns how many lists of devices have not been freed.
#[unsafe(no_mangle)]
pub extern "C" fn fake_lists() -> c_int {
    world().lists as c_int
}

/// Returns how often programs have looked for completions of a device.
#[unsafe(no_mangle)]
pub extern "C" fn fake_looks(device: c_int) -> c_int {
    world().devices[device as usize].looks as c_int
}

/// Returns how many objects are left: ids, queue pairs, completion and shared
/// receive queues, and regions.
#[unsafe(no_mangle)]
pub extern "C" fn fake_objects(device: c_int) -> c_int {
    world().objects_of(device as usize) as c_int
}
