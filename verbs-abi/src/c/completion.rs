//! Completion channels and completion queues.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use parking_lot::Mutex;
use rddp_rnic::{Completion, CompletionChannel, CompletionQueue, CqNum};

use super::abi::{Plain, event, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc, wc_flags};
use super::border::{given, minus, number, pointer};
use super::cancel::cancellable;
use super::context::{Context, context};
use super::gate::pass;
use super::handle::{
    Held, Object, Shared, Unacknowledged, Used, Users, await_sole, find, find_if, find_unused, follow,
    publish, retire_unused,
};
use super::{immediate, signals, unreliable};
use crate::errors::{Outcome, of_device, of_io};
use crate::fifo::{is_nonblocking, make_blocking};
use crate::refusal::because;
use crate::words::{opcode_of, status_of};

/// Time for which a thread that waits for an event reads the sockets itself.
const IN_CALL: Duration = Duration::from_millis(20);

/// Time for which a descriptor that blocks is taken to go on blocking: to look takes a system call,
/// and programs change it before their first event, if ever. One that does so later may sleep for
/// that time, once.
const BLOCKS: Duration = Duration::from_millis(10);

/// Knowledge of a descriptor's `O_NONBLOCK`, which the program sets and clears as it likes.
#[derive(Debug, Default)]
struct Blocking {
    /// The moment up to which it is taken to be clear, as it was at the last look.
    until: Option<Instant>,
    /// The program has set it after it was clear: it may do so again.
    changes: bool,
}

/// A completion channel.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Channel {
    c: Shared<ibv_comp_channel>,
    channel: CompletionChannel,
    queues: Mutex<HashMap<CqNum, Weak<Cq>>>,
    users: Users,
    blocking: Mutex<Blocking>,
}

// SAFETY: `repr(C)`, and the first field is an `ibv_comp_channel`.
unsafe impl Object for Channel {
    type C = ibv_comp_channel;
}

impl Used for Channel {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Channel {
    pub(super) fn new(context: &'static Context) -> Outcome<Arc<Channel>> {
        let channel = context.engine()?.rnic.create_channel().map_err(of_device)?;
        make_blocking(channel.as_fd())?;
        // A program may sleep on the descriptor at any time, and says nothing before.
        let fd = channel.watch().as_raw_fd();
        let c = ibv_comp_channel { context: context.handle(), fd, refcnt: 0 };
        let (queues, users, blocking) = Default::default();
        Ok(Arc::new(Channel { c: Shared::new(c), channel, queues, users, blocking }))
    }

    /// Takes the oldest event that a queue has sent which the program still has.
    fn next_event(&self) -> Option<Arc<Cq>> {
        self.channel.events().find_map(|queue| self.known(&queue))
    }

    fn known(&self, queue: &CompletionQueue) -> Option<Arc<Cq>> {
        self.queues.lock().get(&queue.num()).and_then(Weak::upgrade)
    }

    /// Takes the oldest event; sleeps until there is one, unless the descriptor is non-blocking.
    ///
    /// At first the thread reads the sockets itself, and so is quick; it cannot be cancelled
    /// meanwhile. A thread that sleeps for longer may be, so that nothing here has a destructor
    /// then that must run. Either sleep is ended by a signal as `read(2)` is.
    fn event(&self) -> Outcome<Arc<Cq>> {
        if let Some(cq) = self.next_event() {
            return Ok(cq);
        }
        if !signals::are_mixed()
            && let Some(cq) = self.event_in_call()?
        {
            return Ok(cq);
        }
        loop {
            let queue = cancellable(|| self.channel.read_event()).map_err(|error| of_io(&error))?;
            if let Some(cq) = self.known(&queue) {
                return Ok(cq);
            }
        }
    }
}

impl Channel {
    /// Waits for an event in this thread, unless the descriptor is non-blocking.
    fn event_in_call(&self) -> Outcome<Option<Arc<Cq>>> {
        let now = Instant::now();
        let known = self.blocking.lock().until.and_then(|until| until.checked_duration_since(now));
        if let Some(cq) = known.map_or(Ok(None), |time| self.wait(time))? {
            return Ok(Some(cq));
        }
        let is_nonblocking = is_nonblocking(self.channel.as_fd())?;
        let mut blocking = self.blocking.lock();
        if is_nonblocking {
            blocking.changes |= blocking.until.take().is_some();
            return Ok(None);
        }
        blocking.until = (!blocking.changes).then(|| Instant::now() + BLOCKS);
        drop(blocking);
        self.wait(IN_CALL)
    }

