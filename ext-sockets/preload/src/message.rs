//! `struct msghdr`, read and filled for a framed stream.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, ssize_t, timespec};
use rddp_stream::{Errno, lent};
use rddp_switch::kinds::{self, Ours};

use crate::data::{self, octets, open_and};
use crate::pieces::Pieces;

/// Receives into the pieces of a message (`recvmsg`).
///
/// # Safety
///
/// As for `recvmsg`.
pub(crate) unsafe fn receive(framed: &Ours, msg: *mut msghdr, flags: c_int) -> Result<ssize_t, Errno> {
    // SAFETY: null or the program's message; `lent` fails where no memory is.
    let given = unsafe { lent::get(msg) }?;
    // SAFETY: the message's list of pieces, as `recvmsg` takes it; a copy of its entries is
    // checked.
    let mut pieces = unsafe { Pieces::of(given.msg_iov, given.msg_iovlen, Errno(libc::EMSGSIZE)) }?;
    // SAFETY: each piece is memory that the program gives up for the call, as for `recvmsg`.
    let done = framed.recv(unsafe { pieces.sink() }, flags)?;
    // TCP gives no address and no control messages.
    // SAFETY: fields of the program's message; `lent` fails where it cannot be written.
    unsafe {
        lent::put(&raw mut (*msg).msg_namelen, 0)?;
        lent::put(&raw mut (*msg).msg_controllen, 0)?;
        lent::put(&raw mut (*msg).msg_flags, flags & libc::MSG_CMSG_CLOEXEC)?;
    }
    Ok(octets(done))
}

/// Sends the pieces of a message (`sendmsg`).
///
/// # Safety
///
/// As for `sendmsg`.
pub(crate) unsafe fn send(framed: &Ours, msg: *const msghdr, flags: c_int) -> Result<ssize_t, Errno> {
    // SAFETY: null or the program's message; `lent` fails where no memory is.
    let msg = unsafe { lent::get(msg) }?;
    // SAFETY: the message's list of pieces, as `sendmsg` takes it; a copy of its entries is
    // checked.
    let pieces = unsafe { Pieces::of(msg.msg_iov, msg.msg_iovlen, Errno(libc::EMSGSIZE)) }?;
    // SAFETY: each piece is memory of the program's that stays for the call, as for `sendmsg`.
    framed.send(unsafe { pieces.source() }, flags).map(octets)
}

/// Connects and sends a message (`sendmsg` with `MSG_FASTOPEN`): see [`open_and`].
///
/// # Safety
///
/// As for `sendmsg`.
pub(crate) unsafe fn open_and_send(fd: c_int, msg: *const msghdr, flags: c_int) -> Option<ssize_t> {
    // SAFETY: null or the program's message, with an address and pieces as `sendmsg` takes them.
    unsafe {
        let (name, len) = msg.as_ref().map(|msg| (msg.msg_name.cast(), msg.msg_namelen))?;
        open_and(fd, name, len, || data::sendmsg(fd, msg, flags & !libc::MSG_FASTOPEN))
    }
}

/// Connects and sends the first message (`sendmmsg` with `MSG_FASTOPEN`). The next would open the
/// connection again, which is where the kernel stops.
///
/// # Safety
///
/// As for `sendmmsg`.
pub(crate) unsafe fn open_and_send_first(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Option<c_int> {
    // SAFETY: null, or the first of `count` messages of the program's; used only if there is one.
    let first = unsafe { msgs.as_mut() }.filter(|_| count > 0)?;
    // SAFETY: a message of the program's, as `sendmsg` takes it.
    let sent = unsafe { open_and_send(fd, &raw const first.msg_hdr, flags) }?;
    Some(c_uint::try_from(sent).map_or(-1, |sent| {
        first.msg_len = sent;
        1
    }))
}

/// Receives messages one after the other (`recvmmsg`), as long as there are octets at once.
///
/// # Safety
///
/// As for `recvmmsg`.
pub(crate) unsafe fn receive_many(
    framed: &Ours,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *const timespec,
) -> Result<c_int, Errno> {
    // SAFETY: not null, so the program's time; `lent` fails where no memory is. Here the time is
    // only checked: the kernel compares it between messages, and here no message after the first
    // waits.
    let timeout = if timeout.is_null() { None } else { Some(unsafe { lent::get(timeout) }?) };
    if timeout.is_some_and(|time| time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec)) {
        return Err(Errno::INVALID);
    }
    let later = if flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
    let flags = flags & !libc::MSG_WAITFORONE;
    // SAFETY: the program's messages, as `recvmmsg` takes them; `many` passes each to `receive`.
    unsafe { many(msgs, count, |msg, first| receive(framed, msg, if first { flags } else { flags | later })) }
}

