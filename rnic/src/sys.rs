//! System calls that have no safe wrapper.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Resets a TCP connection at once, for every descriptor and process that has the socket: closing
/// this descriptor alone would leave the others connected.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: `nowhere` is a `sockaddr` that lives through the call, and the length is its size.
    // The call fails only if there is no connection to reset.
    unsafe {
        libc::connect(socket.as_raw_fd(), &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t)
    };
}

/// Tells the socket switch, if this process runs under `rddp run`, to leave a socket of ours alone,
/// since the octets on it are FPDUs already. Called before the socket connects or listens. The
/// sockets that it accepts are left alone, too.
pub(crate) fn stay_plain(socket: BorrowedFd<'_>) {
    // SAFETY: the value is a static `c_int`, and the length is its size. Without a switch the
    // kernel refuses the option, and the socket is as it should be.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_DDP,
            DDPMODE,
            (&raw const DDP_MODE_OFF).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
}

// The numbers of `ext-sockets/include/rddp/ddp.h`.
const SOL_DDP: c_int = 0x4444;
const DDPMODE: c_int = 1;
static DDP_MODE_OFF: c_int = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_socket_switch_are_those_of_its_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ext-sockets/include/rddp/ddp.h");
        let header = std::fs::read_to_string(path).unwrap();
        for line in [
            format!("#define SOL_DDP {SOL_DDP:#x}\n"),
            format!("#define DDPMODE {DDPMODE}\n"),
            format!("    DDP_MODE_OFF = {DDP_MODE_OFF}, "),
        ] {
            assert!(header.contains(&line), "{line}");
        }
    }
}
