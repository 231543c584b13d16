//! The ES-API, as `include/rddp/exs.h` declares it.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{pollfd, size_t, sockaddr, socklen_t, timeval};
use rddp_es_api::{
    as_program::{AcceptAddr, Sockets},
    exs::{self, Event, EventPlaces, MsgHdr, To, XferFile},
};
use rddp_stream::{Errno, Uncancelled};
use rddp_switch::gate::{self, Route};
use rddp_switch::kinds::Ours;

use crate::hook::caught;
use crate::{control, create, data, variadic, wait};

/// The functions of this library, which serve a socket whatever mode it is in. Each is the function
/// of its C name and has that function's contract, which `Sockets` asks of its callers: that is why
/// the blocks here are sound.
pub(crate) const OWN: Sockets = Sockets {
    recvmsg: |fd, msg, flags| {
        // SAFETY: the contract of `recvmsg`, which `Sockets` asks of its callers.
        unsafe { data::recvmsg(fd, msg, flags) }
    },
    sendmsg: |fd, msg, flags| {
        // SAFETY: the contract of `sendmsg`, which `Sockets` asks of its callers.
        unsafe { data::sendmsg(fd, msg, flags) }
    },
    connect: |fd, addr, len| {
        // SAFETY: the contract of `connect`, which `Sockets` asks of its callers.
        unsafe { control::connect(fd, addr, len) }
    },
    accept4: |fd, addr, len, flags| {
        // SAFETY: the contract of `accept4`, which `Sockets` asks of its callers.
        unsafe { create::accept4(fd, addr, len, flags) }
    },
    poll: |fds, count, timeout| {
        // SAFETY: the contract of `poll`, which `Sockets` asks of its callers.
        unsafe { wait::poll(fds, count, timeout) }
    },
    fcntl: |fd, command, argument| {
        // SAFETY: the contract of `fcntl`, which `Sockets` asks of its callers.
        unsafe { variadic::fcntl(fd, command, argument) }
    },
    getsockopt: |fd, level, name, value, len| {
        // SAFETY: the contract of `getsockopt`, which `Sockets` asks of its callers.
        unsafe { control::getsockopt(fd, level, name, value, len) }
    },
    lends: |fd, octets| ours(fd).is_some_and(|ours| ours.lends(octets)),
    lend: |fd, sends| ours(fd).map_or(Ok(true), |ours| ours.lend(sends)),
    offer: |fd, room| {
        if let Some(ours) = ours(fd) {
            ours.offer(room);
        }
    },
};

fn ours(fd: c_int) -> Option<Ours> {
    match gate::data(fd) {
        Route::Ours(ours) => Some(ours),
        Route::Plain | Route::Refused(_) => None,
    }
}

/// Makes a call in which the thread is not cancelled, since that would leave locks held.
fn uncancelled(call: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    let _uncancelled = Uncancelled::here();
    caught(call)
}

macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of rddp/exs.h.")]
            ///
            /// # Safety
            ///
            /// As the header asks of the program.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                uncancelled(|| $body)
            }
        )*
    };
}

