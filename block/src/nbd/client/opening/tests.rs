use super::*;
use crate::nbd::MAX_PAYLOAD;

const FIXED: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    [&REPLY_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &with_len(data)].concat()
}

fn export(size: u64, flags: u16) -> Vec<u8> {
    [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat()
}

fn sizes(minimum: u32, maximum: u32) -> Vec<u8> {
    [&INFO_BLOCK_SIZE.to_be_bytes()[..], &minimum.to_be_bytes(), &[0, 0, 16, 0], &maximum.to_be_bytes()]
        .concat()
}

/// Has a machine take all of it. Returns what it sent, and how it ended.
fn run(mut machine: Opening, octets: &[u8]) -> (Vec<u8>, Result<Next, Failed>) {
    let (mut out, mut rest, mut next) = (Vec::new(), octets, Ok(Next::More));
    while let (Ok(Next::More), Some((now, later))) = (&next, rest.split_at_checked(machine.wanted())) {
        next = machine.take(now, &mut out);
        rest = later;
    }
    (out, next)
}

/// Returns the options that a client sent behind its flags.
fn options(out: &[u8]) -> Vec<u32> {
    let (mut options, mut rest) = (Vec::new(), &out[4..]);
    while let Some(behind) = rest.strip_prefix(OPTION_MAGIC) {
        options.push(be32(behind).unwrap());
        rest = name_and_rest(&behind[4..]).unwrap().1;
    }
    assert!(rest.is_empty());
    options
}

fn open(replies: &[Vec<u8>]) -> (Vec<u8>, Result<Next, Failed>) {
    run(Opening::of("disk"), &[FIXED, &replies.concat()].concat())
}

#[test]
fn a_server_without_new_options_is_asked_in_the_old_way() {
    let unknown = |option| reply(option, REP_ERR_UNSUP, b"what?");
    let old = [&7u64.to_be_bytes()[..], &(HAS_FLAGS | READ_ONLY).to_be_bytes()].concat();
    let (out, next) = open(&[unknown(OPT_STRUCTURED_REPLY), unknown(OPT_GO), old.clone()]);
    assert_eq!(options(&out), [OPT_STRUCTURED_REPLY, OPT_GO, OPT_EXPORT_NAME]);
    assert!(out.ends_with(b"\0\0\0\x04disk"));
    let Ok(Next::Transmit(open)) = next else { panic!("{next:?}") };
    assert_eq!((open.described.size, open.terms), (7, Terms::default()));
    assert!(!open.described.is_writable() && !open.described.flushes());
    assert_eq!((open.described.minimum, open.described.maximum), (1, MAX_PAYLOAD));

    // One that is not even fixed newstyle, and sends zeroes.
    let zeroes = [0; 124];
    let octets = [b"NBDMAGICIHAVEOPT\0\0", &old[..], &zeroes].concat();
    let (out, next) = run(Opening::of("disk"), &octets);
    assert!(out.starts_with(&[0; 4]) && matches!(next, Ok(Next::Transmit(_))));
    assert_eq!(run(Opening::of("disk"), &octets[..octets.len() - 1]).1, Ok(Next::More));
    assert!(matches!(run(Opening::for_list(), &octets).1, Err(Failed::NoList(_))));
}

#[test]
fn a_server_without_contexts_or_structured_replies_is_used_without() {
    let gone = reply(OPT_GO, REP_INFO, &export(1 << 20, HAS_FLAGS));
    let ack = |option| reply(option, REP_ACK, &[]);
    let terms = |next| match next {
        Ok(Next::Transmit(open)) => open.terms,
        other => panic!("{other:?}"),
    };
    let context = reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, b"\0\0\0\x09base:allocation");
    let other = reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, b"\0\0\0\x09qemu:other");
    let refused = reply(OPT_SET_META_CONTEXT, REP_ERR_UNSUP, &[]);
    let (structured, go) = (ack(OPT_STRUCTURED_REPLY), ack(OPT_GO));
    let set = ack(OPT_SET_META_CONTEXT);
    for (middle, allocation) in [
        (vec![set.clone()], false),
        (vec![refused], false),
        (vec![other, set.clone()], false),
        (vec![context, set], true),
    ] {
        let all = [vec![structured.clone()], middle, vec![gone.clone(), go.clone()]].concat();
        assert_eq!(terms(open(&all).1), Terms { structured: true, allocation });
    }
    let refused = reply(OPT_STRUCTURED_REPLY, REP_ERR_INVALID, &[]);
    assert_eq!(terms(open(&[refused, gone, go]).1), Terms::default());
}

#[test]
fn sizes_of_blocks_are_kept_to_and_those_that_cannot_be_are_refused() {
    let start = [reply(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, &[])];
    let with = |infos: &[Vec<u8>]| {
        let infos = infos.iter().map(|info| reply(OPT_GO, REP_INFO, info));
        let end = [reply(OPT_GO, REP_ACK, &[])];
        open(&start.iter().cloned().chain(infos).chain(end).collect::<Vec<_>>()).1
    };
    for infos in [[sizes(512, 100_000), export(9, 1)], [export(9, 1), sizes(512, 100_000)]] {
        let Ok(Next::Transmit(open)) = with(&infos) else { panic!() };
        assert_eq!((open.described.minimum, open.described.maximum, open.described.size), (512, 99_840, 9));
    }
    for (minimum, maximum) in [(0, 4096), (3, 4096), (1 << 17, u32::MAX), (4096, 512)] {
        assert!(matches!(with(&[sizes(minimum, maximum), export(9, 1)]), Err(Failed::Nonsense(_))));
    }
    let long = [export(9, 1), vec![0]].concat();
    for infos in [vec![], vec![sizes(1, 512)], vec![long], vec![vec![0]], vec![export(1 << 63, 1)]] {
        assert!(matches!(with(&infos), Err(Failed::Nonsense(_))), "{infos:?}");
    }
    assert!(with(&[export(u64::MAX >> 1, 1), vec![0, 77, 1, 2, 3]]).is_ok());
}

