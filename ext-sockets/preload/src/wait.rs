//! Calls that wait until a descriptor is ready.

use std::ffi::{c_int, c_ulong};
use std::ptr;
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rddp_real::{self as real, Wanted};
use rddp_stream::{Errno, lent};
use rddp_switch::{gate, table, wait};

use crate::hook::answer;
use crate::signals::asleep;

/// See `poll` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // Apart, so that a program without sockets of ours pays neither a frame nor a return.
    #[cold]
    #[inline(never)]
    unsafe fn with_ours(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: our caller's promise.
        let ours = unsafe { poll_ours(fds, count, milliseconds(timeout), ptr::null()) };
        // SAFETY: our caller's promise.
        answer(ours).unwrap_or_else(|| unsafe { real::poll(fds, count, timeout) })
    }
    if table::any() {
        // SAFETY: our caller's promise.
        return unsafe { with_ours(fds, count, timeout) };
    }
    // SAFETY: our caller's promise.
    unsafe { real::poll(fds, count, timeout) }
}

/// See `ppoll` in the C library's manual.
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
        let ours = table::any().then(|| {
            // SAFETY: our caller's promise.
            unsafe { nanoseconds(timeout).and_then(|timeout| poll_ours(fds, count, timeout, mask)) }
        });
        // SAFETY: our caller's promise.
        ours.and_then(answer).unwrap_or_else(|| unsafe { real::ppoll(fds, count, timeout, mask) })
    };
    // SAFETY: our caller's promise.
    unsafe { asleep(mask, sleep) }
}

/// `poll` of programs that are built with `_FORTIFY_SOURCE`. More than there is room for is the C library's to say.
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
        // SAFETY: our caller's promise.
        return unsafe { poll(fds, count, timeout) };
    }
    // SAFETY: our caller's promise.
    unsafe { real::__poll_chk(fds, count, timeout, room) }
}

/// `ppoll` of programs that are built with `_FORTIFY_SOURCE`.
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
        // SAFETY: our caller's promise.
        return unsafe { ppoll(fds, count, timeout, mask) };
    }
    // SAFETY: our caller's promise.
    unsafe { real::__ppoll_chk(fds, count, timeout, mask, room) }
}

fn fits(count: nfds_t, room: size_t) -> bool {
    count <= (room / size_of::<pollfd>()) as nfds_t
}

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
    // SAFETY: our caller's promise. The kernel says what is wrong with memory that is not there.
    unsafe { lent::check_room(fds, count) }.map_err(|_| Errno::PLAIN)?;
    // SAFETY: our caller's promise.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count) };
    let ready = wait::poll(fds, timeout, |fds, nap| {
        let nap = nap.map(Nap::from);
        // SAFETY: a slice and a time that live until the call returns, and the caller's mask.
        done(unsafe { real::ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, Nap::at(nap.as_ref()), mask) })
    })?;
    Ok(ready as c_int)
}

/// See `select` in the C library's manual.
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
    let ours = table::any().then(|| {
        // SAFETY: our caller's promise.
        let span = unsafe { microseconds(timeout) }?;
        // SAFETY: our caller's promise.
        let (result, left) = unsafe { select_ours(count, [read, write, except], span, ptr::null()) };
        if let (Some(left), true) = (left, result != Err(Errno::PLAIN)) {
            // Linux says how much of the time is left, where it can: programs keep times in memory
            // for reading alone.
            let left = timeval { tv_sec: left.as_secs() as _, tv_usec: left.subsec_micros().into() };
            // SAFETY: there was a time, so the pointer leads to one.
            let _ = unsafe { lent::put(timeout, left) };
        }
        result
    });
    // SAFETY: our caller's promise.
    ours.and_then(answer).unwrap_or_else(|| unsafe { real::select(count, read, write, except, timeout) })
}

/// See `pselect` in the C library's manual.
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
        let ours = table::any().then(|| {
            // SAFETY: our caller's promise.
            let span = unsafe { nanoseconds(timeout) }?;
            // SAFETY: our caller's promise.
            unsafe { select_ours(count, [read, write, except], span, mask) }.0
        });
        // SAFETY: our caller's promise.
        ours.and_then(answer)
            .unwrap_or_else(|| unsafe { real::pselect(count, read, write, except, timeout, mask) })
    };
    // SAFETY: our caller's promise.
    unsafe { asleep(mask, sleep) }
}

