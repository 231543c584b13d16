//! A peer that sends any octets: no panic, no place outside of granted memory, and silence after
//! the first fault.
#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;
use rddp_ddp::{Header, Stag};
use rddp_rdmap::{
    CONTROL_MAX, Event, Fault, Offending, Place, Stream, StreamConfig, TerminateRepr, parse_header,
    terminate_for,
};

const BUFFER: u64 = 1000;
const SINK: Stag = Stag(7);
const SINK_LEN: u32 = 500;
const IRD: u32 = 2;

/// Returns octets that resemble a segment enough to pass some checks: small numbers where numbers
/// are due.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    let small = || prop_oneof![4 => 0..4u32, 1 => any::<u32>()];
    let control = prop_oneof![8 => (any::<bool>(), any::<bool>()).prop_map(|(tagged, last)| {
        u8::from(tagged) << 7 | u8::from(last) << 6 | 1
    }), 1 => any::<u8>()];
    let ulp = prop_oneof![8 => (0..16u8).prop_map(|opcode| 0x40 | opcode), 1 => any::<u8>()];
    let payload =
        prop_oneof![Just(0usize), Just(8), Just(12), Just(28), Just(52), Just(4), 0..200usize, 0..2000usize];
    let fields = [small().boxed(), small().boxed(), small().boxed(), small().boxed()];
    (control, ulp, fields, payload, any::<u8>()).prop_map(|(control, ulp, [a, b, c, d], len, fill)| {
        let mut segment = vec![control, ulp];
        if control & 0x80 != 0 {
            segment.extend((SINK.0 ^ (a & 1)).to_be_bytes());
            segment.extend(u64::from(b.wrapping_mul(4)).to_be_bytes());
        } else {
            segment.extend(a.to_be_bytes());
            segment.extend(b.to_be_bytes());
            segment.extend(c.to_be_bytes());
            segment.extend(if d == 3 { 0 } else { d }.to_be_bytes());
        }
        segment.extend(std::iter::repeat_n(fill, len));
        segment
    })
}

/// Places name only memory that the driver has granted, but for Writes, which memory will check.
fn check_place(place: Place, len: usize) {
    match place {
        Place::Receive { mo } => assert!(u64::from(mo) + len as u64 <= BUFFER),
        Place::Sink { id, stag, to, offset } => {
            assert_eq!((id, stag, to), (1, SINK, u64::from(offset)));
            assert!(offset as usize + len <= SINK_LEN as usize);
        }
        Place::Control => assert!(len <= CONTROL_MAX),
        Place::Nothing => assert_eq!(len, 0),
        Place::Write { .. } => assert_ne!(len, 0),
        Place::Dropped => panic!("the stream was alive"),
    }
}

fn take(stream: &mut Stream, segment: &[u8]) -> Result<Event, (Fault, Option<Header>)> {
    let header = parse_header(segment).map_err(|fault| (fault, None))?;
    let payload = &segment[header.len()..];
    let place =
        stream.accept(&header, payload.len(), &mut || Some(BUFFER)).map_err(|fault| (fault, Some(header)))?;
    check_place(place, payload.len());
    let control = if place == Place::Control { payload } else { &[] };
    stream.commit(&header, payload.len(), control).map_err(|fault| (fault, Some(header)))
}

fn check_fault(fault: &Fault, header: Option<Header>, len: usize) {
    let offending = header.map(|header| Offending::new(header, len - header.len()));
    let terminate = terminate_for(fault, offending.as_ref());
    assert!(terminate.code.name().is_some(), "{fault}");
    assert!(!fault.to_string().is_empty());
    assert_eq!(TerminateRepr::parse(&terminate.octets()), Some(terminate));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_arrives_stays_within_what_was_granted(
        segments in prop::collection::vec(segment(), 1..30),
        extensions: bool,
    ) {
        let mut stream = Stream::new(StreamConfig { ird: IRD, ord: 2, extensions });
        stream.issue_read(1, SINK, 0, SINK_LEN);
        for segment in &segments {
            match take(&mut stream, segment) {
                Ok(Event::Received { length, .. }) => prop_assert!(u64::from(length) <= BUFFER),
                Ok(Event::Terminated(_)) => break,
                Ok(_) => {}
                Err((fault, header)) => {
                    check_fault(&fault, header, segment.len());
                    stream.fail();
                    break;
                }
            }
            prop_assert!(stream.inbound() <= IRD as usize);
        }
        if stream.is_dead() {
            for segment in &segments {
                if let Ok(header) = parse_header(segment) {
                    let len = segment.len() - header.len();
                    let place = stream.accept(&header, len, &mut || panic!("no receive is taken"));
                    prop_assert_eq!(place, Ok(Place::Dropped));
                    prop_assert_eq!(stream.commit(&header, len, &segment[header.len()..]), Ok(Event::None));
                }
            }
        }
    }

    #[test]
    fn committing_what_was_never_accepted_harms_nobody(segments in prop::collection::vec(segment(), 1..30)) {
        let mut stream = Stream::new(StreamConfig { ird: IRD, ord: 2, extensions: true });
        stream.issue_read(1, SINK, 0, SINK_LEN);
        stream.issue_atomic(2);
        for segment in &segments {
            if let Ok(header) = parse_header(segment) {
                let payload = &segment[header.len()..];
                let _ = stream.commit(&header, payload.len(), payload);
            }
        }
    }
}
