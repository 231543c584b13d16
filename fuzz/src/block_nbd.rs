//! `block_nbd`: any octets to either end of NBD, as from the other.

use rddp_block::export::{Command, Export};
use rddp_block::nbd::client::opening::{Next as Opened, Open, Opening};
use rddp_block::nbd::client::replies::{Replies, Wanted};
use rddp_block::nbd::handshake::{Handshake, Next};
use rddp_block::nbd::request::{REQUEST_LEN, Request};
use rddp_block::nbd::{MAX_PAYLOAD, Terms};

/// The longest that one end makes the other wait for, and send at a time.
const MOST: usize = 16 * 1024;

/// Runs one input: a handshake from its first octet on, and requests or replies behind that. The
/// ends part at the first octets.
pub fn run(octets: &[u8]) {
    serve(octets);
    ask(Opening::of("disk"), octets);
    ask(Opening::for_list(), octets);
}

/// Has a client take the octets.
fn ask(mut opening: Opening, octets: &[u8]) {
    let mut rest = octets;
    let open = loop {
        let wanted = opening.wanted();
        assert!((1..=MOST).contains(&wanted));
        let Some((now, later)) = rest.split_at_checked(wanted) else { return };
        let mut out = Vec::new();
        let next = opening.take(now, &mut out);
        assert!(out.len() < MOST);
        rest = later;
        match next {
            Ok(Opened::More) => {}
            Ok(Opened::Transmit(open)) => break open,
            Ok(Opened::Listed(_)) | Err(_) => return,
        }
    };
    let described = open.described;
    assert!(described.minimum.is_power_of_two() && described.maximum <= MAX_PAYLOAD);
    assert!(described.maximum >= described.minimum && described.size <= i64::MAX as u64);
    take(&open, rest);
}

/// Has a client with requests under way take replies.
fn take(open: &Open, mut rest: &[u8]) {
    const READ: u32 = 64;
    let mut replies = Replies::new(open);
    for cookie in 0..8 {
        let offset = cookie * 1000;
        let _ = replies.ask(
            cookie,
            &match cookie {
                0..4 => Command::Read { offset, len: READ },
                4..6 => Command::Status { offset, len: READ, one: false },
                _ => Command::Flush,
            },
        );
    }
    loop {
        let wanted = replies.wanted();
        let len = match wanted {
            Wanted::Octets(count) => count,
            Wanted::Payload { cookie, at, len } => {
                assert!(cookie < 4 && u64::from(at) + u64::from(len) <= READ.into());
                len as usize
            }
        };
        assert!((1..=MOST).contains(&len));
        let Some((now, later)) = rest.split_at_checked(len) else { return };
        rest = later;
        let news = match wanted {
            Wanted::Octets(_) => replies.take(now),
            Wanted::Payload { .. } => replies.placed(),
        };
        let Ok(news) = news else { return };
        if let Some(zeroes) = news.zeroes {
            assert!(u64::from(zeroes.at) + u64::from(zeroes.len) <= READ.into());
        }
        if let Some(Ok(extents)) = news.done.map(|done| done.result) {
            assert!(extents.iter().map(|extent| extent.len).sum::<u64>() <= READ.into());
        }
    }
}

/// Has a server take the octets.
fn serve(octets: &[u8]) {
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
