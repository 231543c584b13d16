//! Calls that wait until a descriptor is ready.

use std::ffi::{c_int, c_ulong};
use std::ptr;
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rddp_real::{self as real, Wanted};
use rddp_stream::{Errno, lent};
use rddp_switch::{gate, table, wait};

use crate::hook::{answer, beside};
use crate::signals::asleep;

/// Stands before the C library's `poll`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // A function of its own, so that a program without sockets of ours pays neither a frame nor a
    // return.
    #[cold]
    #[inline(never)]
    unsafe fn with_ours(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: the program's list, as `poll` takes it, and no mask.
        let ours = || unsafe { poll_ours(fds, count, milliseconds(timeout), ptr::null()) };
        // SAFETY: the program's own arguments, passed on unchanged.
        answer(ours).unwrap_or_else(|| unsafe { real::poll(fds, count, timeout) })
    }
    if table::any() {
        // SAFETY: the program's own arguments, passed on unchanged.
        return unsafe { with_ours(fds, count, timeout) };
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::poll(fds, count, timeout) }
}

/// Stands before the C library's `ppoll`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sleep = |mask| {
        // SAFETY: the program's time, list and mask, as `ppoll` takes them.
        let ours = || unsafe { poll_ours(fds, count, nanoseconds(timeout)?, mask) };
        // SAFETY: the program's own arguments, passed on unchanged.
        if_any(ours).unwrap_or_else(|| unsafe { real::ppoll(fds, count, timeout, mask) })
    };
    // SAFETY: `mask` is the program's: null or a set, as in C.
    unsafe { asleep(mask, sleep) }
}

/// Stands before `__poll_chk`, the `poll` of programs built with `_FORTIFY_SOURCE`. A count beyond
/// the list's size is left to the C library, which ends the program.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if fits(count, room) {
        // SAFETY: the program's own arguments, passed on unchanged.
        return unsafe { poll(fds, count, timeout) };
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::__poll_chk(fds, count, timeout, room) }
}

/// Stands before `__ppoll_chk`, the `ppoll` of programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if fits(count, room) {
        // SAFETY: the program's own arguments, passed on unchanged.
        return unsafe { ppoll(fds, count, timeout, mask) };
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::__ppoll_chk(fds, count, timeout, mask, room) }
}

/// Makes a call in which sockets of ours may be, if there are any.
fn if_any(call: impl FnOnce() -> Result<c_int, Errno>) -> Option<c_int> {
    if table::any() { answer(call) } else { None }
}

fn fits(count: nfds_t, room: size_t) -> bool {
    count <= (room / size_of::<pollfd>()) as nfds_t
}

/// Polls a list in which sockets of ours may be.
///
/// # Safety
///
/// As for `ppoll`.
unsafe fn poll_ours(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Result<c_int, Errno> {
    let count = usize::try_from(count).ok().filter(|count| *count <= table::LIMIT).ok_or(Errno::PLAIN)?;
    if fds.is_null() {
        return Err(Errno::PLAIN);
    }
    // SAFETY: the program's list; memory that is not mapped is left to the kernel to refuse.
    unsafe { lent::check_room(fds, count) }.map_err(|_| Errno::PLAIN)?;
    // SAFETY: not null and mapped, as was checked, and the program leaves its list to the call.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    let ready = wait::poll(fds, timeout, |fds, nap| {
        let nap = nap.map(Nap::from);
        // SAFETY: the list and the time live until the call returns; the mask is the program's.
        done(unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, Nap::at(nap.as_ref()), mask) })
    })?;
    Ok(ready as c_int)
}

/// Stands before the C library's `select`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let ours = || {
        // SAFETY: null or the program's time.
        let span = unsafe { microseconds(timeout) }?;
        // SAFETY: the program's sets, as `select` takes them, and no mask.
        let (result, left) = unsafe { select_ours(count, [read, write, except], span, ptr::null()) };
        if let (Some(left), true) = (left, result != Err(Errno::PLAIN)) {
            // Linux writes how much of the time is left, where it can: programs also keep times in
            // memory that is only for reading, so a failure is ignored.
            let left = timeval { tv_sec: left.as_secs() as _, tv_usec: left.subsec_micros().into() };
            // SAFETY: the time was read from there before; `lent` fails where it cannot be written.
            let _ = unsafe { lent::put(timeout, left) };
        }
        result
    };
    // SAFETY: the program's own arguments, passed on unchanged.
    if_any(ours).unwrap_or_else(|| unsafe { real::select(count, read, write, except, timeout) })
}

