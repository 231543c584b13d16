//! Completion channels and queues.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use rddp_verbs_layout::{Plain, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};

use crate::quirk;
use crate::world::{World, blocked, fail, null, world};

/// Events behind a descriptor.
pub(crate) struct Events<T> {
    pub(crate) fd: c_int,
    queue: VecDeque<T>,
}

impl<T> Events<T> {
    /// Makes an empty queue; `None` where there is no descriptor, with errno.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK) };
        (fd != -1).then(|| Events { fd, queue: VecDeque::new() })
    }

    pub(crate) fn push(&mut self, event: T) {
        self.queue.push_back(event);
        // SAFETY: writes a number to a descriptor of ours.
        unsafe { libc::write(self.fd, (&raw const ONE).cast(), 8) };
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let event = self.queue.pop_front()?;
        let mut token = 0_u64;
        // SAFETY: reads a number from a descriptor of ours.
        unsafe { libc::read(self.fd, (&raw mut token).cast(), 8) };
        Some(event)
    }

    /// Takes the events that fit.
    pub(crate) fn take(&mut self, fits: impl Fn(&T) -> bool) -> Vec<T> {
        let all: Vec<T> = std::iter::from_fn(|| self.pop()).collect();
        let (taken, left) = all.into_iter().partition(fits);
        for event in left {
            self.push(event);
        }
        taken
    }
}

static ONE: u64 = 1;

impl<T> Drop for Events<T> {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours.
        unsafe { libc::close(self.fd) };
    }
}

/// A completion, and how many requests of its send queue have their places free behind it.
pub(crate) struct Entry {
    pub(crate) wc: ibv_wc,
    pub(crate) frees: Option<(usize, u64)>,
}

pub(crate) struct Queue {
    pub(crate) device: usize,
    channel: usize,
    ready: VecDeque<Entry>,
    /// Completions that come behind the next poll.
    late: VecDeque<Entry>,
    armed: bool,
    unacknowledged: u32,
}

impl World {
    /// Adds a completion. A queue that is armed has an event by it.
    pub(crate) fn complete(&mut self, queue: usize, entry: Entry) {
        let Some(found) = self.queues.get_mut(&queue) else { return };
        let device = &self.devices[found.device];
        if found.armed {
            let to = if device.has(quirk::BEHIND) { &mut found.late } else { &mut found.ready };
            to.push_back(entry);
            self.fire(queue);
        } else if device.has(quirk::LATE) || device.has(quirk::BEHIND) {
            found.late.push_back(entry);
        } else {
            found.ready.push_back(entry);
        }
    }

    fn fire(&mut self, queue: usize) {
        let Some(found) = self.queues.get_mut(&queue) else { return };
        found.armed = false;
        let channel = found.channel;
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.push(queue);
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let Some(events) = Events::new() else { return null_mut() };
    let channel = Box::into_raw(Box::new(ibv_comp_channel { context, fd: events.fd, refcnt: 0 }));
    world().channels.insert(channel.addr(), events);
    channel
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    world().channels.remove(&channel.addr());
    // SAFETY: made by `ibv_create_comp_channel`.
    drop(unsafe { Box::from_raw(channel) });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    _cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    let mut c = ibv_cq_ex::zeroed();
    (c.cq.context, c.cq.channel, c.cq.cqe) = (context, channel, cqe);
    let queue: *mut ibv_cq = Box::into_raw(Box::new(c)).cast();
    let mut world = world();
    let device = world.device_of(context.addr());
    if world.devices[device].has(quirk::NO_QUEUES) {
        // SAFETY: made above.
        drop(unsafe { Box::from_raw(queue.cast::<ibv_cq_ex>()) });
        return null(libc::ENOMEM);
    }
    let (ready, late) = Default::default();
    let made = Queue { device, channel: channel.addr(), ready, late, armed: false, unacknowledged: 0 };
    world.queues.insert(queue.addr(), made);
    queue
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    let mut world = world();
    if world.pairs.values().any(|pair| pair.queue == queue.addr()) {
        return libc::EBUSY;
    }
    if world.queues.remove(&queue.addr()).is_some_and(|queue| queue.unacknowledged > 0) {
        blocked("an event of a completion queue was not acknowledged");
    }
    // SAFETY: made by `ibv_create_cq`.
    drop(unsafe { Box::from_raw(queue.cast::<ibv_cq_ex>()) });
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    context: *mut *mut c_void,
) -> c_int {
    let mut world = world();
    let Some(found) = world.channels.get_mut(&channel.addr()).and_then(Events::pop) else {
        return fail(libc::EAGAIN);
    };
    if let Some(queue) = world.queues.get_mut(&found) {
        queue.unacknowledged += 1;
    }
    // SAFETY: the caller has room for both.
    unsafe {
        queue.write(std::ptr::with_exposed_provenance_mut(found));
        context.write(std::ptr::null_mut());
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, count: u32) {
    if let Some(queue) = world().queues.get_mut(&queue.addr()) {
        queue.unacknowledged -= count;
    }
}

/// Asks for an event by a completion that comes from now on: one that is in the queue causes none.
pub(crate) unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let mut world = world();
    let Some(found) = world.queues.get_mut(&queue.addr()) else { return libc::EINVAL };
    found.ready.append(&mut found.late);
    // As on siw, where no message is solicited.
    found.armed = solicited_only == 0;
    let device = found.device;
    if world.devices[device].has(quirk::IDLE_EVENTS) {
        world.fire(queue.addr());
        if let Some(found) = world.queues.get_mut(&queue.addr()) {
            found.armed = true;
        }
    }
    0
}

pub(crate) unsafe extern "C" fn poll_cq(queue: *mut ibv_cq, max: c_int, to: *mut ibv_wc) -> c_int {
    take_time(queue.addr());
    let mut world = world();
    world.send_late(queue.addr());
    if world.queues.get(&queue.addr()).is_some_and(|queue| queue.ready.is_empty()) {
        world.respond(queue.addr());
    }
    let Some(device) = world.queues.get(&queue.addr()).map(|queue| queue.device) else { return -1 };
    world.devices[device].looks += 1;
    let Some(found) = world.queues.get_mut(&queue.addr()) else { return -1 };
    let count = found.ready.len().min(max as usize);
    let entries: Vec<Entry> = found.ready.drain(..count).collect();
    found.ready.append(&mut found.late);
    for (index, entry) in entries.iter().enumerate() {
        // SAFETY: the caller has room for `max` completions.
        unsafe { to.add(index).write(entry.wc) };
        if let Some((pair, freed)) = entry.frees
            && let Some(pair) = world.pairs.get_mut(&pair)
        {
            pair.freed = pair.freed.max(freed);
        }
    }
    count as c_int
}

/// Keeps a thread that looks for completions, where a quirk asks for that.
fn take_time(queue: usize) {
    let is_slow = {
        let world = world();
        world.queues.get(&queue).is_some_and(|queue| world.devices[queue.device].has(quirk::SLOW_LOOKS))
    };
    if is_slow {
        std::thread::sleep(Duration::from_millis(10));
    }
}
