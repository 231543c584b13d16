//! Calls that move octets.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rddp_real as real;
use rddp_stream::{Errno, lent, sink_pieces, source_pieces};
use rddp_switch::gate;
use rddp_switch::kinds::Ours;
use rddp_switch::table;

use crate::hook::{Failed, answer, beside};
use crate::pieces::{MOST, Pieces, piece};
use crate::{control, message};

/// Functions whose first argument is the descriptor; for a framed socket `$call` answers.
///
/// The code for our descriptors stands in a function of its own, so that calls on all others have
/// no frame and no return: behind a system call, a processor that guards against speculation
/// predicts no return, and each costs as much as thirty instructions.
macro_rules! moving {
    ($(
        fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty =>
            $([if $flags:ident & $flag:ident: $instead:expr])? |$framed:ident| $call:expr;
    )*) => {
        $(
            #[doc = concat!("Stands before the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            ///
            /// As in C.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> $result {
                #[cold]
                #[inline(never)]
                unsafe extern "C-unwind" fn on_ours($fd: c_int $(, $arg: $type)*) -> $result {
                    let ours: Option<$result> = answer(|| {
                        let $framed = gate::data($fd).ours()?;
                        // SAFETY: the program's arguments, as C's function of this name takes them.
                        unsafe { $call }
                    });
                    if let Some(result) = ours {
                        return result;
                    }
                    // SAFETY: the program's own arguments, passed on unchanged.
                    unsafe { real::$name($fd $(, $arg)*) }
                }
                $(
                    if $flags & libc::$flag != 0
                        // SAFETY: the program's arguments, as C's function of this name takes them.
                        && let Some(result) = unsafe { $instead }
                    {
                        return result;
                    }
                )?
                if table::entry($fd).is_some() {
                    // SAFETY: the program's own arguments, passed on unchanged.
                    return unsafe { on_ours($fd $(, $arg)*) };
                }
                // SAFETY: the program's own arguments, passed on unchanged.
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
    fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int =>
        [if flags & MSG_FASTOPEN: message::open_and_send_first(fd, msgs, count, flags)]
        |framed| message::send_many(&framed, msgs, count, flags);
    fn sendfile(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t =>
        |framed| send_file(&framed, fd, offset, count);
    fn sendfile64(out: c_int, fd: c_int, offset: *mut off_t, count: size_t) -> ssize_t =>
        |framed| send_file(&framed, fd, offset, count);
}

/// Stands before the C library's `recvmsg`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    let ours = answer(|| {
        let framed = gate::data(fd).ours()?;
        // SAFETY: the program's message, as `recvmsg` takes it.
        unsafe { message::receive(&framed, msg, flags) }
    });
    if let Some(result) = ours {
        return result;
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    let result = unsafe { real::recvmsg(fd, msg, flags) };
    if result >= 0 {
        // SAFETY: the call succeeded, so it has filled the message.
        beside(|| unsafe { message::adopt_descriptors(msg) });
    }
    result
}

/// Stands before the C library's `sendmsg`.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0
        // SAFETY: the program's arguments, as C's function of this name takes them.
        && let Some(result) = unsafe { message::open_and_send(fd, msg, flags) }
    {
        return result;
    }
    let ours = answer(|| {
        let framed = gate::data(fd).ours()?;
        // SAFETY: the program's message, as `sendmsg` takes it.
        unsafe { message::send(&framed, msg, flags) }
    });
    if let Some(result) = ours {
        return result;
    }
    if table::any() {
        // SAFETY: the program's message, as `sendmsg` takes it.
        beside(|| unsafe { message::announce_descriptors(msg) });
    }
    // SAFETY: the program's own arguments, passed on unchanged.
    unsafe { real::sendmsg(fd, msg, flags) }
}

// Functions that programs built with `_FORTIFY_SOURCE` call, with the size of their buffer. A count
// beyond that size is left to the C library, which ends the program.
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

/// Makes a send that is to open its connection (`MSG_FASTOPEN`) in DDPMODE: connects, and then
/// calls `send`, as the kernel does when it has no cookie of the server's. `None` for any other
/// socket.
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
    // SAFETY: the program's address and length, as `connect` takes them.
    match unsafe { control::connect_framed(fd, addr, len) }? {
        0 => Some(send()),
        _ => Some(T::failed()),
    }
}

