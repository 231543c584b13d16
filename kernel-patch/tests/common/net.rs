//! Network namespaces that a test makes, and connections in them.

use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;

use rddp_kernel_patch::layout::Tuple;

/// Runs `test` in a thread with a network namespace of its own, in which `lo` is up. Without root
/// it says that it does not, and returns.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: a network namespace and an eBPF program need root");
        return;
    }
    let thread = std::thread::spawn(|| {
        enter_new();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Puts the calling thread into a new network namespace.
pub fn enter_new() {
    // SAFETY: changes this thread's network namespace alone.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "unshare: {}", io::Error::last_os_error());
    ip("link set lo up");
}

/// Runs `ip` with these words in the thread's network namespace.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Sets a value of `/proc/sys/net`, of the thread's network namespace.
pub fn set(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
}

/// Puts a frame on the loopback of the thread's network namespace.
pub fn inject(frame: &[u8]) {
    // SAFETY: makes a socket, which is ours.
    let mut socket = unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0, "{}", io::Error::last_os_error());
        File::from_raw_fd(socket)
    };
    let addr = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: 1,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: an address of that length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), len) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    socket.write_all(frame).unwrap();
}

/// Returns two ends of a new connection between sockets of this address: the peer's, and this
/// side's.
pub fn connection(addr: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((addr, 0)).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (peer, listener.accept().unwrap().0)
}

/// Returns the connection's name at this end.
pub fn tuple(own: &TcpStream) -> Tuple {
    Tuple::new(own.peer_addr().unwrap(), own.local_addr().unwrap())
}
