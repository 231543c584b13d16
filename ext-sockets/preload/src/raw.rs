//! Raw mode: the calls of rddp/raw.h, which the C library does not have.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use libc::size_t;
use rddp_stream::{Errno, lent};
use rddp_switch::kinds::raw::{self, Area, Event, How, Info, Reply, Work, Works};

use crate::hook::{caught, fail};

/// Makes a call after the fault guard is installed, which no socket may have done yet.
fn result(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    caught(|| {
        lent::guard();
        call()
    })
}

/// Makes a call that gives the program a value; checks first that there is a place for it.
///
/// # Safety
///
/// `place` is null or the program's, aligned for a `T`; a `T` has no padding.
unsafe fn given_to<T: Copy>(place: *mut T, call: impl FnOnce() -> Result<T, Errno>) -> c_int {
    // SAFETY: null or the program's place; `lent` fails where it cannot be written.
    result(|| unsafe {
        lent::check_room(place, 1)?;
        lent::put(place, call()?)?;
        Ok(0)
    })
}

/// `ddp_domain` of rddp/raw.h: opens a protection domain.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_domain() -> c_int {
    result(raw::open_domain)
}

/// `ddp_domain_close` of rddp/raw.h: closes a protection domain.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_domain_close(domain: c_int) -> c_int {
    result(|| raw::close_domain(domain).map(|()| 0))
}

/// `ddp_register` of rddp/raw.h: registers memory.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_register(
    domain: c_int,
    begin: *mut c_void,
    len: size_t,
    access: c_int,
    stag: *mut u32,
) -> c_int {
    // SAFETY: the program leaves the area open to the peer while it is registered, as raw.h asks,
    // and `stag` is its place for the STag.
    unsafe {
        let area = Area::promised(begin.cast(), len);
        given_to(stag, || raw::register(domain, &area?, access))
    }
}

/// `ddp_allocate` of rddp/raw.h: allocates memory and registers it.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_allocate(
    domain: c_int,
    len: size_t,
    access: c_int,
    begin: *mut *mut c_void,
    stag: *mut u32,
) -> c_int {
    // SAFETY: null or the program's places for an address and a number; `lent` fails where they
    // cannot be written.
    result(|| unsafe {
        lent::check_room(begin, 1)?;
        lent::check_room(stag, 1)?;
        let (at, named) = raw::allocate(domain, len, access)?;
        lent::put(begin, at.cast())?;
        lent::put(stag, named)?;
        Ok(0)
    })
}

/// `ddp_register_file` of rddp/raw.h: registers a range of a file.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_register_file(
    domain: c_int,
    fd: c_int,
    offset: u64,
    len: u64,
    access: c_int,
    stag: *mut u32,
    to: *mut u64,
) -> c_int {
    // SAFETY: null or the program's places for two numbers; `lent` fails where they cannot be
    // written.
    result(|| unsafe {
        lent::check_room(stag, 1)?;
        lent::check_room(to, 1)?;
        let (named, at) = raw::register_file(domain, fd, (offset, len), access)?;
        lent::put(stag, named)?;
        lent::put(to, at)?;
        Ok(0)
    })
}

/// `ddp_window` of rddp/raw.h: opens a memory window.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_window(domain: c_int, stag: *mut u32) -> c_int {
    // SAFETY: null or the program's place for a number.
    unsafe { given_to(stag, || raw::open_window(domain)) }
}

/// `ddp_reregister` of rddp/raw.h: changes the access to registered memory.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_reregister(stag: u32, access: c_int, now: *mut u32) -> c_int {
    // SAFETY: null or the program's place for a number.
    unsafe { given_to(now, || raw::reregister(stag, access)) }
}

/// `ddp_stag` of rddp/raw.h: returns the STag that a registration has now.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_stag(stag: u32, now: *mut u32) -> c_int {
    // SAFETY: null or the program's place for a number.
    unsafe { given_to(now, || raw::stag_now(stag)) }
}

