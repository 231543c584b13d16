//! TCP's reset, at once.
#![allow(unsafe_code)] // no safe wrapper takes an address of no family

use std::os::fd::{AsRawFd, BorrowedFd};

/// Resets a connection, also where others hold its socket, too: closing it would leave theirs connected.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: the address is as long as is said. A failure says that there is no connection.
    unsafe {
        libc::connect(socket.as_raw_fd(), &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t)
    };
}