/// Stands before the C library's `pselect`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sleep = |mask| {
        let ours = || {
            // SAFETY: null or the program's time.
            let span = unsafe { nanoseconds(timeout) }?;
            // SAFETY: the program's sets and mask, as `pselect` takes them.
            unsafe { select_ours(count, [read, write, except], span, mask) }.0
        };
        // SAFETY: the program's own arguments, passed on unchanged.
        if_any(ours).unwrap_or_else(|| unsafe { real::pselect(count, read, write, except, timeout, mask) })
    };
    // SAFETY: `mask` is the program's: null or a set, as in C.
    unsafe { asleep(mask, sleep) }
}

/// Selects on sets in which sockets of ours may be; returns the result, and how much of the time is
/// left.
///
/// # Safety
///
/// As for `pselect`.
unsafe fn select_ours(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> (Result<c_int, Errno>, Option<Duration>) {
    let Some(bits) = usize::try_from(count).ok().filter(|count| *count <= table::LIMIT) else {
        return (Err(Errno::PLAIN), timeout);
    };
    let words = bits.div_ceil(c_ulong::BITS as usize);
    // SAFETY: not null, so a set of the program's with `count` bits; only checked here.
    let is_there = |set: &&mut *mut fd_set| unsafe { lent::check_room(set.cast::<c_ulong>(), words) }.is_ok();
    if !sets.clone().iter_mut().filter(|set| !set.is_null()).all(|set| is_there(&set)) {
        return (Err(Errno::PLAIN), timeout);
    }
    let slice = |set: *mut fd_set| {
        // SAFETY: null, or a set with `count` bits that was checked and that the program leaves to
        // the call.
        (!set.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(set.cast::<c_ulong>(), words) })
    };
    let (result, left) = wait::select(bits, &mut sets.map(slice), timeout, |many, sets, nap| {
        let nap = nap.map(Nap::from);
        let [read, write, except] = sets.each_mut().map(|set| set.as_mut_ptr().cast());
        // SAFETY: the sets have `many` bits and live, with the time, until the call returns; the
        // mask is the program's.
        done(unsafe { real::pselect(many as c_int, read, write, except, Nap::at(nap.as_ref()), mask) })
    });
    (result.map(|ready| ready as c_int), left)
}

/// A time in the form that the kernel's calls take.
struct Nap(timespec);

impl From<Duration> for Nap {
    fn from(span: Duration) -> Self {
        let tv_sec = libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX);
        Nap(timespec { tv_sec, tv_nsec: span.subsec_nanos().into() })
    }
}

impl Nap {
    /// Returns the address of the time; null for none.
    fn at(nap: Option<&Self>) -> *const timespec {
        nap.map_or(ptr::null(), |nap| &raw const nap.0)
    }
}

/// Returns the limit in a count of milliseconds; `None` for a negative one, which means no limit.
fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Reads the value that a pointer leads to, if it is not null; memory that is not mapped is left to
/// the C library to refuse.
///
/// # Safety
///
/// `at` is null or points to a `T`.
unsafe fn there<T: Copy>(at: *const T) -> Result<Option<T>, Errno> {
    // SAFETY: not null, so the program's value; `lent` fails where no memory is.
    if at.is_null() { Ok(None) } else { unsafe { lent::get(at) }.map(Some).map_err(|_| Errno::PLAIN) }
}

/// Reads a limit; an invalid one is left to the C library to refuse.
///
/// # Safety
///
/// `timeout` is null or points to a time.
unsafe fn nanoseconds(timeout: *const timespec) -> Result<Option<Duration>, Errno> {
    // SAFETY: null or the program's time, as is asked of it here too.
    let Some(timeout) = (unsafe { there(timeout) })? else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u32::try_from(timeout.tv_nsec)) {
        (Ok(seconds), Ok(rest @ 0..1_000_000_000)) => Ok(Some(Duration::new(seconds, rest))),
        _ => Err(Errno::PLAIN),
    }
}