/// Receives into one buffer.
///
/// # Safety
///
/// `buf` is null or has room for `len` octets.
unsafe fn receive(framed: &Ours, buf: *mut c_void, len: size_t, flags: c_int) -> Result<ssize_t, Errno> {
    let mut piece = piece(buf, len)?;
    // SAFETY: not null, with room for `len` octets, and one piece overlaps with none.
    framed.recv(unsafe { sink_pieces(&raw mut piece, 1) }, flags).map(octets)
}

/// Receives into one buffer, and sets the length of the sender's address.
///
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
    // SAFETY: `buf` is null or has room for `len` octets, as is asked of it here too.
    let count = unsafe { receive(framed, buf, len, flags) }?;
    if !addr.is_null() {
        // SAFETY: null or the program's length; `lent` fails where no memory is. TCP gives no
        // address.
        unsafe { lent::put(addr_len, 0) }?;
    }
    Ok(count)
}

/// Sends from one buffer.
///
/// # Safety
///
/// `buf` is null or `len` octets are there.
unsafe fn send_one(framed: &Ours, buf: *const c_void, len: size_t, flags: c_int) -> Result<ssize_t, Errno> {
    let piece = piece(buf.cast_mut(), len)?;
    // SAFETY: not null, with `len` octets of the program's that stay for the call.
    framed.send(unsafe { source_pieces(&raw const piece, 1) }, flags).map(octets)
}

/// Receives into the pieces of a program's list.
///
/// # Safety
///
/// As for `readv`.
unsafe fn scatter(framed: &Ours, pieces: *const iovec, count: c_int, flags: c_int) -> Result<ssize_t, Errno> {
    // SAFETY: the program's list, as `readv` takes it; a copy of its entries is checked.
    let mut pieces = unsafe { Pieces::of(pieces, count as usize, Errno::INVALID) }?;
    // SAFETY: each piece is memory that the program gives up for the call, as for `readv`.
    framed.recv(unsafe { pieces.sink() }, flags).map(octets)
}

/// Sends from the pieces of a program's list.
///
/// # Safety
///
/// As for `writev`.
unsafe fn gather(framed: &Ours, pieces: *const iovec, count: c_int, flags: c_int) -> Result<ssize_t, Errno> {
    // SAFETY: the program's list, as `writev` takes it; a copy of its entries is checked.
    let pieces = unsafe { Pieces::of(pieces, count as usize, Errno::INVALID) }?;
    // SAFETY: each piece is memory of the program's that stays for the call, as for `writev`.
    framed.send(unsafe { pieces.source() }, flags).map(octets)
}

/// Sends from a file, and sets the offset.
///
/// # Safety
///
/// `offset` is null or points to one.
unsafe fn send_file(framed: &Ours, from: c_int, offset: *mut off_t, count: size_t) -> Result<ssize_t, Errno> {
    if offset.is_null() {
        return framed.send_file(from, None, count.min(MOST)).map(octets);
    }
    // SAFETY: not null, so the program's offset; `lent` fails where no memory is.
    unsafe {
        let mut at = lent::get(offset)?;
        let sent = framed.send_file(from, Some(&mut at), count.min(MOST))?;
        lent::put(offset, at)?;
        Ok(octets(sent))
    }
}

/// Translates the arguments of `preadv2` and its like, which act on a socket as `readv` when the
/// offset is -1: returns the flags that `recvmsg` takes.
fn at_no_offset(offset: off_t, flags: c_int) -> Result<c_int, Errno> {
    const OF_FILES: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC;
    match (offset, flags & !OF_FILES) {
        (-1, 0) => Ok(0),
        (-1, libc::RWF_NOWAIT) => Ok(libc::MSG_DONTWAIT),
        (-1, _) => Err(Errno::UNSUPPORTED),
        _ => Err(Errno(libc::ESPIPE)),
    }
}

/// Checks a count against the buffer's size. A greater one is passed to the C library, which ends
/// the program, as it was built to be.
fn within(count: size_t, room: size_t) -> Result<(), Errno> {
    if count <= room { Ok(()) } else { Err(Errno::PLAIN) }
}

pub(crate) fn octets(count: usize) -> ssize_t {
    count as ssize_t
}
