//! Startup frames written by hand (RFC 5044 §7.1.1, RFC 6581 §9).

use std::net::TcpStream;
use std::time::Duration;

use rddp_rnic::{ConnectOptions, Listener};
use rddp_test_support::connect;

use crate::common::{End, PATIENCE};

pub const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
pub const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// Flags of octet 16.
pub const M: u8 = 0x80;
pub const C: u8 = 0x40;
pub const R: u8 = 0x20;
pub const S: u8 = 0x10;

/// A time that is enough for a slow machine, and short enough to be waited for.
pub const SHORT: Duration = Duration::from_millis(400);

pub fn frame(key: &[u8; 16], flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(private_data.len()).unwrap().to_be_bytes();
    [key.as_slice(), &[flags, revision], &len, private_data].concat()
}

/// Returns RFC 6581's data: A and B with IRD, C and D with ORD.
pub fn depths(ird: u16, ord: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
    [a, b, c, d]
}

/// Flag for a peer-to-peer connection.
pub const A: u16 = 0x8000;
/// A Send as RTR, in the word of the IRD.
pub const RTR_SEND: u16 = 0x4000;
/// A Write as RTR, in the word of the ORD.
pub const RTR_WRITE: u16 = 0x8000;
/// A Read as RTR, in the word of the ORD.
pub const RTR_READ: u16 = 0x4000;

/// Returns a Request of revision 2 that every responder accepts.
pub fn good_request() -> Vec<u8> {
    frame(REQUEST, C | S, 2, &depths(8, 8))
}

pub fn options(timeout: Duration) -> ConnectOptions {
    ConnectOptions { timeout, ..Default::default() }
}

pub fn listener(end: &End, options: &ConnectOptions) -> Listener {
    end.rnic.listen("127.0.0.1:0".parse().unwrap(), options).unwrap()
}

pub fn dial(listener: &Listener) -> TcpStream {
    connect(listener.local_addr().unwrap())
}

/// Checks that a proper peer is still served.
pub fn still_listens(listener: &Listener) {
    use std::io::Write;
    let mut socket = dial(listener);
    socket.write_all(&good_request()).unwrap();
    let request = listener.accept(Some(PATIENCE)).unwrap();
    assert!(request.is_some(), "the listener no longer takes connections");
}