    fn wait(&self, time: Duration) -> Outcome<Option<Arc<Cq>>> {
        match self.channel.wait_or_signal(Some(time)) {
            Ok(queue) => Ok(queue.and_then(|queue| self.known(&queue))),
            Err(error) if error.kind() == ErrorKind::Interrupted && signals::end_calls() => Err(Errno::EINTR),
            Err(_) => Ok(None),
        }
    }
}

/// A completion queue.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Cq {
    c: Shared<ibv_cq_ex>,
    pub(super) queue: CompletionQueue,
    pub(super) context: &'static Context,
    channel: Option<Held<Channel>>,
    users: Users,
    pub(super) events: Unacknowledged,
    /// The program was told of an overflow.
    failed: AtomicBool,
    /// The completion that a program of an extended queue reads.
    pub(super) current: Mutex<ibv_wc>,
}

// SAFETY: `repr(C)`, and the first field begins with an `ibv_cq`.
unsafe impl Object for Cq {
    type C = ibv_cq;
}

impl Used for Cq {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Cq {
    pub(super) fn new(
        context: &'static Context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: Option<Arc<Channel>>,
    ) -> Outcome<Arc<Cq>> {
        let none = || because(Errno::EINVAL, "a completion queue has one place at least");
        let capacity = usize::try_from(cqe).ok().filter(|capacity| *capacity > 0).ok_or_else(none)?;
        let rnic = &context.engine()?.rnic;
        let queue = match &channel {
            Some(channel) => rnic.create_cq_on(&channel.channel, capacity),
            None => rnic.create_cq(capacity),
        };
        let queue = queue.map_err(of_device)?;
        let mut c = ibv_cq_ex::zeroed();
        c.cq.context = context.handle();
        c.cq.cq_context = cq_context;
        c.cq.cqe = cqe;
        c.cq.channel = channel.as_ref().map_or(std::ptr::null_mut(), |channel| channel.handle());
        let channel = channel.map(Held::new);
        let cq = Arc::new(Cq {
            c: Shared::new(c),
            queue,
            context,
            channel,
            users: Users::default(),
            events: Unacknowledged::default(),
            failed: AtomicBool::new(false),
            current: Mutex::default(),
        });
        if let Some(channel) = &cq.channel {
            channel.queues.lock().insert(cq.queue.num(), Arc::downgrade(&cq));
        }
        Ok(cq)
    }

    /// Takes the oldest completion: `ENOENT` if there is none, and `EIO` if there will be none any
    /// more.
    pub(super) fn take(&self) -> Outcome<ibv_wc> {
        let none = || if self.queue.is_overflowed() { Errno::EIO } else { Errno::ENOENT };
        self.queue.poll_one().map(|completion| entry(&completion, self.is_ipv4())).ok_or_else(none)
    }

    fn is_ipv4(&self) -> bool {
        self.context.device.device.roce.is_some_and(|address| address.is_ipv4())
    }

    /// Tells the program once that more completions came than the queue holds.
    pub(super) fn report_overflow(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.context.report(self.handle(), event::CQ_ERR);
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.queues.lock().remove(&self.queue.num());
        }
    }
}

pub(super) extern "C" fn ibv_create_comp_channel(handle: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(
        "ibv_create_comp_channel",
        context(handle).and_then(Channel::new).map(|channel| publish(&channel)),
    )
}

pub(super) extern "C" fn ibv_destroy_comp_channel(handle: *mut ibv_comp_channel) -> c_int {
    number("ibv_destroy_comp_channel", retire_unused::<Channel>(handle).map(drop))
}

pub(super) extern "C" fn ibv_create_cq(
    handle: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    if vector != 0 {
        return pointer(
            "ibv_create_cq",
            Err(because(Errno::EINVAL, "the device has completion vector 0 alone")),
        );
    }
    let cq = context(handle).and_then(|context| Cq::new(context, cqe, cq_context, find_if(channel)?));
    pointer("ibv_create_cq", cq.map(|cq| publish(&cq)))
}

/// Destroys a queue once the program has acknowledged all its events.
pub(super) extern "C" fn ibv_destroy_cq(handle: *mut ibv_cq) -> c_int {
    number(
        "ibv_destroy_cq",
        find_unused::<Cq>(handle).and_then(|cq| {
            cq.context.forget(handle);
            // Threads that acknowledge events find the queue until then.
            cq.events.wait();
            drop(retire_unused::<Cq>(handle)?);
            await_sole(&cq);
            Ok(())
        }),
    )
}