/// Reads a limit in microseconds.
///
/// # Safety
///
/// As for [`nanoseconds`].
unsafe fn microseconds(timeout: *const timeval) -> Result<Option<Duration>, Errno> {
    // SAFETY: null or the program's time, as is asked of it here too.
    let Some(timeout) = (unsafe { there(timeout) })? else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u64::try_from(timeout.tv_usec)) {
        (Ok(seconds), Ok(rest)) => {
            Ok(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(rest))))
        }
        _ => Err(Errno::PLAIN),
    }
}

fn done(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Stands before the C library's `epoll_ctl`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let ours = || {
        let wanted = match event.is_null() {
            true if operation == libc::EPOLL_CTL_DEL => Wanted { events: 0, data: 0 },
            true => return Err(Errno::PLAIN),
            false => {
                // SAFETY: not null, so the program's event; `lent` fails where no memory is.
                let event = unsafe { lent::get(event) }.map_err(|_| Errno::PLAIN)?;
                Wanted { events: event.events, data: event.u64 }
            }
        };
        wait::control(epoll, operation, fd, wanted).map(|()| 0)
    };
    let told = if wait::is_concerned() { answer(ours) } else { None };
    // SAFETY: the program's own arguments, passed on unchanged.
    told.unwrap_or_else(|| unsafe { real::epoll_ctl(epoll, operation, fd, event) })
}

/// Stands before the C library's `epoll_wait`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    let ours = |timeout| {
        wait_of_set(epoll, events, room, timeout, |nap| {
            // SAFETY: the program's own arguments, passed on unchanged.
            unsafe { real::epoll_wait(epoll, events, room, whole_milliseconds(nap)) }
        })
    };
    if wait::is_concerned()
        && let Some(told) = answer(|| ours(milliseconds(timeout)))
    {
        return told;
    }
    let plain = Plain::begin(milliseconds(timeout));
    // SAFETY: the program's own arguments, passed on unchanged.
    let given = unsafe { real::epoll_wait(epoll, events, room, timeout) };
    // SAFETY: the kernel has filled `given` events.
    unsafe { plain.end(epoll, events, given, ours) }
}

/// Stands before the C library's `epoll_pwait`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: `mask` is the program's: null or a set, as in C.
    unsafe { asleep(mask, |mask| epoll_pwait_asleep(epoll, events, room, timeout, mask)) }
}

/// Waits while the mask is set.
///
/// # Safety
///
/// As of [`epoll_pwait`].
unsafe fn epoll_pwait_asleep(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let ours = |timeout| {
        wait_of_set(epoll, events, room, timeout, |nap| {
            // SAFETY: the program's own arguments, passed on unchanged.
            unsafe { real::epoll_pwait(epoll, events, room, whole_milliseconds(nap), mask) }
        })
    };
    if let Some(told) = answer(|| ours(milliseconds(timeout))) {
        return told;
    }
    let plain = Plain::begin(milliseconds(timeout));
    // SAFETY: the program's own arguments, passed on unchanged.
    let given = unsafe { real::epoll_pwait(epoll, events, room, timeout, mask) };
    // SAFETY: the kernel has filled `given` events.
    unsafe { plain.end(epoll, events, given, ours) }
}

/// Stands before the C library's `epoll_pwait2`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: `mask` is the program's: null or a set, as in C.
    unsafe { asleep(mask, |mask| epoll_pwait2_asleep(epoll, events, room, timeout, mask)) }
}

