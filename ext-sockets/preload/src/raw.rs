//! Raw mode: the calls of rddp/raw.h, which the C library does not have.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use libc::size_t;
use rddp_stream::{Errno, lent};
use rddp_switch::kinds::raw::{self, Area, Event, How, Info, Reply, Work, Works};

use crate::hook::{caught, fail};

/// Makes a call, be there sockets of ours yet or not.
fn result(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    lent::guard();
    caught(call)
}

/// Answers a call that gives something, which is not made if there is no place for that.
///
/// # Safety
///
/// `place` is the program's, as far as it is there; a `T` has no padding.
unsafe fn given_to<T: Copy>(place: *mut T, call: impl FnOnce() -> Result<T, Errno>) -> c_int {
    // SAFETY: the caller's promise.
    result(|| unsafe {
        lent::check_room(place, 1)?;
        lent::put(place, call()?)?;
        Ok(0)
    })
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_domain() -> c_int {
    result(raw::open_domain)
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_domain_close(domain: c_int) -> c_int {
    result(|| raw::close_domain(domain).map(|()| 0))
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
        given_to(stag, || raw::register(domain, &area?, access))
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
    unsafe { given_to(stag, || raw::open_window(domain)) }
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_reregister(stag: u32, access: c_int, now: *mut u32) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { given_to(now, || raw::reregister(stag, access)) }
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_stag(stag: u32, now: *mut u32) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { given_to(now, || raw::stag_now(stag)) }
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_deregister(stag: u32) -> c_int {
    result(|| raw::deregister(stag).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_queue(flags: c_int) -> c_int {
    result(|| raw::open_queue(flags))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_events(queue: c_int, events: *mut Event, room: c_int, timeout: c_int) -> c_int {
    let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else { return fail(Errno::INVALID) };
    result(|| {
        // SAFETY: our caller's promise, of both; and room for so many is there.
        let out = unsafe {
            lent::check_room(events, room)?;
            std::slice::from_raw_parts_mut(events.cast::<MaybeUninit<Event>>(), room)
        };
        raw::events(queue, out, timeout).map(|count| count as c_int)
    })
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_attach(fd: c_int, how: *const How) -> c_int {
    // SAFETY: our caller's promise; it is integers.
    result(|| raw::attach(fd, &unsafe { lent::get(how) }?).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_begin(fd: c_int) -> c_int {
    result(|| raw::begin(fd).map(|()| 0))
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
    result(|| raw::post(fd, works?).map(|taken| taken as c_int))
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
    result(|| raw::answer(fd, answer, unsafe { Reply::promised(private_data.cast(), len) }?).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives(domain: c_int, max: u32, quota: u32) -> c_int {
    result(|| raw::open_receives(domain, max, quota))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives_arm(receives: c_int, limit: u32) -> c_int {
    result(|| raw::arm_receives(receives, limit).map(|()| 0))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives_close(receives: c_int) -> c_int {
    result(|| raw::close_receives(receives).map(|()| 0))
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
    result(|| raw::post_shared(receives, works?).map(|taken| taken as c_int))
}

/// See rddp/raw.h.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_disconnect(fd: c_int, how: c_int) -> c_int {
    result(|| raw::disconnect(fd, how).map(|()| 0))
}

/// See rddp/raw.h.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_info(fd: c_int, info: *mut Info) -> c_int {
    // SAFETY: our caller's promise.
    unsafe { given_to(info, || raw::info(fd)) }
}