/// The result, and how much of the time is left.
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
    // SAFETY: our caller's promise.
    let is_there = |set: &&mut *mut fd_set| unsafe { lent::check_room(set.cast::<c_ulong>(), words) }.is_ok();
    if !sets.clone().iter_mut().filter(|set| !set.is_null()).all(|set| is_there(&set)) {
        return (Err(Errno::PLAIN), timeout);
    }
    let slice = |set: *mut fd_set| {
        // SAFETY: our caller's promise: null, or as many bits as are counted.
        (!set.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(set.cast::<c_ulong>(), words) })
    };
    let (result, left) = wait::select(bits, &mut sets.map(slice), timeout, |sets, nap| {
        let nap = nap.map(Nap::from);
        let [read, write, except] = sets.each_mut().map(|set| set.as_mut_ptr().cast());
        // SAFETY: sets of as many bits as are counted and a time, which live until the call returns, and the caller's mask.
        done(unsafe { real::pselect(count, read, write, except, Nap::at(nap.as_ref()), mask) })
    });
    (result.map(|ready| ready as c_int), left)
}

/// A time as the kernel's calls take it.
struct Nap(timespec);

impl From<Duration> for Nap {
    fn from(span: Duration) -> Self {
        let tv_sec = libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX);
        Nap(timespec { tv_sec, tv_nsec: span.subsec_nanos().into() })
    }
}

impl Nap {
    /// Where it is; null for none.
    fn at(nap: Option<&Self>) -> *const timespec {
        nap.map_or(ptr::null(), |nap| &raw const nap.0)
    }
}

/// Less than nothing is as long as it takes.
fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Returns what a pointer leads to, if it is not null; what is not there is for the C library to
/// refuse.
///
/// # Safety
///
/// `at` is null or points to a `T`.
unsafe fn there<T: Copy>(at: *const T) -> Result<Option<T>, Errno> {
    // SAFETY: as the caller says.
    if at.is_null() { Ok(None) } else { unsafe { lent::get(at) }.map(Some).map_err(|_| Errno::PLAIN) }
}

/// What makes no sense is for the C library to refuse.
///
/// # Safety
///
/// `timeout` is null or points to a time.
unsafe fn nanoseconds(timeout: *const timespec) -> Result<Option<Duration>, Errno> {
    // SAFETY: as the caller says.
    let Some(timeout) = (unsafe { there(timeout) })? else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u32::try_from(timeout.tv_nsec)) {
        (Ok(seconds), Ok(rest @ 0..1_000_000_000)) => Ok(Some(Duration::new(seconds, rest))),
        _ => Err(Errno::PLAIN),
    }
}

/// # Safety
///
/// As for [`nanoseconds`].
unsafe fn microseconds(timeout: *const timeval) -> Result<Option<Duration>, Errno> {
    // SAFETY: as the caller says.
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

/// See `epoll_ctl` in the C library's manual.
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
    let ours = wait::is_concerned().then(|| {
        let wanted = match event.is_null() {
            true if operation == libc::EPOLL_CTL_DEL => Wanted { events: 0, data: 0 },
            true => return Err(Errno::PLAIN),
            false => {
                // SAFETY: our caller's promise, and not null.
                let event = unsafe { lent::get(event) }.map_err(|_| Errno::PLAIN)?;
                Wanted { events: event.events, data: event.u64 }
            }
        };
        wait::control(epoll, operation, fd, wanted).map(|()| 0)
    });
    // SAFETY: our caller's promise.
    ours.and_then(answer).unwrap_or_else(|| unsafe { real::epoll_ctl(epoll, operation, fd, event) })
}

/// See `epoll_wait` in the C library's manual.
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
            // SAFETY: our caller's promise.
            unsafe { real::epoll_wait(epoll, events, room, whole_milliseconds(nap)) }
        })
    };
    if wait::is_concerned()
        && let Some(told) = answer(ours(milliseconds(timeout)))
    {
        return told;
    }
    let plain = Plain::begin(milliseconds(timeout));
    // SAFETY: our caller's promise.
    let given = unsafe { real::epoll_wait(epoll, events, room, timeout) };
    // SAFETY: as many as the kernel says.
    unsafe { plain.end(epoll, events, given, ours) }
}

