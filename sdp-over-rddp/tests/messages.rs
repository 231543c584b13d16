//! Messages as octets and back: whatever the fields are, and whatever the octets are.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::num::NonZeroU8;

use proptest::prelude::*;
use rddp_sdp::wire::{
    Addresses, Advert, Body, Capabilities, Flags, FormatError, HEADER_LEN, Header, Hello, HelloAck,
    LONGEST_CONTROL, Message, Mid, Mode, Version,
};
use rddp_test_support::{Random, random_octets};

fn advert() -> impl Strategy<Value = Advert> {
    any::<(u32, u32, u64)>().prop_map(|(len, stag, to)| Advert { len, stag, to })
}

fn body() -> impl Strategy<Value = Body> {
    let mode = prop_oneof![Just(Mode::Buffered), Just(Mode::Combined), Just(Mode::Pipelined)];
    prop_oneof![
        Just(Body::DisConn),
        Just(Body::AbortConn),
        Just(Body::SendSm),
        any::<u32>().prop_map(|octets| Body::RdmaWrCompl { octets }),
        any::<u32>().prop_map(|octets| Body::RdmaRdCompl { octets }),
        (any::<bool>(), mode)
            .prop_map(|(of_receivers_half, mode)| Body::ModeChange { of_receivers_half, mode }),
        Just(Body::SrcAvailCancel),
        Just(Body::SinkAvailCancel),
        Just(Body::SinkCancelAck),
        any::<u32>().prop_map(|size| Body::ChRcvBuf { size }),
        any::<u32>().prop_map(|size| Body::ChRcvBufAck { size }),
        any::<u64>().prop_map(|service_id| Body::SuspComm { service_id }),
        Just(Body::SuspCommAck),
        (advert(), any::<u32>()).prop_map(|(advert, non_discards)| Body::SinkAvail { advert, non_discards }),
        advert().prop_map(|advert| Body::SrcAvail { advert }),
        Just(Body::Data),
    ]
}

prop_compose! {
    fn message()(
        body in body(), flags in any::<u8>(), bufs in any::<u16>(), mseq in any::<u32>(),
        mseq_ack in any::<u32>(), payload_len in 0..70_000_usize,
    ) -> Message {
        let payload_len = if body.mid().may_have_payload() { payload_len } else { 0 };
        let mut message = Message::new(body, payload_len);
        let may_be_urgent = body == Body::Data && payload_len > 0;
        let flags = Flags(if may_be_urgent { flags } else { flags & !Flags::OOB_PRES.0 });
        message.header = Header { flags, bufs, mseq, mseq_ack, ..message.header };
        message
    }
}

prop_compose! {
    fn addresses()(v6 in any::<bool>(), source in any::<u128>(), destination in any::<u128>()) -> Addresses {
        if v6 {
            Addresses::V6 { source: source.into(), destination: destination.into() }
        } else {
            Addresses::V4 { source: (source as u32).into(), destination: (destination as u32).into() }
        }
    }
}

prop_compose! {
    fn hello()(
        major in 1..=2_u8, minor in 0..16_u8, bufs in any::<u16>(), capabilities in 0..16_u8,
        max_adverts in any::<NonZeroU8>(), desired_remote_size in any::<u32>(),
        local_size in LONGEST_CONTROL as u32.., port in any::<u16>(), addresses in addresses(),
        ext_max_adverts in any::<u16>(), rddp in any::<bool>(),
    ) -> Hello {
        let (version, capabilities) = (Version { major, minor }, Capabilities(capabilities));
        Hello {
            version, bufs, capabilities, max_adverts, desired_remote_size, local_size, port, addresses,
            ext_max_adverts, rddp,
        }
    }
}

prop_compose! {
    fn hello_ack()(
        major in 1..=2_u8, minor in 0..16_u8, bufs in any::<u16>(), max_adverts in any::<u8>(),
        actual_size in LONGEST_CONTROL as u32.., rddp in any::<bool>(),
    ) -> HelloAck {
        HelloAck { version: Version { major, minor }, bufs, max_adverts, actual_size, rddp }
    }
}

