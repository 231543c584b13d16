//! Raw mode: the calls of rddp/raw.h, which the C library does not have.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{EFAULT, EINVAL, EIO, size_t};
use rddp_switch::raw_mode::{self, Area, Event, How, Info, Reply, Work, Works};

use crate::hook::fail;

/// What the program gets. A fault of ours ends the call and not the program: no panic goes through C.
fn result(call: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => fail(errno),
        Err(_) => fail(EIO),
    }
}

/// The same of a call that gives an STag.
///
/// # Safety
///
/// `place` is null or the program's.
unsafe fn stag_to(place: *mut u32, call: impl FnOnce() -> Result<u32, c_int>) -> c_int {
    if place.is_null() {
        return fail(EFAULT);
    }
    result(|| {
        let stag = call()?;
        // SAFETY: not null, and so the program's.
        unsafe { *place = stag };
        Ok(0)
    })
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_domain() -> c_int {
    result(raw_mode::open_domain)
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_domain_close(domain: c_int) -> c_int {
    result(|| raw_mode::close_domain(domain).map(|()| 0))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_register(
    domain: c_int,
    begin: *mut c_void,
    len: size_t,
    access: c_int,
    stag: *mut u32,
) -> c_int {
    // SAFETY: our caller's promise, of both.
    unsafe {
        let area = Area::promised(begin.cast(), len);
        stag_to(stag, || raw_mode::register(domain, &area?, access))
    }
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_window(domain: c_int, stag: *mut u32) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { stag_to(stag, || raw_mode::open_window(domain)) }
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_reregister(stag: u32, access: c_int, now: *mut u32) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { stag_to(now, || raw_mode::reregister(stag, access)) }
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_stag(stag: u32, now: *mut u32) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { stag_to(now, || raw_mode::stag_now(stag)) }
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_deregister(stag: u32) -> c_int {
    result(|| raw_mode::deregister(stag).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_queue(flags: c_int) -> c_int {
    result(|| raw_mode::open_queue(flags))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_events(queue: c_int, events: *mut Event, room: c_int, timeout: c_int) -> c_int {
    let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else { return fail(EINVAL) };
    if events.is_null() {
        return fail(EFAULT);
    }
    // SAFETY: not null, and room for so many, as our caller promises.
    let out = unsafe { std::slice::from_raw_parts_mut(events.cast::<MaybeUninit<Event>>(), room) };
    result(|| raw_mode::events(queue, out, timeout).map(|count| count as c_int))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_attach(fd: c_int, how: *const How) -> c_int {
    // SAFETY: null, or our caller's promise.
    match unsafe { how.as_ref() } {
        None => fail(EFAULT),
        Some(how) => result(|| raw_mode::attach(fd, how).map(|()| 0)),
    }
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_begin(fd: c_int) -> c_int {
    result(|| raw_mode::begin(fd).map(|()| 0))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_post(fd: c_int, works: *const Work, count: c_int) -> c_int {
    // SAFETY: our caller's promise.
    let works = unsafe { Works::promised(works, count) };
    result(|| raw_mode::post(fd, works?).map(|taken| taken as c_int))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_answer(
    fd: c_int,
    answer: c_int,
    private_data: *const c_void,
    len: size_t,
) -> c_int {
    // SAFETY: our caller's promise.
    let reply = unsafe { Reply::promised(private_data.cast(), len) };
    result(|| raw_mode::answer(fd, answer, reply?).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives(domain: c_int, max: u32, quota: u32) -> c_int {
    result(|| raw_mode::open_receives(domain, max, quota))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives_arm(receives: c_int, limit: u32) -> c_int {
    result(|| raw_mode::arm_receives(receives, limit).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives_close(receives: c_int) -> c_int {
    result(|| raw_mode::close_receives(receives).map(|()| 0))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_post_shared(receives: c_int, works: *const Work, count: c_int) -> c_int {
    // SAFETY: our caller's promise.
    let works = unsafe { Works::promised(works, count) };
    result(|| raw_mode::post_shared(receives, works?).map(|taken| taken as c_int))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_disconnect(fd: c_int, how: c_int) -> c_int {
    result(|| raw_mode::disconnect(fd, how).map(|()| 0))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_info(fd: c_int, info: *mut Info) -> c_int {
    if info.is_null() {
        return fail(EFAULT);
    }
    result(|| {
        let found = raw_mode::info(fd)?;
        // SAFETY: not null, and so the program's.
        unsafe { *info = found };
        Ok(0)
    })
}
