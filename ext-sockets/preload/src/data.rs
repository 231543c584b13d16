//! Calls that move octets.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rddp_real as real;
use rddp_stream::{Errno, lent, sink_pieces, source_pieces};
use rddp_switch::gate::{self, Route};
use rddp_switch::kinds::Ours;
use rddp_switch::table;

use crate::hook::{Failed, answer, fail};
use crate::pieces::{MOST, Pieces, piece};
use crate::{control, message};

/// Functions on the first descriptor that a framed socket answers by an expression of `framed`.
///
/// What descriptors of ours need stands apart, so that calls on all others have no frame and no return of their own: behind a system
/// call a processor that guards against speculation predicts none, and each costs as much as thirty instructions.
macro_rules! moving {
    ($(
        fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty =>
            $([if $flags:ident & $flag:ident: $instead:expr])? |$framed:ident| $call:expr;
    )*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in the C library's manual.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> $result {
                #[cold]
                #[inline(never)]
                unsafe extern "C-unwind" fn on_ours($fd: c_int $(, $arg: $type)*) -> $result {
                    match gate::data($fd) {
                        Route::Plain => {}
                        Route::Refused(errno) => return fail(errno),
                        Route::Ours($framed) => {
                            // SAFETY: our caller's promise.
                            let result: Result<$result, Errno> = unsafe { $call };
                            if let Some(result) = answer(result) {
                                return result;
                            }
                        }
                    }
                    // SAFETY: our caller's promise.
                    unsafe { real::$name($fd $(, $arg)*) }
                }
                $(
                    if $flags & libc::$flag != 0
                        // SAFETY: our caller's promise.
                        && let Some(result) = unsafe { $instead }
                    {
                        return result;
                    }
                )?
                if table::entry($fd).is_some() {
                    // SAFETY: our caller's promise.
                    return unsafe { on_ours($fd $(, $arg)*) };
                }
                // SAFETY: our caller's promise.
                unsafe { real::$name($fd $(, $arg)*) }
            }
        )*
    };
}

moving! {
    fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t => |framed| receive(&framed, buf, count, 0);
    fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t => |framed| scatter(&framed, pieces, count, 0);
    fn preadv2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =>
        |framed| at_no_offset(offset, flags).and_then(|flags| scatter(&framed, pieces, count, flags));
    fn preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =>
        |framed| at_no_offset(offset, flags).and_then(|flags| scatter(&framed, pieces, count, flags));
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t =>
        |framed| receive(&framed, buf, len, flags);
    fn recvfrom(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t
    ) -> ssize_t => |framed| receive_from(&framed, buf, len, flags, addr, addr_len);
    fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int =>
        |framed| message::receive_many(&framed, msgs, count, flags, timeout);

    fn write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t => |framed| send_one(&framed, buf, count, 0);
    fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t => |framed| gather(&framed, pieces, count, 0);
    fn pwritev2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =>
        |framed| at_no_offset(offset, flags).and_then(|flags| gather(&framed, pieces, count, flags));
    fn pwritev64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t =>
        |framed| at_no_offset(offset, flags).and_then(|flags| gather(&framed, pieces, count, flags));
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t =>
        |framed| send_one(&framed, buf, len, flags);
    fn sendto(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t
    ) -> ssize_t =>
        [if flags & MSG_FASTOPEN: open_and(fd, addr, addr_len, || send(fd, buf, len, flags & !libc::MSG_FASTOPEN))]
        |framed| send_one(&framed, buf, len, flags);
    fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t =>
        [if flags & MSG_FASTOPEN: message::open_and_send(fd, msg, flags)]
        |framed| message::send(&framed, msg, flags);
    fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int =>
        [if flags & MSG_FASTOPEN: message::open_and_send_first(fd, msgs, count, flags)]
        |framed| message::send_many(&framed, msgs, count, flags);
    fn sendfile(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t =>
        |framed| send_file(&framed, fd, offset, count);
    fn sendfile64(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t =>
        |framed| send_file(&framed, fd, offset, count);
}

/// See `recvmsg` in the C library's manual.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    match gate::data(fd) {
        Route::Plain => {}
        Route::Refused(errno) => return fail(errno),
        Route::Ours(framed) => {
            // SAFETY: our caller's promise.
            if let Some(result) = answer(unsafe { message::receive(&framed, msg, flags) }) {
                return result;
            }
        }
    }
    // SAFETY: our caller's promise.
    let result = unsafe { real::recvmsg(fd, msg, flags) };
    if result >= 0 {
        // SAFETY: the call has filled it.
        unsafe { message::note_descriptors(msg) };
    }
    result
}

// What programs call that are built with _FORTIFY_SOURCE and know how large the buffer is. More than there is room for is the C
// library's to say.
moving! {
    fn __read_chk(fd: c_int, buf: *mut c_void, count: size_t, room: size_t) -> ssize_t =>
        |framed| within(count, room).and_then(|()| receive(&framed, buf, count, 0));
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t =>
        |framed| within(len, room).and_then(|()| receive(&framed, buf, len, flags));
    fn __recvfrom_chk(
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t
    ) -> ssize_t =>
        |framed| within(len, room).and_then(|()| receive_from(&framed, buf, len, flags, addr, addr_len));
}

