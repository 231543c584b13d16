//! The options of TCP sockets that a socket in DDPMODE has.
//!
//! An option that is not named here is refused with ENOPROTOOPT, as is one that the kernel does not
//! know. Some options would break the framed stream or its caller: `TCP_ULP` puts TLS records
//! between the FPDUs, `TCP_REPAIR` sets sequence numbers, `SO_ZEROCOPY` promises completions that
//! never come, `TCP_ZEROCOPY_RECEIVE` maps FPDU headers into the program, `TCP_FASTOPEN` sends
//! before there is a startup.

use std::ffi::c_int;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};

/// The party that answers for an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// The kernel, as for any socket.
    Kernel,
    /// The kernel, for reading the value; the option cannot be set.
    KernelTells,
    /// The library, from [`super::SavedOptions`].
    Ours,
    /// Nobody: the option is refused with ENOPROTOOPT.
    Nobody,
}

/// Returns the party that answers for option `name` of `level` on a socket in DDPMODE.
pub fn care(level: c_int, name: c_int) -> Care {
    let (kernel, ours): (&[c_int], &[c_int]) = match level {
        SOL_SOCKET => (&SOCKET, &[libc::SO_RCVLOWAT, libc::SO_RCVTIMEO, libc::SO_SNDTIMEO]),
        IPPROTO_TCP => (&TCP, &[libc::TCP_CORK, libc::TCP_NODELAY]),
        IPPROTO_IP => (&IP, &[]),
        IPPROTO_IPV6 => (&IPV6, &[]),
        _ => (&[], &[]),
    };
    match name {
        // IP options would make every segment that holds an FPDU smaller than the stream expects.
        libc::IP_OPTIONS if level == IPPROTO_IP => Care::KernelTells,
        name if kernel.contains(&name) => Care::Kernel,
        name if ours.contains(&name) => Care::Ours,
        _ => Care::Nobody,
    }
}

const SOCKET: [c_int; 26] = [
    libc::SO_ACCEPTCONN,
    libc::SO_BINDTODEVICE,
    libc::SO_BINDTOIFINDEX,
    libc::SO_BROADCAST,
    libc::SO_BUSY_POLL,
    libc::SO_COOKIE,
    libc::SO_DOMAIN,
    libc::SO_DONTROUTE,
    libc::SO_ERROR,
    libc::SO_INCOMING_CPU,
    libc::SO_INCOMING_NAPI_ID,
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_MARK,
    libc::SO_MAX_PACING_RATE,
    libc::SO_OOBINLINE,
    libc::SO_PRIORITY,
    libc::SO_PROTOCOL,
    libc::SO_RCVBUF,
    libc::SO_RCVBUFFORCE,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_SNDBUF,
    libc::SO_SNDBUFFORCE,
    libc::SO_TYPE,
    libc::SO_SNDLOWAT,
];

const TCP: [c_int; 19] = [
    libc::TCP_CC_INFO,
    libc::TCP_CONGESTION,
    libc::TCP_DEFER_ACCEPT,
    libc::TCP_INFO,
    libc::TCP_KEEPCNT,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_LINGER2,
    libc::TCP_MAXSEG,
    libc::TCP_NOTSENT_LOWAT,
    libc::TCP_QUICKACK,
    libc::TCP_SAVED_SYN,
    libc::TCP_SAVE_SYN,
    libc::TCP_SYNCNT,
    libc::TCP_THIN_DUPACK,
    libc::TCP_THIN_LINEAR_TIMEOUTS,
    libc::TCP_TIMESTAMP,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_WINDOW_CLAMP,
];

const IP: [c_int; 10] = [
    libc::IP_BIND_ADDRESS_NO_PORT,
    libc::IP_FREEBIND,
    libc::IP_MINTTL,
    libc::IP_MTU,
    libc::IP_MTU_DISCOVER,
    // The next call reports an error that this option brings once; the stream goes on, as over TCP.
    libc::IP_RECVERR,
    libc::IP_TOS,
    libc::IP_TRANSPARENT,
    libc::IP_TTL,
    libc::SO_ORIGINAL_DST,
];

const IPV6: [c_int; 11] = [
    libc::IP6T_SO_ORIGINAL_DST,
    libc::IPV6_FREEBIND,
    libc::IPV6_MINHOPCOUNT,
    libc::IPV6_MTU,
    libc::IPV6_MTU_DISCOVER,
    libc::IPV6_PKTINFO,
    libc::IPV6_RECVERR,
    libc::IPV6_TCLASS,
    libc::IPV6_TRANSPARENT,
    libc::IPV6_UNICAST_HOPS,
    libc::IPV6_V6ONLY,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_would_break_a_framed_stream_are_refused() {
        const TCP_ZEROCOPY_RECEIVE: c_int = 35;
        for name in [
            libc::TCP_ULP,
            libc::TCP_REPAIR,
            libc::TCP_FASTOPEN,
            TCP_ZEROCOPY_RECEIVE,
            libc::TCP_FASTOPEN_CONNECT,
        ] {
            assert_eq!(care(IPPROTO_TCP, name), Care::Nobody, "{name}");
        }
        for name in [libc::SO_ZEROCOPY, libc::SO_ATTACH_FILTER, libc::SO_TIMESTAMP, 9999] {
            assert_eq!(care(SOL_SOCKET, name), Care::Nobody, "{name}");
        }
        assert_eq!(care(libc::SOL_TLS, 1), Care::Nobody);
    }

    #[test]
    fn options_that_the_stream_acts_on_are_ours_and_others_the_kernels() {
        assert_eq!(care(IPPROTO_TCP, libc::TCP_NODELAY), Care::Ours);
        assert_eq!(care(SOL_SOCKET, libc::SO_RCVLOWAT), Care::Ours);
        assert_eq!(care(SOL_SOCKET, libc::SO_RCVBUF), Care::Kernel);
        assert_eq!(care(IPPROTO_TCP, libc::TCP_INFO), Care::Kernel);
        assert_eq!(care(IPPROTO_IPV6, libc::IPV6_V6ONLY), Care::Kernel);
        assert_eq!(care(IPPROTO_IP, libc::IP_OPTIONS), Care::KernelTells);
        assert_eq!(care(SOL_SOCKET, libc::IP_OPTIONS), Care::Kernel, "SO_ERROR has its number");
    }
}