/// Waits while the mask is set.
///
/// # Safety
///
/// As of [`epoll_pwait2`].
unsafe fn epoll_pwait2_asleep(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let ours = |timeout| {
        wait_of_set(epoll, events, room, timeout, |nap| {
            let nap = nap.map(Nap::from);
            // SAFETY: the program's own arguments, passed on unchanged.
            unsafe { real::epoll_pwait2(epoll, events, room, Nap::at(nap.as_ref()), mask) }
        })
    };
    // SAFETY: null or the program's time.
    let asked = unsafe { nanoseconds(timeout) };
    if let Some(told) = answer(|| ours(asked?)) {
        return told;
    }
    // An invalid time is left to the kernel to refuse.
    let plain = Plain::begin(asked.unwrap_or(Some(Duration::ZERO)));
    // SAFETY: the program's own arguments, passed on unchanged.
    let given = unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) };
    // SAFETY: the kernel has filled `given` events.
    unsafe { plain.end(epoll, events, given, ours) }
}

/// A wait on a set that has, as far as is known when it begins, no socket of ours.
struct Plain {
    timeout: Option<Duration>,
    /// Time of the beginning, if the wait may sleep, and not for ever.
    began: Option<Duration>,
}

impl Plain {
    #[inline]
    fn begin(timeout: Option<Duration>) -> Self {
        let may_end_late = timeout.is_some_and(|timeout| !timeout.is_zero());
        Plain { timeout, began: may_end_late.then(real::roughly_now) }
    }

    /// Returns the number of events for the program, of those that the kernel has `given`: while
    /// the thread slept another one may have put the first socket of ours into the set. If no event
    /// is left, the wait goes on with the time that is left.
    ///
    /// # Safety
    ///
    /// `given` events are at `events`.
    #[inline]
    unsafe fn end(
        self,
        epoll: c_int,
        events: *mut epoll_event,
        given: c_int,
        go_on: impl FnOnce(Option<Duration>) -> Result<c_int, Errno>,
    ) -> c_int {
        if given <= 0 || !wait::has_entries() {
            return given;
        }
        // SAFETY: the kernel has filled `given` events.
        unsafe { self.end_late(epoll, events, given, go_on) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn end_late(
        self,
        epoll: c_int,
        events: *mut epoll_event,
        given: c_int,
        go_on: impl FnOnce(Option<Duration>) -> Result<c_int, Errno>,
    ) -> c_int {
        // SAFETY: the kernel has filled `given` events.
        let Ok(events) = (unsafe { filled(events, given) }) else { return given };
        let told = beside(|| wait::given_late(epoll, events));
        if told > 0 {
            return told as c_int;
        }
        let waited = self.began.map_or(Duration::ZERO, |began| real::roughly_now().saturating_sub(began));
        answer(|| go_on(self.timeout.map(|timeout| timeout.saturating_sub(waited)))).unwrap_or(0)
    }
}

/// Checks that there is room for events; if not, the C library refuses the call.
fn takes_events(events: *mut epoll_event, room: c_int) -> Result<(), Errno> {
    if events.is_null() || room <= 0 { Err(Errno::PLAIN) } else { Ok(()) }
}

fn wait_of_set(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: Option<Duration>,
    mut sleep: impl FnMut(Option<Duration>) -> c_int,
) -> Result<c_int, Errno> {
    takes_events(events, room)?;
    // SAFETY: not null, and the program has room for at least one event there; only checked here.
    unsafe { lent::check_room(events, 1) }.map_err(|_| Errno::PLAIN)?;
    // SAFETY: the result of `sleep` says how many events the kernel has filled.
    let told = wait::wait(epoll, timeout, |nap| unsafe { filled(events, sleep(nap)) })?;
    Ok(told as c_int)
}

/// Returns the events that a call has filled.
///
/// # Safety
///
/// `result` events are at `events`.
unsafe fn filled<'a>(events: *mut epoll_event, result: c_int) -> Result<&'a mut [epoll_event], Errno> {
    done(result)?;
    // SAFETY: the kernel has filled as many events; the program does not read them before the call
    // returns.
    Ok(unsafe { std::slice::from_raw_parts_mut(events, result as usize) })
}

/// Rounds a time up to milliseconds; -1 for none.
fn whole_milliseconds(nap: Option<Duration>) -> c_int {
    nap.map_or(-1, |nap| c_int::try_from(nap.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

hooks! {
    new fn epoll_create(size: c_int) -> c_int;
    new fn epoll_create1(flags: c_int) -> c_int;
}