/// `ddp_deregister` of rddp/raw.h: ends a registration.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_deregister(stag: u32) -> c_int {
    result(|| raw::deregister(stag).map(|()| 0))
}

/// `ddp_queue` of rddp/raw.h: opens an event queue.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_queue(flags: c_int) -> c_int {
    result(|| raw::open_queue(flags))
}

/// `ddp_events` of rddp/raw.h: takes events from a queue.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_events(queue: c_int, events: *mut Event, room: c_int, timeout: c_int) -> c_int {
    let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else { return fail(Errno::INVALID) };
    result(|| {
        // SAFETY: the program has `room` places there, as was checked; they are written as
        // `MaybeUninit`.
        let out = unsafe {
            lent::check_room(events, room)?;
            std::slice::from_raw_parts_mut(events.cast::<MaybeUninit<Event>>(), room)
        };
        raw::events(queue, out, timeout).map(|count| count as c_int)
    })
}

/// `ddp_attach` of rddp/raw.h: makes a socket one of raw mode.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_attach(fd: c_int, how: *const How) -> c_int {
    // SAFETY: null or the program's structure, of integers alone; `lent` fails where no memory is.
    result(|| raw::attach(fd, &unsafe { lent::get(how) }?).map(|()| 0))
}

/// `ddp_begin` of rddp/raw.h: begins the stream.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_begin(fd: c_int) -> c_int {
    result(|| raw::begin(fd).map(|()| 0))
}

/// `ddp_post` of rddp/raw.h: posts work requests.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_post(fd: c_int, works: *const Work, count: c_int) -> c_int {
    // SAFETY: the program has `count` requests there, whose memory it lends until they complete, as
    // raw.h asks.
    let works = unsafe { Works::promised(works, count) };
    result(|| raw::post(fd, works?).map(|taken| taken as c_int))
}

/// `ddp_answer` of rddp/raw.h: accepts or rejects a connection.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_answer(
    fd: c_int,
    answer: c_int,
    private_data: *const c_void,
    len: size_t,
) -> c_int {
    // SAFETY: the program has `len` octets of private data there for the call.
    result(|| raw::answer(fd, answer, unsafe { Reply::promised(private_data.cast(), len) }?).map(|()| 0))
}

/// `ddp_receives` of rddp/raw.h: opens a shared receive queue.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives(domain: c_int, max: u32, quota: u32) -> c_int {
    result(|| raw::open_receives(domain, max, quota))
}

/// `ddp_receives_arm` of rddp/raw.h: sets the limit of a shared receive queue.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives_arm(receives: c_int, limit: u32) -> c_int {
    result(|| raw::arm_receives(receives, limit).map(|()| 0))
}

/// `ddp_receives_close` of rddp/raw.h: closes a shared receive queue.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_receives_close(receives: c_int) -> c_int {
    result(|| raw::close_receives(receives).map(|()| 0))
}

/// `ddp_post_shared` of rddp/raw.h: posts receives to a shared receive queue.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_post_shared(receives: c_int, works: *const Work, count: c_int) -> c_int {
    // SAFETY: the program has `count` requests there, whose memory it lends until they complete, as
    // raw.h asks.
    let works = unsafe { Works::promised(works, count) };
    result(|| raw::post_shared(receives, works?).map(|taken| taken as c_int))
}

/// `ddp_disconnect` of rddp/raw.h: ends a connection.
#[unsafe(no_mangle)]
pub extern "C" fn ddp_disconnect(fd: c_int, how: c_int) -> c_int {
    result(|| raw::disconnect(fd, how).map(|()| 0))
}

/// `ddp_info` of rddp/raw.h: returns the state of a connection.
///
/// # Safety
///
/// As the header asks of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ddp_info(fd: c_int, info: *mut Info) -> c_int {
    // SAFETY: null or the program's place for the structure.
    unsafe { given_to(info, || raw::info(fd)) }
}