proptest! {
    #[test]
    fn a_message_that_is_written_is_read(message in message()) {
        let front = message.emit();
        prop_assert_eq!(front.len(), message.header_len());
        prop_assert_eq!(Message::parse(&front), Ok(message));
        prop_assert_eq!(Header::parse(&front), Ok(message.header));
    }

    #[test]
    fn a_hello_that_is_written_is_read(hello in hello()) {
        prop_assert_eq!(Hello::parse(&hello.octets()), Ok(hello));
        // The compact form has no room for the mark.
        let compact = Hello { rddp: false, ..hello };
        prop_assert_eq!(Hello::parse_compact(&hello.compact_octets(), hello.addresses), Ok(compact));
    }

    #[test]
    fn a_hello_ack_that_is_written_is_read(ack in hello_ack()) {
        prop_assert_eq!(HelloAck::parse(&ack.octets()), Ok(ack));
    }

    #[test]
    fn no_octets_are_too_strange(octets in prop::collection::vec(any::<u8>(), 0..260)) {
        check(&octets);
    }
}

/// Checks the promises about any octets.
fn check(octets: &[u8]) -> bool {
    let addresses = Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() };
    if let Ok(hello) = Hello::parse(octets) {
        assert_eq!(Hello::parse(&hello.octets()), Ok(hello));
    }
    if let Ok(hello) = Hello::parse_compact(octets, addresses) {
        assert_eq!(Hello::parse_compact(&hello.compact_octets(), addresses), Ok(hello));
    }
    if let Ok(ack) = HelloAck::parse(octets) {
        assert_eq!(HelloAck::parse(&ack.octets()), Ok(ack));
    }
    let front = Message::parse(octets);
    let whole = Message::parse_whole(octets);
    match whole {
        Ok((message, payload)) => {
            assert_eq!(front, Ok(message));
            assert_eq!(message.header.len as usize, octets.len());
            assert_eq!(message.header_len() + payload.len(), octets.len());
            assert_eq!(message.header.mid as u8, octets[0]);
            let mut wanted = octets[..message.header_len()].to_vec();
            if message.header.mid == Mid::ModeChange {
                // Reserved bits are not kept.
                wanted[HEADER_LEN] &= 0xf0;
                wanted[HEADER_LEN + 1..].fill(0);
            }
            assert_eq!(*message.emit(), *wanted);
        }
        Err(error) => {
            assert!(!error.rule().is_empty() && !error.to_string().is_empty());
            // The front alone is refused, too, if not for the length of the whole.
            let is_length = matches!(error, FormatError::LenMismatch { .. });
            assert!(is_length || front == Err(error), "{front:?} {error:?}");
        }
    }
    whole.is_ok()
}

/// Messages that are cut, extended and altered, with a length that fits or is off by one.
#[test]
fn messages_that_were_spoiled_are_read_as_what_they_are_or_refused() {
    let mut random = Random::new(0x5d9);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mid = Mid::ALL[random.below(Mid::ALL.len())];
        let mut octets = vec![0; HEADER_LEN + mid.extension_len() + random.below(9)];
        octets[0] = mid as u8;
        let filling = random_octets(random.number(), octets.len() - HEADER_LEN);
        octets[HEADER_LEN..].copy_from_slice(&filling);
        let cut = random.below(4) == 0;
        if cut {
            octets.truncate(random.below(octets.len() + 1));
        }
        let off = [0, 0, 0, 1, u32::MAX][random.below(5)];
        if octets.len() >= HEADER_LEN {
            let len = (octets.len() as u32).wrapping_add(off);
            octets[4..8].copy_from_slice(&len.to_be_bytes());
        }
        if random.below(2) == 0 && !octets.is_empty() {
            let at = random.below(octets.len());
            octets[at] ^= 1 << random.below(8);
        }
        if check(&octets) { read += 1 } else { refused += 1 }
    }
    assert!(read > 20_000 && refused > 20_000, "{read} read, {refused} refused");
}