#[test]
fn refusals_say_why() {
    let start = reply(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, &[]);
    let refusal = |kind| open(&[start.clone(), reply(OPT_GO, kind, b" because ")]).1.unwrap_err();
    let said = || Said("because".into());
    assert_eq!(refusal(REP_ERR_UNKNOWN), Failed::Unknown(said()));
    assert_eq!(refusal(REP_ERR_POLICY), Failed::Refused(said()));
    assert_eq!(refusal(REP_ERR_TLS_REQD), Failed::WantsTls(said()));
    assert_eq!(refusal(1 << 31 | 99), Failed::Refused(said()));
    assert_eq!(refusal(REP_ERR_UNKNOWN).to_string(), "the server has no such export: because");
    let list = |kind| run(Opening::for_list(), &[FIXED, &reply(OPT_LIST, kind, &[])].concat()).1;
    assert_eq!(list(REP_ERR_POLICY), Err(Failed::NoList(Said::default())));
}

#[test]
fn what_no_server_says_ends_the_handshake_before_it_is_read() {
    let nonsense = |octets: Vec<u8>| {
        let (_, next) = run(Opening::of("disk"), &[FIXED, &octets].concat());
        assert!(matches!(next, Err(Failed::Nonsense(_))), "{next:?}");
    };
    // A header alone, which names 4 GiB.
    let mut long = reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]);
    long[16..].copy_from_slice(&u32::MAX.to_be_bytes());
    nonsense(long);
    nonsense(reply(OPT_GO, REP_ACK, &[]));
    nonsense(reply(OPT_STRUCTURED_REPLY, REP_SERVER, &[]));
    let mut other = reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]);
    other[0] ^= 1;
    nonsense(other);
    let greeting = |octets: &[u8]| run(Opening::of("disk"), octets).1;
    assert_eq!(greeting(b"SSH-2.0-OpenSSH_9.9"), Err(Failed::NoServer));
    assert_eq!(greeting(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0"), Err(Failed::Oldstyle));
    assert_eq!(greeting(b"NBDMAGICIHAVEOPX\0\0"), Err(Failed::NoServer));
}

/// Neither names nor replies without an end.
#[test]
fn a_list_has_a_limit_and_exports_may_be_without_a_description() {
    let name = |name: &[u8]| reply(OPT_LIST, REP_SERVER, &with_len(name));
    let ack = reply(OPT_LIST, REP_ACK, &[]);
    let described = [reply(OPT_INFO, REP_INFO, &export(9, 1)), reply(OPT_INFO, REP_ACK, &[])].concat();
    let refused = reply(OPT_INFO, REP_ERR_UNSUP, &[]);
    let octets = [FIXED, &name(b"a"), &name(b"b"), &ack, &refused, &described].concat();
    let (out, next) = run(Opening::for_list(), &octets);
    let Ok(Next::Listed(listed)) = next else { panic!("{next:?}") };
    assert_eq!(options(&out), [OPT_LIST, OPT_INFO, OPT_INFO, OPT_ABORT]);
    assert_eq!((&listed[0].name[..], listed[0].described), ("a", None));
    assert_eq!(listed[1].described.map(|described| described.size), Some(9));

    let endless = name(b"x").repeat(MOST_REPLIES + 1);
    let (_, next) = run(Opening::for_list(), &[FIXED, &endless].concat());
    assert!(matches!(next, Err(Failed::Nonsense(_))));
    let long = name(&[b'x'; LONGEST_NAME + 1]);
    assert!(matches!(run(Opening::for_list(), &[FIXED, &long].concat()).1, Err(Failed::Nonsense(_))));
    let empty = run(Opening::for_list(), &[FIXED, &ack].concat()).1;
    assert_eq!(empty, Ok(Next::Listed(Vec::new())));
}

/// Behind its name, or by an information: the latter is what is asked for.
#[test]
fn an_export_of_a_list_has_the_description_that_the_server_tells() {
    let name = |name: &[u8], text: &[u8]| reply(OPT_LIST, REP_SERVER, &[&with_len(name), text].concat());
    let ack = |option| reply(option, REP_ACK, &[]);
    let about = |text: &[u8]| reply(OPT_INFO, REP_INFO, &[&INFO_DESCRIPTION.to_be_bytes(), text].concat());
    let list = [name(b"a", b"one"), name(b"b", b""), ack(OPT_LIST)].concat();
    let infos = [ack(OPT_INFO), about(b"two"), ack(OPT_INFO)].concat();
    let (out, next) = run(Opening::for_list(), &[FIXED, &list, &infos].concat());
    let Ok(Next::Listed(listed)) = next else { panic!("{next:?}") };
    assert_eq!([&listed[0].description, &listed[1].description], ["one", "two"]);
    assert!(out.windows(7).any(|octets| octets == b"b\0\x02\0\x03\0\x02"), "{out:?}");

    let long = [b'x'; LONGEST_NAME + 1];
    for octets in [name(b"a", &long), [name(b"a", b""), ack(OPT_LIST), about(&long)].concat()] {
        let (_, next) = run(Opening::for_list(), &[FIXED, &octets].concat());
        assert!(matches!(next, Err(Failed::Nonsense(_))), "{next:?}");
    }
}