fn resize(handle: *mut ibv_cq, cqe: c_int) -> Outcome<()> {
    let (cq, capacity) =
        (find::<Cq>(handle)?, usize::try_from(cqe).map_err(|_| because(Errno::EINVAL, "a negative length"))?);
    cq.queue.resize(capacity).map_err(of_device)?;
    // SAFETY: a field of our own object, which programs only read.
    unsafe { (*cq.handle()).cqe = cqe };
    Ok(())
}

pub(super) extern "C" fn ibv_resize_cq(handle: *mut ibv_cq, cqe: c_int) -> c_int {
    number("ibv_resize_cq", resize(handle, cqe))
}

/// # Safety
/// Pointers can be stored at `cq` and `cq_context`.
unsafe fn take_event(
    handle: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> Outcome<()> {
    let (cq, cq_context) = (given(cq)?, given(cq_context)?);
    // The channel stays for as long as a thread sleeps here, also where another destroys it. A
    // thread that is cancelled leaves it behind.
    let channel = find::<Channel>(handle)?;
    let found = channel.event()?;
    found.events.given();
    // SAFETY: promised by the caller; the queue is still there.
    unsafe {
        cq.write(found.handle());
        cq_context.write((*found.c.get()).cq.cq_context);
    }
    Ok(())
}

pub(super) unsafe extern "C-unwind" fn ibv_get_cq_event(
    handle: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the function's contract.
    minus("ibv_get_cq_event", unsafe { take_event(handle, cq, cq_context) })
}

pub(super) extern "C" fn ibv_ack_cq_events(handle: *mut ibv_cq, events: u32) {
    // A queue that is being destroyed is no longer found by its handle, and its events are still
    // to be acknowledged.
    // SAFETY: the program has the queue, or waits for its end in another thread.
    if let Ok(cq) = unsafe { follow::<Cq>(handle) } {
        cq.events.acknowledge(u64::from(events));
    }
}

pub(super) unsafe extern "C" fn req_notify_cq(handle: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let verb = "ibv_req_notify_cq";
    // SAFETY: the function's contract.
    let cq = pass(verb).and_then(|()| unsafe { follow::<Cq>(handle) });
    number(verb, cq.map(|cq| cq.queue.arm_next(solicited_only != 0)))
}

thread_local! {
    /// Completions on their way to a program that asks for several.
    static POLLED: RefCell<Vec<Completion>> = const { RefCell::new(Vec::new()) };
}

pub(super) unsafe extern "C" fn poll_cq(handle: *mut ibv_cq, max: c_int, to: *mut ibv_wc) -> c_int {
    // SAFETY: the function's contract.
    let Ok(cq) = pass("ibv_poll_cq").and_then(|()| unsafe { follow::<Cq>(handle) }) else { return -1 };
    let polled = match max {
        1 => cq.queue.poll_one().map_or(0, |completion| {
            // SAFETY: the program has room for one completion.
            unsafe { to.write(entry(&completion, cq.is_ipv4())) };
            1
        }),
        max => POLLED.with_borrow_mut(|polled| {
            polled.clear();
            cq.queue.poll(usize::try_from(max).unwrap_or(0), polled);
            for (index, completion) in polled.iter().enumerate() {
                // SAFETY: the program has room for `max` completions, and these are no more.
                unsafe { to.add(index).write(entry(completion, cq.is_ipv4())) };
            }
            polled.len() as c_int
        }),
    };
    // A queue that has overflowed gets no more.
    if polled == 0 && cq.queue.is_overflowed() { -1 } else { polled }
}

/// Returns a completion as programs know it. Datagrams are of a device with an address of IPv4, or
/// with one of IPv6.
fn entry(completion: &Completion, is_ipv4: bool) -> ibv_wc {
    let mut entry = ibv_wc {
        wr_id: completion.wr_id,
        status: status_of(completion.status),
        opcode: opcode_of(completion.completed),
        byte_len: completion.byte_len,
        qp_num: completion.qp.0,
        ..ibv_wc::default()
    };
    if let Some(source) = completion.source {
        unreliable::note(source, completion, is_ipv4, &mut entry);
    } else if let Some(data) = completion.immediate {
        immediate::note(data, &mut entry);
    }
    if let Some(stag) = completion.invalidated {
        entry.wc_flags |= wc_flags::WITH_INV;
        entry.imm_data = stag.0;
    }
    entry
}