fn a_hello() -> Hello {
    let addresses = Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() };
    Hello {
        version: Version::OURS,
        bufs: 64,
        capabilities: Capabilities::default(),
        max_adverts: NonZeroU8::MIN,
        desired_remote_size: 0x8010,
        local_size: 0x8010,
        port: 40_000,
        addresses,
        ext_max_adverts: 0,
        rddp: true,
    }
}

#[test]
fn the_mark_of_this_program_stands_in_the_last_octets_of_both_startup_messages() {
    let hello = a_hello();
    assert_eq!(hello.octets()[HEADER_LEN + 72..], *b"rddp");
    assert!(Hello::parse(&hello.octets()).unwrap().is_rddp());
    let ack = HelloAck { version: Version::OURS, bufs: 64, max_adverts: 1, actual_size: 0x8010, rddp: true };
    assert_eq!(ack.octets()[HEADER_LEN + 176..], *b"rddp");
    assert!(HelloAck::parse(&ack.octets()).unwrap().is_rddp());
    let mut other = hello.octets();
    other[91] = 0;
    assert!(!Hello::parse(&other).unwrap().is_rddp());
}

#[test]
fn the_compact_hello_is_the_front_of_the_whole_one_and_may_have_zeros_behind_it() {
    let hello = Hello { ext_max_adverts: 1000, ..a_hello() };
    let (whole, compact) = (hello.octets(), hello.compact_octets());
    assert_eq!(compact[..32], whole[..32]);
    assert_eq!(compact[32..], 1000_u16.to_be_bytes());
    let mut padded = compact.to_vec();
    padded.resize(56, 0);
    let read = Hello::parse_compact(&padded, hello.addresses).unwrap();
    assert_eq!(read, Hello { rddp: false, ..hello });
    let short = Hello::parse_compact(&compact[..33], hello.addresses);
    assert_eq!(short, Err(FormatError::ShortHeader(33)));
}

#[test]
fn a_startup_message_of_another_kind_size_or_content_is_refused() {
    let hello = a_hello();
    let with = |alter: fn(&mut Vec<u8>)| {
        let mut octets = hello.octets().to_vec();
        alter(&mut octets);
        Hello::parse(&octets)
    };
    assert_eq!(with(|octets| octets.truncate(15)), Err(FormatError::ShortHeader(15)));
    assert_eq!(with(|octets| octets.truncate(91)), Err(FormatError::LenMismatch { len: 92, arrived: 91 }));
    assert_eq!(
        with(|octets| {
            octets.truncate(91);
            octets[7] = 91;
        }),
        Err(FormatError::ShortExtension(Mid::Hello))
    );
    assert_eq!(
        with(|octets| {
            octets.push(0);
            octets[7] = 93;
        }),
        Err(FormatError::PayloadNotAllowed(Mid::Hello))
    );
    assert_eq!(with(|octets| octets[0] = 0xff), Err(FormatError::NotHello(Mid::Data)));
    assert_eq!(with(|octets| octets[1] = 1), Err(FormatError::OobPresNotData(Mid::Hello)));
    assert_eq!(
        with(|octets| octets[24..28].copy_from_slice(&35_u32.to_be_bytes())),
        Err(FormatError::HelloReceiveSize(35))
    );
    assert!(with(|octets| octets[24..28].copy_from_slice(&36_u32.to_be_bytes())).is_ok());
    assert_eq!(HelloAck::parse(&hello.octets()), Err(FormatError::NotHello(Mid::Hello)));
}

/// The low bits of an unlisted MID may be those of a listed one; all eight count.
#[test]
fn every_mid_that_is_not_listed_is_refused() {
    let known = (0..=u8::MAX).filter(|octet| Mid::from_octet(*octet).is_ok()).count();
    assert_eq!(known, 18);
    for octet in 0x0f..=0xfc {
        assert_eq!(Mid::from_octet(octet), Err(FormatError::UnknownMid(octet)));
    }
}
