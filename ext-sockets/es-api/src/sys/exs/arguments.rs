//! Arguments of a C program, made into [`Work`].
//!
//! Everything but the memory that is moved is copied, so that the program may use its structures
//! again at once. Null pointers give `EFAULT`; other pointers are trusted to lead to what
//! `include/rddp/exs.h` asks for.

use std::ffi::{c_int, c_void};
use std::slice::from_raw_parts;

use libc::{iovec, pollfd, sockaddr, socklen_t};
use rddp_real::Errno;

use super::types::{IoVec, MsgHdr, XferFile, XferPart, parts};
use crate::as_program::{AcceptAddr, Address, Pieces, Places, PollPlaces};
use crate::exs::memory::{self, Used};
use crate::exs::work::{Part, Work};

/// Most pieces of a message, as in the kernel.
const IOV_MAX: c_int = 1024;
/// Most descriptors of a poll, and places of an accept.
const MANY: c_int = 65536;
const SEND_FLAGS: c_int = libc::MSG_MORE | libc::MSG_NOSIGNAL | libc::MSG_EOR;
const RECEIVE_FLAGS: c_int = libc::MSG_WAITALL | libc::MSG_PEEK;

/// Makes the work of `exs_send`.
///
/// # Safety
/// The memory stays as it is until the event.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn send(at: *const c_void, len: usize, flags: c_int, mhandle: c_int) -> Result<Work, Errno> {
    let one = IoVec { base: at.cast_mut(), len, mhandle };
    // SAFETY: the one piece is the memory that the program lends until the event.
    unsafe { to_send(&[one], flags, false) }
}

/// Makes the work of `exs_sendmsg`.
///
/// # Safety
/// The structure is there; the memory stays as it is until the event.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn send_message(msg: *const MsgHdr, flags: c_int) -> Result<Work, Errno> {
    // SAFETY: the program's structure is there, and its pieces are memory lent until the event.
    unsafe { to_send(pieces_of(msg)?, flags, true) }
}

/// Makes the work of `exs_recv`.
///
/// # Safety
/// Until the event nobody else uses the memory.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn receive(at: *mut c_void, len: usize, flags: c_int, mhandle: c_int) -> Result<Work, Errno> {
    // SAFETY: the one piece is the memory that the program leaves to us until the event.
    unsafe { to_receive(&[IoVec { base: at, len, mhandle }], flags, false) }
}

/// Makes the work of `exs_recvmsg`.
///
/// # Safety
/// The structure is there; until the event nobody else uses the memory.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn receive_message(msg: *const MsgHdr, flags: c_int) -> Result<Work, Errno> {
    // SAFETY: the program's structure is there, and its pieces are memory left to us until the
    // event.
    unsafe { to_receive(pieces_of(msg)?, flags, true) }
}

/// Makes the work of `exs_sendfile`.
///
/// # Safety
/// The structure is there; files and memory stay as they are until the event.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn send_file(file: *const XferFile, flags: c_int) -> Result<Work, Errno> {
    // SAFETY: null, or the program's structure, which stays as it is during this call.
    let file = unsafe { file.as_ref() }.ok_or(Errno::FAULT)?;
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno::INVALID);
    }
    let (mut list, mut used) = (Vec::new(), Used::default());
    // SAFETY: the structure has `count` parts, which stay as they are during this call.
    for part in unsafe { list_of(file.parts, file.count, IOV_MAX) }? {
        // SAFETY: a part of this structure, whose kind says which member is set, and whose memory
        // the program lends until the event.
        list.push(unsafe { part_of(part, &mut used) }?);
    }
    list.reverse();
    Ok(Work::SendFile { parts: list, flags, used })
}

/// Makes the work of `exs_connect`.
///
/// # Safety
/// The address is as long as it is said.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn connect(addr: *const sockaddr, len: socklen_t, flags: c_int) -> Result<Work, Errno> {
    if flags != 0 {
        return Err(Errno::INVALID);
    }
    if addr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the program's address has `len` octets; null was ruled out.
    let addr = unsafe { Address::copy(addr, len) }.ok_or(Errno::INVALID)?;
    Ok(Work::Connect { addr, begun: false })
}

/// Makes the work of `exs_accept`.
///
/// # Safety
/// Until the event nobody else uses the places and what they lead to.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn accept(at: *mut AcceptAddr, count: c_int, flags: c_int) -> Result<Work, Errno> {
    if flags & !(ACCEPT_FILDES | ACCEPT_AHANDLE) != 0 {
        return Err(Errno::INVALID);
    }
    let count = counted(at, count, MANY)?;
    // SAFETY: `at` leads to `count` places, which the program leaves to us until the event.
    let places = unsafe { Places::new(at, count) };
    Ok(Work::Accept { places, own_ahandle: flags & ACCEPT_AHANDLE != 0 })
}

