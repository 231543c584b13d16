//! A program that has not switched `SIGPIPE` off. Runs alone in its process, whose signals it
//! changes.
#![allow(missing_docs)]

mod common;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::End;
use nix::sys::signal::{SigHandler, Signal, signal};
use rddp_mpa::Initiator;
use rddp_rnic::{ConnectError, ConnectOptions, ConnectRequest};
use rddp_test_support::plain;
use socket2::SockRef;

/// Returns a Request whose peer has closed and then reset since.
fn request_of_a_peer_that_is_gone(end: &End) -> ConnectRequest {
    let options = ConnectOptions::default();
    let listener = end.rnic.listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.write_all(Initiator::new(&plain(), b"").unwrap().request()).unwrap();
    let request = listener.accept(Some(common::PATIENCE)).unwrap().expect("a request");
    peer.shutdown(Shutdown::Write).unwrap();
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    request
}

/// RFC 5042 §6.4: a peer ends its own connection and not the program.
#[test]
fn answering_a_peer_that_is_gone_raises_no_signal() {
    // SAFETY: the default action runs no handler.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.unwrap();
    let end = End::new();
    let accepted = request_of_a_peer_that_is_gone(&end).accept(&end.qp, b"");
    assert!(matches!(accepted, Err(ConnectError::Tcp(_))), "{accepted:?}");
    let rejected = request_of_a_peer_that_is_gone(&end).reject(b"");
    assert!(matches!(rejected, Err(ConnectError::Tcp(_))), "{rejected:?}");
}
