//! System calls that have no safe wrapper.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

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

/// The questions to a peer's TCP that are without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    /// Retransmissions in a row, or probes of a closed window. Those of keepalive do not count.
    pub(crate) questions: u32,
    /// The time since the last segment of the peer.
    pub(crate) silence: Duration,
}

/// Asks TCP what its peer has left without an answer.
pub(crate) fn unanswered(socket: BorrowedFd<'_>) -> io::Result<Unanswered> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets of `info`, which has as many.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers, all of them zero where the kernel has not written any.
    let info = unsafe { info.assume_init() };
    // Linux counts probes of a closed window and those of keepalive in one field, the latter only
    // while nothing waits to be sent.
    let probes = if info.tcpi_notsent_bytes > 0 { info.tcpi_probes } else { 0 };
    Ok(Unanswered {
        questions: u32::from(info.tcpi_retransmits.max(probes)),
        silence: Duration::from_millis(u64::from(info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv))),
    })
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