/// `EXS_CAF_FILDES`: the socket's descriptor is wanted; here it always is given.
const ACCEPT_FILDES: c_int = 1;
/// `EXS_CAF_AHANDLE`.
const ACCEPT_AHANDLE: c_int = 2;

/// Makes the places of `exs_poll`.
///
/// # Safety
/// Until the event nobody else uses the structures.
///
/// # Errors
/// As in `include/rddp/exs.h`.
pub unsafe fn poll(at: *mut pollfd, count: c_int) -> Result<PollPlaces, Errno> {
    let count = counted(at, count, MANY)?;
    // SAFETY: `at` leads to `count` structures, which the program leaves to us until the event.
    Ok(unsafe { PollPlaces::new(at, count) })
}

/// Makes the work of a send from pieces of memory.
///
/// # Safety
/// As [`send`].
unsafe fn to_send(list: &[IoVec], flags: c_int, is_message: bool) -> Result<Work, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the pieces are memory that the program lends until the event.
    let (pieces, used) = unsafe { lent(list) }?;
    Ok(Work::Send { pieces, flags, used, is_message })
}

/// Makes the work of a receive into pieces of memory.
///
/// # Safety
/// As [`receive`].
unsafe fn to_receive(list: &[IoVec], flags: c_int, is_message: bool) -> Result<Work, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    if flags & !RECEIVE_FLAGS != 0 || flags == RECEIVE_FLAGS {
        return Err(Errno::INVALID);
    }
    // SAFETY: the pieces are memory that the program leaves to us until the event.
    let (pieces, used) = unsafe { lent(list) }?;
    // A receive of 0 octets says that the peer has closed, and nothing else (EX5).
    if pieces.left() == 0 {
        return Err(Errno::INVALID);
    }
    Ok(Work::Receive { pieces, flags, used, is_message, arrived: 0 })
}

/// Takes pieces of memory, and the regions that they lie in.
///
/// # Safety
/// As [`Pieces::new`].
unsafe fn lent(list: &[IoVec]) -> Result<(Pieces, Used), Errno> {
    let mut used = Used::default();
    let mut pieces = Vec::with_capacity(list.len());
    for piece in list {
        if piece.base.is_null() && piece.len != 0 {
            return Err(Errno::FAULT);
        }
        used.add(memory::of(piece.mhandle)?, piece.base.expose_provenance(), piece.len)?;
        if piece.len != 0 {
            pieces.push(iovec { iov_base: piece.base, iov_len: piece.len });
        }
    }
    // SAFETY: what is asked of each piece by `Pieces::new` is asked of them here.
    Ok((unsafe { Pieces::new(pieces) }.ok_or(Errno::INVALID)?, used))
}

/// Returns the pieces of a message.
///
/// # Safety
/// As [`send_message`].
unsafe fn pieces_of<'a>(msg: *const MsgHdr) -> Result<&'a [IoVec], Errno> {
    // SAFETY: null, or the program's structure, which stays as it is during the call.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::FAULT)?;
    if !msg.name.is_null() || !msg.control.is_null() {
        return Err(Errno::UNSUPPORTED);
    }
    // SAFETY: the structure has `iov_len` pieces at `iov`.
    unsafe { list_of(msg.iov, msg.iov_len, IOV_MAX) }
}

/// Makes one part of `exs_sendfile`, and adds the regions that it lies in.
///
/// # Safety
/// As [`send_file`].
unsafe fn part_of(part: &XferPart, used: &mut Used) -> Result<Part, Errno> {
    match part.kind {
        parts::MEMORY => {
            // SAFETY: `kind` says that the program has set this member.
            let memory = unsafe { part.of.memory };
            // SAFETY: the part's memory is lent until the event.
            let (pieces, more) = unsafe { lent(&[memory]) }?;
            used.join(more);
            Ok(Part::Memory(pieces))
        }
        parts::FILE => {
            // SAFETY: `kind` says that the program has set this member.
            let file = unsafe { part.of.file };
            let len = u64::try_from(file.len).map_err(|_| Errno::INVALID)?;
            if file.offset < 0
                || i64::try_from(len).ok().and_then(|len| file.offset.checked_add(len)).is_none()
            {
                return Err(Errno::INVALID);
            }
            Part::file(file.fd, file.offset, file.len)
        }
        _ => Err(Errno::INVALID),
    }
}

/// Returns the program's list as a slice.
///
/// # Safety
/// There are as many as is said.
unsafe fn list_of<'a, T>(at: *const T, count: c_int, most: c_int) -> Result<&'a [T], Errno> {
    let count = counted(at, count, most)?;
    // SAFETY: not null, and the program has put `count` values there.
    Ok(unsafe { from_raw_parts(at, count) })
}

fn counted<T>(at: *const T, count: c_int, most: c_int) -> Result<usize, Errno> {
    match count {
        ..=0 => Err(Errno::INVALID),
        _ if count > most => Err(Errno(libc::EMSGSIZE)),
        _ if at.is_null() => Err(Errno::FAULT),
        _ => Ok(count as usize),
    }
}
