//! Sockets that the socket switch (`rddp run`) is to leave alone: they carry FPDUs already.
#![allow(unsafe_code)] // no safe wrapper sets an option of a level of its own

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Keeps a socket that is to be connected, or to listen, out of the switch's hands; what is
/// accepted on it, too.
pub(super) fn stay_plain(socket: BorrowedFd<'_>) {
    // SAFETY: the value is as long as is said. Without the switch the kernel has no such option,
    // which is as good.
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

// As `ext-sockets/include/rddp/ddp.h` has them.
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
