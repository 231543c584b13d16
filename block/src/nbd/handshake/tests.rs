use proptest::prelude::*;

use super::*;

fn exports() -> Vec<Export> {
    [("first", 1000, false), ("second", 1 << 40, true)]
        .map(|(name, size, writable)| Export { name: name.into(), size, writable })
        .into()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    [&OPTION_MAGIC[..], &option.to_be_bytes(), &with_len(data)].concat()
}

fn go(option_of: u32, name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = with_len(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    option(option_of, &data)
}

fn context(option_of: u32, name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = with_len(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(with_len(query.as_bytes())));
    option(option_of, &data)
}

/// Has a machine take all of it. Returns what it sent, and how it ended.
fn run(octets: &[u8]) -> (Vec<u8>, Result<Next, Refused>) {
    let (mut machine, mut out, mut rest) = (Handshake::default(), Vec::new(), octets);
    let mut next = Ok(Next::More);
    while let (Ok(Next::More), Some((now, later))) = (&next, rest.split_at_checked(machine.wanted())) {
        next = machine.take(now, &exports(), &mut out);
        rest = later;
    }
    (out, next)
}

/// The kinds and the data of replies.
type Replies = Vec<(u32, Vec<u8>)>;

fn replies(mut out: &[u8]) -> Replies {
    let mut replies = Vec::new();
    while let Some(rest) = out.strip_prefix(&REPLY_MAGIC.to_be_bytes()) {
        let (data, behind) = name_and_rest(&rest[8..]).unwrap();
        replies.push((be32(&rest[4..]).unwrap(), data.to_vec()));
        out = behind;
    }
    assert!(out.is_empty());
    replies
}

fn after_flags(options: &[Vec<u8>]) -> (Replies, Result<Next, Refused>) {
    let (out, next) = run(&[&3u32.to_be_bytes()[..], &options.concat()].concat());
    (replies(&out), next)
}

#[test]
fn the_greeting_is_that_of_fixed_newstyle() {
    assert_eq!(Handshake::greeting(), b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn go_tells_what_the_export_is_and_requests_follow() {
    let (replies, next) = after_flags(&[go(OPT_GO, "second", &[INFO_NAME])]);
    assert_eq!(next, Ok(Next::Transmit(1, Terms::default())));
    assert_eq!(
        replies,
        [
            (REP_INFO, b"\0\0\0\0\x01\0\0\0\0\0\x01\x6d".to_vec()),
            (REP_INFO, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec()),
            (REP_INFO, b"\0\x01second".to_vec()),
            (REP_ACK, vec![]),
        ]
    );
    // The first, by no name; it may not be written.
    let (replies, next) = after_flags(&[go(OPT_GO, "", &[])]);
    assert_eq!(next, Ok(Next::Transmit(0, Terms::default())));
    assert_eq!(replies[0].1, b"\0\0\0\0\0\0\0\0\x03\xe8\x01\x0f");
}

#[test]
fn an_export_that_is_not_there_is_told_and_the_client_may_ask_on() {
    let (replies, next) = after_flags(&[go(OPT_GO, "third", &[]), go(OPT_INFO, "first", &[])]);
    assert_eq!(replies[0], (REP_ERR_UNKNOWN, vec![]));
    assert_eq!((replies.len(), next), (4, Ok(Next::More)));
}

#[test]
fn the_name_that_no_export_has_is_told_once() {
    let mut machine = Handshake::default();
    let mut out = Vec::new();
    for octets in [&3u32.to_be_bytes()[..], &go(OPT_GO, "third", &[])[..16], &go(OPT_GO, "third", &[])[16..]]
    {
        assert_eq!(machine.unknown(), None);
        machine.take(octets, &exports(), &mut out).unwrap();
    }
    assert_eq!(machine.unknown(), Some("third".to_owned()));
    assert_eq!(machine.unknown(), None);
}

#[test]
fn a_machine_always_wants_something_and_options_have_a_limit() {
    let header = |len: u32| [&OPTION_MAGIC[..], &OPT_LIST.to_be_bytes(), &len.to_be_bytes()].concat();
    for (len, next, wanted) in [
        (0, Ok(Next::More), OPTION_LEN),
        (1, Ok(Next::More), 1),
        (16384, Ok(Next::More), 16384),
        (16385, Err(Refused::LongOption(16385)), OPTION_LEN),
    ] {
        let mut machine = Handshake::default();
        machine.take(&3u32.to_be_bytes(), &exports(), &mut Vec::new()).unwrap();
        assert_eq!(machine.take(&header(len), &exports(), &mut Vec::new()), next);
        assert_eq!(machine.wanted(), wanted);
    }
}

#[test]
fn contexts_hold_for_the_export_that_they_were_set_for() {
    let structured = option(OPT_STRUCTURED_REPLY, &[]);
    let set = |name: &str| context(OPT_SET_META_CONTEXT, name, &["x:y", "base:allocation"]);
    for (first, then, allocation) in [("second", "second", true), ("first", "second", false)] {
        let (replies, next) = after_flags(&[structured.clone(), set(first), go(OPT_GO, then, &[])]);
        assert_eq!(next, Ok(Next::Transmit(1, Terms { structured: true, allocation })));
        assert_eq!(replies[1], (REP_META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec()));
        // What is read may be asked for in one piece.
        assert_eq!(replies[3].1[10..], [0x01, 0xed]);
    }
    // Only behind structured replies ("NBD_OPT_SET_META_CONTEXT").
    let (replies, _) = after_flags(&[set("first")]);
    assert_eq!(replies, [(REP_ERR_INVALID, vec![])]);
    // One that cannot be set undoes what was set before.
    let unknown = context(OPT_SET_META_CONTEXT, "third", &[]);
    let (replies, next) =
        after_flags(&[structured.clone(), set("second"), unknown, go(OPT_GO, "second", &[])]);
    assert_eq!(replies[3], (REP_ERR_UNKNOWN, vec![]));
    assert_eq!(next, Ok(Next::Transmit(1, Terms { structured: true, allocation: false })));
    for queries in [&[][..], &["base:"], &["base:allocation"]] {
        let (replies, _) =
            after_flags(&[structured.clone(), context(OPT_LIST_META_CONTEXT, "first", queries)]);
        assert_eq!(replies[1], (REP_META_CONTEXT, b"\0\0\0\0base:allocation".to_vec()));
    }
}

#[test]
fn the_list_names_all_exports() {
    let (replies, _) = after_flags(&[option(OPT_LIST, &[])]);
    assert_eq!(
        replies,
        [
            (REP_SERVER, b"\0\0\0\x05first".to_vec()),
            (REP_SERVER, b"\0\0\0\x06second".to_vec()),
            (REP_ACK, vec![]),
        ]
    );
}

#[test]
fn options_that_are_not_known_or_make_no_sense_are_refused_and_it_goes_on() {
    for (number, data, kind) in [
        (5, &[][..], REP_ERR_UNSUP),
        (11, &[], REP_ERR_UNSUP),
        (99, b"data", REP_ERR_UNSUP),
        (OPT_LIST, b"x", REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, b"x", REP_ERR_INVALID),
        (OPT_GO, b"", REP_ERR_INVALID),
        (OPT_GO, b"\xff\xff\xff\xff", REP_ERR_INVALID),
        (OPT_GO, b"\0\0\0\0\0\x01", REP_ERR_INVALID),
        (OPT_INFO, b"\0\0\0\x01x\0\0\0", REP_ERR_INVALID),
        (OPT_SET_META_CONTEXT, b"\0\0\0\0\xff\xff\xff\xff", REP_ERR_INVALID),
    ] {
        let structured = option(OPT_STRUCTURED_REPLY, &[]);
        let (replies, next) = after_flags(&[structured, option(number, data), option(OPT_LIST, &[])]);
        assert_eq!((replies[1].0, replies.len(), next), (kind, 5, Ok(Next::More)), "{number}");
    }
}

#[test]
fn the_old_way_in_has_its_zeroes_and_no_reply_to_an_error() {
    for (flags, zeroes) in [(1u32, 124), (3, 0)] {
        let (out, next) = run(&[&flags.to_be_bytes()[..], &option(OPT_EXPORT_NAME, b"first")].concat());
        assert_eq!(next, Ok(Next::Transmit(0, Terms::default())));
        assert_eq!((out[..10].to_vec(), out.len()), (b"\0\0\0\0\0\0\x03\xe8\x01\x0f".to_vec(), 10 + zeroes));
    }
    let (_, next) = run(&[&3u32.to_be_bytes()[..], &option(OPT_EXPORT_NAME, b"third")].concat());
    assert_eq!(next, Err(Refused::Unknown("third".into())));
}

#[test]
fn an_abort_is_answered() {
    let (replies, next) = after_flags(&[option(OPT_ABORT, &[])]);
    assert_eq!((replies, next), (vec![(REP_ACK, vec![])], Ok(Next::Abort)));
}

#[test]
fn whoever_is_no_client_or_says_too_much_goes() {
    assert_eq!(run(b"GET / HTTP/1.1\r\n").1, Err(Refused::NoClient));
    assert_eq!(run(b"\0\0\0\x04").1, Err(Refused::NoClient));
    let wrong = [&3u32.to_be_bytes()[..], &[0; 16]].concat();
    assert_eq!(run(&wrong).1, Err(Refused::NoClient));
    let mut long = [&3u32.to_be_bytes()[..], &option(OPT_LIST, &[])].concat();
    long.splice(16.., u32::MAX.to_be_bytes());
    assert_eq!(run(&long).1, Err(Refused::LongOption(u32::MAX)));
}

proptest! {
    /// No octets of a client make the server fail, wait for none, or answer at any length.
    #[test]
    fn any_octets_are_taken(number in 0u32..12, data in prop::collection::vec(any::<u8>(), 0..200)) {
        let structured = option(OPT_STRUCTURED_REPLY, &[]);
        let (out, _) = run(&[&3u32.to_be_bytes()[..], &structured, &option(number, &data)].concat());
        prop_assert!(out.len() < 1000);
        let (out, _) = run(&data);
        prop_assert!(out.len() < 1000);
    }
}