/// Sends messages one after the other (`sendmmsg`), up to the first that is not sent whole.
///
/// # Safety
///
/// As for `sendmmsg`.
pub(crate) unsafe fn send_many(
    framed: &Ours,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> Result<c_int, Errno> {
    // SAFETY: the program's messages, as `sendmmsg` takes them; `many` passes each to `send`.
    unsafe { many(msgs, count, |msg, _| send(framed, msg, flags)) }
}

/// Moves messages one after the other by `one`; returns their number.
///
/// # Safety
///
/// `msgs` is null or points to `count` of them, with each of which `one` may be called.
unsafe fn many(
    msgs: *mut mmsghdr,
    count: c_uint,
    one: impl Fn(*mut msghdr, bool) -> Result<ssize_t, Errno>,
) -> Result<c_int, Errno> {
    let count = count.min(libc::UIO_MAXIOV as c_uint);
    if msgs.is_null() && count > 0 {
        return Err(Errno::FAULT);
    }
    for done in 0..count {
        // SAFETY: the index is below `count`; `lent` fails where no memory is, and `one` may be
        // called with each message.
        let moved = unsafe {
            let entry = msgs.add(done as usize);
            lent::get(entry).and_then(|given| {
                let octets = one(&raw mut (*entry).msg_hdr, done == 0)?;
                lent::put(&raw mut (*entry).msg_len, octets as c_uint)?;
                Ok((octets, given.msg_hdr.msg_iovlen))
            })
        };
        match moved {
            Ok((octets, wanted)) => {
                // The end of the stream, or no room: the next message would find the same, and only
                // a call of its own may say so.
                if octets == 0 && wanted > 0 {
                    return Ok(done as c_int + 1);
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done as c_int),
        }
    }
    Ok(count as c_int)
}

/// Adopts descriptors in a message that came on a plain socket: they may be streams of another
/// process.
///
/// # Safety
///
/// `recvmsg` has filled it.
pub(crate) unsafe fn adopt_descriptors(msg: *const msghdr) {
    // SAFETY: the kernel has filled the message, so that its control data is there, and made of
    // whole headers.
    unsafe {
        if (*msg).msg_controllen == 0 {
            return;
        }
        let mut header = libc::CMSG_FIRSTHDR(msg);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let fds = libc::CMSG_DATA(header).cast::<c_int>();
                for at in 0..len / size_of::<c_int>() {
                    kinds::received(fds.add(at).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(msg, header);
        }
    }
}

/// Announces descriptors in a message that is about to be sent on a plain socket: the receiver may
/// go on with the streams of this process.
///
/// # Safety
///
/// As for `sendmsg`.
#[cold]
pub(crate) unsafe fn announce_descriptors(msg: *const msghdr) {
    // SAFETY: null or the program's message; `lent` fails where no memory is.
    let Ok(given) = (unsafe { lent::get(msg) }) else { return };
    let mut control = Control([0; CONTROL]);
    let len = given.msg_controllen.min(CONTROL);
    // SAFETY: the message's control data, as `sendmsg` takes it; `lent` fails where no memory is.
    let copied = unsafe { lent::get_octets(given.msg_control.cast(), &mut control.0[..len]) };
    if len == 0 || copied.is_err() {
        return;
    }
    let copy = msghdr { msg_control: control.0.as_mut_ptr().cast(), msg_controllen: len, ..given };
    let end = control.0.as_ptr().addr() + len;
    // SAFETY: the copy of the control data, aligned as headers are, within which the C library's
    // macros stay.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const copy) };
    while !header.is_null() {
        // SAFETY: a header in the copy.
        let (at, data) = unsafe { (header.read(), libc::CMSG_DATA(header).cast::<c_int>()) };
        let room = end.saturating_sub(data.addr());
        if at.cmsg_level == libc::SOL_SOCKET && at.cmsg_type == libc::SCM_RIGHTS {
            let len = at.cmsg_len.saturating_sub(data.addr() - header.addr()).min(room);
            for number in 0..len / size_of::<c_int>() {
                // SAFETY: within the copy, as `room` says.
                kinds::passing(unsafe { data.add(number).read_unaligned() });
            }
        }
        // SAFETY: the message and a header in it, as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const copy, header) };
    }
}

/// Room for control data, aligned as its headers are.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Octets of control data that are looked at: more than the kernel's limit of 253 descriptors.
const CONTROL: usize = 2048;
