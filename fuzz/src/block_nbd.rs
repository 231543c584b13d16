//! `block_nbd`: any octets of a client to the server's end of NBD.

use rddp_block::export::{Command, Export};
use rddp_block::nbd::handshake::{Handshake, Next};
use rddp_block::nbd::request::{REQUEST_LEN, Request};
use rddp_block::nbd::{MAX_PAYLOAD, Terms};

/// The longest that a client makes the server wait for, and send at a time.
const MOST: usize = 16 * 1024;

/// Runs one input: a handshake from its first octet on, and requests behind that.
pub fn run(octets: &[u8]) {
    let exports = [("first", 1000, false), ("second", u64::MAX, true)].map(|(name, size, writable)| Export {
        name: name.into(),
        size,
        writable,
    });
    let (mut machine, mut rest) = (Handshake::default(), octets);
    let (at, terms) = loop {
        let wanted = machine.wanted();
        assert!((1..=MOST).contains(&wanted));
        let Some((now, later)) = rest.split_at_checked(wanted) else { return };
        let mut out = Vec::new();
        let next = machine.take(now, &exports, &mut out);
        assert!(out.len() < MOST);
        rest = later;
        match next {
            Ok(Next::More) => {}
            Ok(Next::Transmit(at, terms)) => break (at, terms),
            Ok(Next::Abort) | Err(_) => return,
        }
    };
    while let Some((request, later)) = rest.split_first_chunk::<REQUEST_LEN>() {
        let Ok(request) = Request::parse(request) else { return };
        check(&request, &exports[at], &terms);
        rest = later.get(request.payload_len() as usize..).unwrap_or_default();
    }
}

/// Checks that what is accepted is on the disk and allowed there, by arithmetic that cannot wrap.
fn check(request: &Request, export: &Export, terms: &Terms) {
    assert!(request.payload_len() <= MAX_PAYLOAD);
    let Ok(command) = request.check(export, terms) else { return };
    let is_there = |offset: u64, len: u32| u128::from(offset) + u128::from(len) <= u128::from(export.size);
    match command {
        Command::Flush => {}
        Command::Read { offset, len } => assert!(is_there(offset, len) && len <= MAX_PAYLOAD),
        Command::Status { offset, len, .. } => assert!(is_there(offset, len) && terms.allocation),
        Command::Write { offset, len, .. }
        | Command::Zero { offset, len, .. }
        | Command::Trim { offset, len, .. } => assert!(is_there(offset, len) && export.writable),
    }
}