hooks! {
    through[within_kernel(fd, out)] fn splice(
        fd: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
    through[within_kernel(fd, out)] fn tee(fd: c_int, out: c_int, len: size_t, flags: c_uint) -> ssize_t;
    plain fn vmsplice(
        fd: c_int, pieces: *const iovec, count: size_t, flags: c_uint
    ) -> ssize_t;
    through[within_kernel(fd, out)] fn copy_file_range(
        fd: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t;
}

/// A send that is to open its connection (`MSG_FASTOPEN`), in DDPMODE: connects, and sends when
/// that is done, as the kernel does without a cookie of the server's. `None` for any other socket.
///
/// # Safety
///
/// As for `connect`.
#[cold]
pub(crate) unsafe fn open_and<T: Failed>(
    fd: c_int,
    addr: *const sockaddr,
    len: socklen_t,
    send: impl FnOnce() -> T,
) -> Option<T> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: our caller's promise.
    match unsafe { control::connect_framed(fd, addr, len) }? {
        0 => Some(send()),
        _ => Some(T::failed()),
    }
}

/// # Safety
///
/// `buf` is null or has room for `len` octets.
unsafe fn receive(framed: &Ours, buf: *mut c_void, len: size_t, flags: c_int) -> Result<ssize_t, Errno> {
    let mut piece = piece(buf, len)?;
    // SAFETY: as the caller says, and one piece overlaps with none.
    framed.recv(unsafe { sink_pieces(&raw mut piece, 1) }, flags).map(octets)
}

/// # Safety
///
/// As for [`receive`]; `addr_len` is null or points to a length.
unsafe fn receive_from(
    framed: &Ours,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: as the caller says.
    let count = unsafe { receive(framed, buf, len, flags) }?;
    if !addr.is_null() {
        // SAFETY: as the caller says. TCP names nobody.
        unsafe { lent::put(addr_len, 0) }?;
    }
    Ok(count)
}

/// # Safety
///
/// `buf` is null or `len` octets are there.
unsafe fn send_one(framed: &Ours, buf: *const c_void, len: size_t, flags: c_int) -> Result<ssize_t, Errno> {
    let piece = piece(buf.cast_mut(), len)?;
    // SAFETY: as the caller says.
    framed.send(unsafe { source_pieces(&raw const piece, 1) }, flags).map(octets)
}

/// # Safety
///
/// As for `readv`.
unsafe fn scatter(framed: &Ours, pieces: *const iovec, count: c_int, flags: c_int) -> Result<ssize_t, Errno> {
    // SAFETY: as the caller says.
    let mut pieces = unsafe { Pieces::of(pieces, count as usize, Errno::INVALID) }?;
    // SAFETY: as the caller says.
    framed.recv(unsafe { pieces.sink() }, flags).map(octets)
}

/// # Safety
///
/// As for `writev`.
unsafe fn gather(framed: &Ours, pieces: *const iovec, count: c_int, flags: c_int) -> Result<ssize_t, Errno> {
    // SAFETY: as the caller says.
    let pieces = unsafe { Pieces::of(pieces, count as usize, Errno::INVALID) }?;
    // SAFETY: as the caller says.
    framed.send(unsafe { pieces.source() }, flags).map(octets)
}

/// # Safety
///
/// `offset` is null or points to one.
unsafe fn send_file(framed: &Ours, from: c_int, offset: *mut off_t, count: size_t) -> Result<ssize_t, Errno> {
    if offset.is_null() {
        return framed.send_file(from, None, count.min(MOST)).map(octets);
    }
    // SAFETY: as the caller says.
    unsafe {
        let mut at = lent::get(offset)?;
        let sent = framed.send_file(from, Some(&mut at), count.min(MOST))?;
        lent::put(offset, at)?;
        Ok(octets(sent))
    }
}

/// `preadv2` and its like act on a socket as `readv` when the offset is -1. The flags, as those of `recvmsg`.
fn at_no_offset(offset: off_t, flags: c_int) -> Result<c_int, Errno> {
    const OF_FILES: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC;
    match (offset, flags & !OF_FILES) {
        (-1, 0) => Ok(0),
        (-1, libc::RWF_NOWAIT) => Ok(libc::MSG_DONTWAIT),
        (-1, _) => Err(Errno::UNSUPPORTED),
        _ => Err(Errno(libc::ESPIPE)),
    }
}

/// Whether the C library would let the call pass; otherwise it ends the program, as the program was built to be.
fn within(count: size_t, room: size_t) -> Result<(), Errno> {
    if count <= room { Ok(()) } else { Err(Errno::PLAIN) }
}

pub(crate) fn octets(count: usize) -> ssize_t {
    count as ssize_t
}
