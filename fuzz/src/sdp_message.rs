//! `sdp_message`: any octets as a message of SDP, as a Hello and as a `HelloAck`.

use rddp_sdp::wire::{Addresses, Hello, HelloAck, Message};

/// Runs one input, which is a message in one piece.
pub fn run(octets: &[u8]) {
    let whole = Message::parse_whole(octets);
    assert_eq!(whole.map_err(|error| error.rule()).map(|_| ()), naive(octets));
    if let Ok((message, payload)) = whole {
        assert_eq!(Message::parse(octets), Ok(message));
        assert_eq!(message.header_len() + payload.len(), octets.len());
        let mut wanted = octets[..message.header_len()].to_vec();
        if wanted[0] == 7 {
            // The reserved bits of a ModeChange are not kept.
            wanted[16] &= 0xf0;
            wanted[17..].fill(0);
        }
        assert_eq!(*message.emit(), *wanted);
    }
    startup(octets);
}

/// Reads the messages of the startup; those that are read are written so that they are read alike.
fn startup(octets: &[u8]) {
    let addresses = Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() };
    if let Ok(hello) = Hello::parse(octets) {
        assert_eq!(octets.len(), Hello::LEN);
        assert!([1, 2].contains(&(octets[16] >> 4)) && octets[19] > 0);
        assert_eq!(Hello::parse(&hello.octets()), Ok(hello));
    }
    if let Ok(hello) = Hello::parse_compact(octets, addresses) {
        assert_eq!(hello.compact_octets()[2..4], octets[2..4]);
        assert_eq!(Hello::parse_compact(&hello.compact_octets(), addresses), Ok(hello));
    }
    if let Ok(ack) = HelloAck::parse(octets) {
        assert_eq!(octets.len(), HelloAck::LEN);
        assert_eq!(HelloAck::parse(&ack.octets()), Ok(ack));
    }
}

/// Judges a message independently: returns the name of the rule that it breaks.
fn naive(octets: &[u8]) -> Result<(), &'static str> {
    if octets.len() < 16 {
        return Err("short-bsdh");
    }
    let len = octets[4..8].iter().fold(0, |number, octet| number << 8 | usize::from(*octet));
    if len != octets.len() {
        return Err("len-mismatch");
    }
    let (mid, is_urgent) = (octets[0], octets[1] % 2 == 1);
    let extension = match mid {
        0 | 1 => return Err("late-hello"),
        2..=4 | 8..=10 | 14 | 255 => 0,
        5..=7 | 11 | 12 => 4,
        13 => 8,
        253 => 20,
        254 => 16,
        _ => return Err("unknown-mid"),
    };
    match len.checked_sub(16 + extension) {
        None => Err("short-ext"),
        Some(1..) if mid < 253 => Err("payload-not-allowed"),
        _ if is_urgent && mid != 255 => Err("oob-pres-not-data"),
        Some(0) if is_urgent => Err("oob-pres-empty"),
        _ if mid == 7 && octets[16] & 0x70 > 0x20 => Err("mode-value"),
        _ => Ok(()),
    }
}