calls! {
    fn exs_init(version: c_int) {
        exs::init(version).map(|()| 0)
    }

    fn exs_qcreate(depth: c_int) {
        exs::create_queue(depth)
    }

    fn exs_qdelete(queue: c_int) {
        exs::delete_queue(queue).map(|()| 0)
    }

    fn exs_qmodify(queue: c_int, attribute: c_int, value: c_int) {
        exs::modify_queue(queue, attribute, value).map(|()| 0)
    }

    fn exs_qstatus(queue: c_int, attribute: c_int, value: *mut c_int) {
        let status = exs::queue_status(queue, attribute)?;
        if value.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: not null, so the program's place for an int.
        unsafe { *value = status };
        Ok(0)
    }

    fn exs_qfd(queue: c_int) {
        exs::queue_descriptor(queue)
    }

    fn exs_qdequeue(queue: c_int, events: *mut Event, count: c_int, timeout: *const timeval) {
        let room = count.unsigned_abs() as usize;
        if room > exs::MOST {
            return Err(Errno::INVALID);
        }
        if events.is_null() && room != 0 {
            return Err(Errno::FAULT);
        }
        // SAFETY: null, or the program's time, which stays for the call.
        let timeout = unsafe { timeout.as_ref() }.map(duration).transpose()?;
        // SAFETY: the program has `room` places there, or none; they stay for the call.
        let mut places = unsafe { EventPlaces::new(events, room) };
        let least = if count < 0 { room } else { room.min(1) };
        exs::dequeue(queue, &mut places, least, timeout).map(|count| count as c_int)
    }

    fn exs_mregister(addr: *mut c_void, len: size_t, flags: c_int) {
        exs::register(addr.expose_provenance(), len, flags)
    }

    fn exs_mderegister(memory: c_int, flags: c_int) {
        exs::deregister(memory, flags).map(|()| 0)
    }

    fn exs_send(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, queue: c_int, handle: *mut c_void, memory: c_int
    ) {
        // SAFETY: the program lends the memory until the event, as exs.h asks.
        exs::post(fd, unsafe { exs::send(buf, len, flags, memory) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_recv(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, queue: c_int, handle: *mut c_void, memory: c_int
    ) {
        // SAFETY: the program leaves the memory to us until the event, as exs.h asks.
        exs::post(fd, unsafe { exs::receive(buf, len, flags, memory) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_sendmsg(fd: c_int, msg: *const MsgHdr, flags: c_int, queue: c_int, handle: *mut c_void) {
        // SAFETY: the program lends the memory until the event, as exs.h asks.
        exs::post(fd, unsafe { exs::send_message(msg, flags) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_recvmsg(fd: c_int, msg: *mut MsgHdr, flags: c_int, queue: c_int, handle: *mut c_void) {
        // SAFETY: the program leaves the memory to us until the event, as exs.h asks.
        exs::post(fd, unsafe { exs::receive_message(msg, flags) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_sendfile(fd: c_int, file: *const XferFile, flags: c_int, queue: c_int, handle: *mut c_void) {
        // SAFETY: the program lends files and memory until the event, as exs.h asks.
        exs::post(fd, unsafe { exs::send_file(file, flags) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_connect(
        fd: c_int, addr: *const sockaddr, len: socklen_t, flags: c_int, queue: c_int, handle: *mut c_void
    ) {
        // SAFETY: the program's address has `len` octets, as exs.h asks.
        exs::post(fd, unsafe { exs::connect(addr, len, flags) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_accept(
        fd: c_int, list: *mut AcceptAddr, count: c_int, flags: c_int, queue: c_int, handle: *mut c_void
    ) {
        // SAFETY: the program leaves the places to us until the event, as exs.h asks.
        exs::post(fd, unsafe { exs::accept(list, count, flags) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_poll(list: *mut pollfd, count: c_int, queue: c_int, handle: *mut c_void) {
        // SAFETY: the program leaves the structures to us until the event, as exs.h asks.
        exs::post_poll(unsafe { exs::poll(list, count) }?, to(queue, handle)).map(|()| 0)
    }

    fn exs_cancel(fd: c_int, handle: *mut c_void, flags: c_int) {
        match flags {
            0 => exs::cancel(fd, Some(handle.expose_provenance())),
            CANCEL_ALL => exs::cancel(fd, None),
            _ => Err(Errno::INVALID),
        }
        .map(|()| 0)
    }
}

/// `EXS_CANCEL_ALL`.
const CANCEL_ALL: c_int = 1;

fn to(queue: c_int, handle: *mut c_void) -> To {
    To { queue, ahandle: handle.expose_provenance() }
}

fn duration(time: &timeval) -> Result<Duration, Errno> {
    if !(0..1_000_000).contains(&time.tv_usec) {
        return Err(Errno::INVALID);
    }
    let sec = u64::try_from(time.tv_sec).map_err(|_| Errno::INVALID)?;
    Ok(Duration::from_secs(sec) + Duration::from_micros(time.tv_usec.unsigned_abs()))
}
