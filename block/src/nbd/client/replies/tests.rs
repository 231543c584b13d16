use super::*;
use crate::nbd::client::opening::{Next, Opening};

const ID: u32 = 9;
const COOKIE: u64 = 5;

/// Replies of a connection with structured replies, or without.
fn replies(structured: bool) -> Replies {
    let terms = Terms { structured, allocation: structured };
    Replies {
        terms,
        allocation_id: ID,
        stage: Stage::Header,
        under_way: HashMap::new(),
        said: Said::default(),
    }
}

fn read() -> Command {
    Command::Read { offset: 1000, len: 100 }
}

fn status() -> Command {
    Command::Status { offset: 0, len: 1000, one: false }
}

fn simple(error: u32, cookie: u64) -> Vec<u8> {
    [&SIMPLE.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

fn chunk(flags: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    with_length(flags, kind, data.len() as u32, data)
}

fn with_length(flags: u16, kind: u16, len: u32, data: &[u8]) -> Vec<u8> {
    let words = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
    [&STRUCTURED.to_be_bytes()[..], &words, &COOKIE.to_be_bytes(), &len.to_be_bytes(), data].concat()
}

fn at(offset: u64, behind: &[u8]) -> Vec<u8> {
    [&offset.to_be_bytes()[..], behind].concat()
}

/// The outcome, and the octets of the read: 0xee where none came.
fn take(replies: &mut Replies, mut octets: &[u8]) -> Result<(Vec<Answered>, Vec<u8>), Nonsense> {
    let (mut answered, mut buffer) = (Vec::new(), vec![0xee; 100]);
    loop {
        let wanted = match replies.wanted() {
            Wanted::Octets(count) => count,
            Wanted::Payload { len, .. } => len as usize,
        };
        assert!(wanted > 0 && wanted <= 8192);
        let Some((now, later)) = octets.split_at_checked(wanted) else { break };
        octets = later;
        let news = match replies.wanted() {
            Wanted::Octets(_) => replies.take(now)?,
            Wanted::Payload { at, len, .. } => {
                buffer[at as usize..(at + len) as usize].copy_from_slice(now);
                replies.placed()?
            }
        };
        if let Some(Zeroes { at, len, .. }) = news.zeroes {
            buffer[at as usize..(at + len) as usize].fill(0);
        }
        answered.extend(news.done);
    }
    Ok((answered, buffer))
}

fn asked(command: &Command, octets: &[u8]) -> Result<(Vec<Answered>, Vec<u8>), Nonsense> {
    let mut replies = replies(true);
    replies.ask(COOKIE, command);
    take(&mut replies, octets)
}

#[test]
fn a_read_comes_in_pieces_and_holes_in_any_order() {
    let octets = [
        chunk(0, OFFSET_DATA, &at(1060, &[3; 40])),
        chunk(0, OFFSET_HOLE, &at(1020, &40u32.to_be_bytes())),
        chunk(0, OFFSET_DATA, &at(1000, &[1; 20])),
        chunk(DONE, NONE, &[]),
    ];
    let (answered, buffer) = asked(&read(), &octets.concat()).unwrap();
    assert_eq!(answered, [Answered { cookie: COOKIE, result: Ok(Vec::new()) }]);
    assert_eq!(buffer, [vec![1; 20], vec![0; 40], vec![3; 40]].concat());
    // The last piece may say that it is the last, and a hole may be.
    let hole = chunk(DONE, OFFSET_HOLE, &at(1000, &100u32.to_be_bytes()));
    assert_eq!(asked(&read(), &hole).unwrap().1, [0; 100]);
}

#[test]
fn pieces_that_were_not_asked_for_are_refused_before_they_are_read() {
    let unwanted = |offset: u64, len: u32| {
        let header = with_length(0, OFFSET_DATA, len.wrapping_add(8), &at(offset, &[]));
        assert_eq!(asked(&read(), &header), Err(Nonsense::Unwanted { at: offset, len }));
    };
    unwanted(999, 10);
    unwanted(1000, 101);
    unwanted(1100, 1);
    unwanted(u64::MAX, 1);
    unwanted(1000, u32::MAX - 8);
    unwanted(1000 + (1 << 32), 1);
    // Twice the same.
    let piece = chunk(0, OFFSET_DATA, &at(1010, &[1; 20]));
    let twice = [&piece[..], &with_length(0, OFFSET_DATA, 9, &at(1029, &[]))].concat();
    assert_eq!(asked(&read(), &twice), Err(Nonsense::Unwanted { at: 1029, len: 1 }));
    assert_eq!(asked(&read(), &[piece, chunk(DONE, NONE, &[])].concat()), Err(Nonsense::Incomplete));
}

#[test]
fn lengths_that_a_chunk_cannot_have_are_refused() {
    for (kind, len) in [
        (NONE, 1),
        (OFFSET_DATA, 8),
        (OFFSET_DATA, 0),
        (OFFSET_HOLE, 11),
        (OFFSET_HOLE, u32::MAX),
        (ERROR, 5),
        (ERROR, u32::MAX),
        (ERROR_OFFSET, 13),
        (1 << 15 | 99, LONGEST_ERROR + 1),
    ] {
        let octets = with_length(DONE, kind, len, &[0; 12]);
        assert_eq!(asked(&read(), &octets), Err(Nonsense::Length { kind, len }), "{kind} {len}");
    }
    for len in [0, 4, 11, 13, u32::MAX, 4 + 8 * (MOST_TOLD + 1)] {
        let octets = with_length(DONE, BLOCK_STATUS, len, &ID.to_be_bytes());
        assert_eq!(asked(&status(), &octets), Err(Nonsense::Length { kind: BLOCK_STATUS, len }), "{len}");
    }
    // Not the last, and yet nothing.
    assert_eq!(asked(&read(), &chunk(0, NONE, &[])), Err(Nonsense::Length { kind: NONE, len: 0 }));
    // Holes of no octets make an endless reply.
    let hole = chunk(0, OFFSET_HOLE, &at(1000, &[0; 4]));
    assert_eq!(asked(&read(), &hole), Err(Nonsense::Length { kind: OFFSET_HOLE, len: 12 }));
}

#[test]
fn errors_end_a_request_and_their_text_is_checked() {
    let failed =
        |octets: &[u8]| asked(&read(), octets).map(|(mut answered, _)| answered.pop().unwrap().result);
    let error = |number: u32, text: &[u8]| {
        [&number.to_be_bytes()[..], &(text.len() as u16).to_be_bytes(), text].concat()
    };
    assert_eq!(failed(&chunk(DONE, ERROR, &error(5, b"oh"))), Ok(Err(DiskError::Io)));
    let with_offset = [error(28, b""), 7u64.to_be_bytes().to_vec()].concat();
    assert_eq!(failed(&chunk(DONE, ERROR_OFFSET, &with_offset)), Ok(Err(DiskError::NoSpc)));
    assert_eq!(failed(&chunk(DONE, 1 << 15 | 99, &error(1, b""))), Ok(Err(DiskError::Perm)));
    assert_eq!(failed(&chunk(DONE, ERROR, &error(0, b""))), Ok(Err(DiskError::Inval)));
    assert_eq!(failed(&simple(12, COOKIE)), Ok(Err(DiskError::NoMem)));
    // An error, data, and the end.
    let data = chunk(0, OFFSET_DATA, &at(1000, &[1; 100]));
    let octets = [chunk(0, ERROR, &error(5, b"")), data, chunk(DONE, NONE, &[])].concat();
    assert_eq!(failed(&octets), Ok(Err(DiskError::Io)));
    let short = [&5u32.to_be_bytes()[..], &9u16.to_be_bytes(), b"oh"].concat();
    assert_eq!(failed(&chunk(DONE, ERROR, &short)), Err(Nonsense::Length { kind: ERROR, len: 8 }));
    let mut replies = replies(true);
    replies.ask(COOKIE, &read());
    take(&mut replies, chunk(DONE, ERROR, &error(5, b" oh ")).as_slice()).unwrap();
    assert_eq!(replies.said().to_string(), ": oh");
}

#[test]
fn extents_are_those_of_the_context_and_end_with_the_question() {
    let told =
        |octets: &[u8]| asked(&status(), octets).map(|(mut answered, _)| answered.pop().unwrap().result);
    let list = |id: u32, extents: &[(u32, u32)]| {
        let words = extents.iter().flat_map(|(len, state)| [len.to_be_bytes(), state.to_be_bytes()].concat());
        id.to_be_bytes().into_iter().chain(words).collect::<Vec<u8>>()
    };
    let hole = |len, hole| Extent { len, hole };
    let octets = chunk(DONE, BLOCK_STATUS, &list(ID, &[(600, 3), (100, 0), (u32::MAX, 2), (1, 0)]));
    assert_eq!(told(&octets), Ok(Ok(vec![hole(600, true), hole(100, false), hole(300, true)])));
    // Room that is not allocated and has unknown octets is data.
    assert_eq!(told(&chunk(DONE, BLOCK_STATUS, &list(ID, &[(9, 1)]))), Ok(Ok(vec![hole(9, false)])));
    let many = vec![(1, 0); 3 * MOST_EXTENTS];
    let answer = told(&chunk(DONE, BLOCK_STATUS, &list(ID, &many)));
    assert_eq!(answer.map(|answer| answer.map(|extents| extents.len())), Ok(Ok(1000)));
    let one = chunk(0, BLOCK_STATUS, &list(ID, &[(1, 0)]));
    for wrong in [
        chunk(DONE, BLOCK_STATUS, &list(ID + 1, &[(1, 0)])),
        chunk(DONE, BLOCK_STATUS, &list(ID, &[(1, 0), (0, 0)])),
        chunk(DONE, NONE, &[]),
        simple(0, COOKIE),
        [&one[..], &one].concat(),
    ] {
        assert_eq!(told(&wrong), Err(Nonsense::Extents));
    }
}

#[test]
fn replies_that_nobody_waits_for_are_refused() {
    let done = simple(0, COOKIE);
    assert_eq!(take(&mut replies(true), &done), Err(Nonsense::Cookie(COOKIE)));
    assert_eq!(take(&mut replies(true), &chunk(DONE, NONE, &[])), Err(Nonsense::Cookie(COOKIE)));
    assert_eq!(asked(&Command::Flush, &[&done[..], &done].concat()), Err(Nonsense::Cookie(COOKIE)));
    assert_eq!(asked(&Command::Flush, &simple(0, 6)), Err(Nonsense::Cookie(6)));
    assert_eq!(asked(&Command::Flush, &[0x67; 16]), Err(Nonsense::Magic));
    // Kinds that the request, or the terms, cannot have.
    let data = chunk(DONE, OFFSET_DATA, &at(0, b"x"));
    assert_eq!(asked(&Command::Flush, &data), Err(Nonsense::Kind(OFFSET_DATA)));
    let extents = chunk(DONE, BLOCK_STATUS, &[ID.to_be_bytes(), [0; 4], [0; 4]].concat());
    assert_eq!(asked(&read(), &extents), Err(Nonsense::Kind(BLOCK_STATUS)));
    assert_eq!(asked(&read(), &chunk(DONE, 77, b"1234")), Err(Nonsense::Kind(77)));
    assert_eq!(asked(&read(), &done), Err(Nonsense::Kind(NONE)));
    let mut plain = replies(false);
    plain.ask(COOKIE, &read());
    assert_eq!(take(&mut plain, &data), Err(Nonsense::Kind(OFFSET_DATA)));
}

#[test]
fn a_simple_reply_to_a_read_has_its_octets_behind_it() {
    let mut plain = replies(false);
    plain.ask(COOKIE, &read());
    plain.ask(6, &Command::Flush);
    let octets = [simple(0, COOKIE), vec![4; 100], simple(5, 6)].concat();
    let (answered, buffer) = take(&mut plain, &octets).unwrap();
    assert_eq!(buffer, [4; 100]);
    assert_eq!(answered[0], Answered { cookie: COOKIE, result: Ok(Vec::new()) });
    assert_eq!(answered[1], Answered { cookie: 6, result: Err(DiskError::Io) });
}

#[test]
fn a_server_may_number_its_context_as_it_likes() {
    // As `Opening` has it from the server.
    let mut opening = Opening::of("");
    let mut out = Vec::new();
    let mut all: &[u8] = &[
        &b"NBDMAGICIHAVEOPT\0\x03"[..],
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x08\0\0\0\x01\0\0\0\0",
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x04\0\0\0\x13\0\0\0\x09base:allocation",
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0a\0\0\0\x01\0\0\0\0",
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\0\0\x09\0\x01",
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0",
    ]
    .concat();
    let open = loop {
        let (now, later) = all.split_at(opening.wanted());
        all = later;
        if let Next::Transmit(open) = opening.take(now, &mut out).unwrap() {
            break open;
        }
    };
    let mut replies = Replies::new(&open);
    replies.ask(COOKIE, &status());
    let told = chunk(DONE, BLOCK_STATUS, &[ID.to_be_bytes(), [0, 0, 0, 4], [0; 4]].concat());
    assert_eq!(take(&mut replies, &told).unwrap().0.len(), 1);
}