/// See `epoll_pwait` in the C library's manual.
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
    // SAFETY: our caller's promise.
    unsafe { asleep(mask, |mask| epoll_pwait_asleep(epoll, events, room, timeout, mask)) }
}

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
            // SAFETY: our caller's promise.
            unsafe { real::epoll_pwait(epoll, events, room, whole_milliseconds(nap), mask) }
        })
    };
    if let Some(told) = answer(ours(milliseconds(timeout))) {
        return told;
    }
    let plain = Plain::begin(milliseconds(timeout));
    // SAFETY: our caller's promise.
    let given = unsafe { real::epoll_pwait(epoll, events, room, timeout, mask) };
    // SAFETY: as many as the kernel says.
    unsafe { plain.end(epoll, events, given, ours) }
}

/// See `epoll_pwait2` in the C library's manual.
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
    // SAFETY: our caller's promise.
    unsafe { asleep(mask, |mask| epoll_pwait2_asleep(epoll, events, room, timeout, mask)) }
}

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
            // SAFETY: our caller's promise.
            unsafe { real::epoll_pwait2(epoll, events, room, Nap::at(nap.as_ref()), mask) }
        })
    };
    // SAFETY: our caller's promise.
    let asked = unsafe { nanoseconds(timeout) };
    if let Some(told) = answer(asked.and_then(ours)) {
        return told;
    }
    // A time that makes no sense is the kernel's to refuse.
    let plain = Plain::begin(asked.unwrap_or(Some(Duration::ZERO)));
    // SAFETY: our caller's promise.
    let given = unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) };
    // SAFETY: as many as the kernel says.
    unsafe { plain.end(epoll, events, given, ours) }
}

/// A wait of a set that has nothing of ours, as far as is known when it begins.
struct Plain {
    timeout: Option<Duration>,
    /// If it may sleep, and not for ever.
    began: Option<Duration>,
}

impl Plain {
    #[inline]
    fn begin(timeout: Option<Duration>) -> Self {
        let may_end_late = timeout.is_some_and(|timeout| !timeout.is_zero());
        Plain { timeout, began: may_end_late.then(real::roughly_now) }
    }

    /// What the program is told of what the kernel has `given`: while the thread slept another one may have put the first socket of
    /// ours into the set. If that is all there is, the wait goes on with the time that is left.
    ///
    /// # Safety
    ///
    /// As many events as are given are at `events`.
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
        // SAFETY: our caller's promise.
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
        // SAFETY: our caller's promise.
        let Ok(events) = (unsafe { filled(events, given) }) else { return given };
        let told = wait::given_late(epoll, events);
        if told > 0 {
            return told as c_int;
        }
        let waited = self.began.map_or(Duration::ZERO, |began| real::roughly_now().saturating_sub(began));
        answer(go_on(self.timeout.map(|timeout| timeout.saturating_sub(waited)))).unwrap_or(0)
    }
}

/// Whether there is room for events; if not, the C library says so.
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
    // SAFETY: there is room for one.
    unsafe { lent::check_room(events, 1) }.map_err(|_| Errno::PLAIN)?;
    // SAFETY: the kernel has given as many as it says.
    let told = wait::wait(epoll, timeout, |nap| unsafe { filled(events, sleep(nap)) })?;
    Ok(told as c_int)
}

/// The events that a call has given.
///
/// # Safety
///
/// As many as `result` says are at `events`.
unsafe fn filled<'a>(events: *mut epoll_event, result: c_int) -> Result<&'a mut [epoll_event], Errno> {
    done(result)?;
    // SAFETY: as the caller says; the program does not look at them before the call returns.
    Ok(unsafe { std::slice::from_raw_parts_mut(events, result as usize) })
}

/// No less than `nap`.
fn whole_milliseconds(nap: Option<Duration>) -> c_int {
    nap.map_or(-1, |nap| c_int::try_from(nap.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

hooks! {
    new fn epoll_create(size: c_int) -> c_int;
    new fn epoll_create1(flags: c_int) -> c_int;
}
