//! Network namespaces that a test makes, and connections in them.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
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

/// Returns two ends of a new connection over the loopback: the peer's, and this side's.
pub fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (peer, listener.accept().unwrap().0)
}

/// Returns the connection's name at this end.
pub fn tuple(own: &TcpStream) -> Tuple {
    let (peer, own) = (v4(own.peer_addr().unwrap()), v4(own.local_addr().unwrap()));
    Tuple {
        peer_addr: peer.ip().octets(),
        own_addr: own.ip().octets(),
        peer_port: peer.port().to_be_bytes(),
        own_port: own.port().to_be_bytes(),
    }
}

fn v4(addr: SocketAddr) -> SocketAddrV4 {
    match addr {
        SocketAddr::V4(addr) => addr,
        SocketAddr::V6(addr) => panic!("{addr} is not IPv4"),
    }
}
