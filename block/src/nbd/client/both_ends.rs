//! The client's end against the server's: what one writes, the other understands.

use proptest::prelude::*;

use super::opening::{Failed, Listed, Next, Open, Opening};
use super::replies::{Answered, Replies, Wanted};
use crate::export::{Command, DiskError, Export, Extent};
use crate::nbd::handshake::{Handshake, Next as Served};
use crate::nbd::request::Request;
use crate::nbd::{Terms, reply};

fn exports() -> [Export; 2] {
    [("first", 1000, false), ("second", 1 << 40, true)].map(|(name, size, writable)| Export {
        name: name.into(),
        size,
        writable,
    })
}

/// Has both ends talk until the client has ended. Returns that, and what the server has agreed to.
fn talk(mut client: Opening) -> (Result<Next, Failed>, Option<(usize, Terms)>) {
    let (mut server, mut agreed) = (Handshake::default(), None);
    let (mut to_client, mut to_server) = (Handshake::greeting(), Vec::new());
    loop {
        let now: Vec<u8> = to_client.drain(..client.wanted()).collect();
        let next = client.take(&now, &mut to_server);
        while agreed.is_none() && to_server.len() >= server.wanted() {
            let now: Vec<u8> = to_server.drain(..server.wanted()).collect();
            match server.take(&now, &exports(), &mut to_client).unwrap() {
                Served::More => {}
                Served::Transmit(at, terms) => agreed = Some((at, terms)),
                Served::Abort => break,
            }
        }
        if next != Ok(Next::More) {
            return (next, agreed);
        }
    }
}

fn open(name: &str) -> Open {
    let (next, _) = talk(Opening::of(name));
    let Ok(Next::Transmit(open)) = next else { panic!("{next:?}") };
    open
}

#[test]
fn both_ends_agree_on_an_export() {
    let (next, agreed) = talk(Opening::of("second"));
    let Ok(Next::Transmit(open)) = next else { panic!("{next:?}") };
    assert_eq!(agreed, Some((1, open.terms)));
    assert_eq!(open.terms, Terms { structured: true, allocation: true });
    let described = open.described;
    assert_eq!((described.size, described.minimum, described.maximum), (1 << 40, 1, 32 << 20));
    assert!(described.is_writable() && described.is_for_many() && described.flushes() && described.has_fua());
    assert!(described.trims() && described.zeroes());
    let first = self::open("").described;
    assert!(!first.is_writable() && !first.zeroes() && first.size == 1000);
}

#[test]
fn exports_are_listed_with_their_sizes() {
    let (next, _) = talk(Opening::for_list());
    let Ok(Next::Listed(listed)) = next else { panic!("{next:?}") };
    let shown = |listed: &Listed| (listed.name.clone(), listed.described.unwrap().size);
    let shown: Vec<_> = listed.iter().map(shown).collect();
    assert_eq!(shown, [("first".to_owned(), 1000), ("second".to_owned(), 1 << 40)]);
}

#[test]
fn an_export_that_is_not_there_is_unknown() {
    assert!(matches!(talk(Opening::of("third")).0, Err(Failed::Unknown(_))));
}

/// Has a client take all octets. Returns what is done, and the buffer of reads.
fn take(client: &mut Replies, mut octets: &[u8]) -> (Vec<Answered>, Vec<u8>) {
    let (mut answered, mut buffer) = (Vec::new(), vec![0xee; 1000]);
    while !octets.is_empty() {
        let news = match client.wanted() {
            Wanted::Octets(count) => {
                let (now, later) = octets.split_at(count);
                octets = later;
                client.take(now)
            }
            Wanted::Payload { at, len, .. } => {
                let (now, later) = octets.split_at(len as usize);
                octets = later;
                buffer[at as usize..][..now.len()].copy_from_slice(now);
                client.placed()
            }
        };
        answered.extend(news.unwrap().done);
    }
    (answered, buffer)
}

fn command() -> impl Strategy<Value = Command> {
    let numbers = (0..1u64 << 39, 0..1000u32, any::<bool>(), any::<bool>());
    (0..6, numbers).prop_map(|(kind, (offset, len, fua, other))| match kind {
        0 => Command::Read { offset, len },
        1 => Command::Write { offset, len, fua },
        2 => Command::Zero { offset, len, fua, may_trim: other },
        3 => Command::Trim { offset, len, fua },
        4 => Command::Status { offset, len, one: other },
        _ => Command::Flush,
    })
}

proptest! {
    /// A request is the command that it was made for, and its reply is the request's.
    #[test]
    fn requests_and_replies_are_understood(command in command(), cookie: u64, structured: bool, fails: bool) {
        let mut opened = open("second");
        if !structured {
            opened.terms = Terms::default();
        }
        let is_status = matches!(command, Command::Status { .. });
        prop_assume!(!is_status || structured && !matches!(command, Command::Status { len: 0, .. }));
        let terms = opened.terms;
        let mut client = Replies::new(&opened);
        let request = Request::parse(&client.ask(cookie, &command)).unwrap();
        prop_assert_eq!(request.cookie, cookie);
        prop_assert_eq!(request.check(&exports()[1], &terms), Ok(command));
        let extents = [Extent { len: 3, hole: true }, Extent { len: 1 << 33, hole: false }];
        let octets = match command {
            _ if fails => reply::failed(&terms, cookie, DiskError::NoSpc, request.is_read()),
            Command::Read { offset, len } => {
                [reply::of_read(&terms, cookie, offset, len), vec![7; len as usize]].concat()
            }
            Command::Status { one, .. } => reply::of_status(cookie, &extents, one),
            _ => reply::done(cookie),
        };
        let (answered, buffer) = take(&mut client, &octets);
        prop_assert_eq!(answered.len(), 1);
        prop_assert_eq!(answered[0].cookie, cookie);
        let result = answered[0].result.as_ref();
        match command {
            _ if fails => prop_assert_eq!(result, Err(&DiskError::NoSpc)),
            Command::Read { len, .. } => prop_assert!(buffer[..len as usize].iter().all(|octet| *octet == 7)),
            Command::Status { len, .. } => {
                let told: u64 = result.unwrap().iter().map(|extent| extent.len).sum();
                prop_assert!(told <= u64::from(len) && told > 0);
                prop_assert!(result.unwrap()[0].hole);
            }
            _ => prop_assert_eq!(result, Ok(&Vec::new())),
        }
    }
}
