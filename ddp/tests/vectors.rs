//! The headers of every vector: the fields that DDP reads in them, and that it writes the same
//! octets again.

#![allow(clippy::unwrap_used, reason = "a test")]

use rddp_ddp::{Header, SegmentError};
use serde_json::Value;

fn vectors() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_segment_is_read_as_its_octets_say_and_written_as_it_was() {
    // RFC 5041 §4.1 to §4.3
    let mut read = 0;
    for vector in vectors() {
        let Some(hex) = vector["ulpdu_hex"].as_str() else { continue };
        let (name, segment) = (vector["name"].as_str().unwrap(), octets(hex));
        match Header::parse(&segment) {
            Err(error) => assert_eq!(Some(error), expected_error(name, &segment), "{name}"),
            Ok(header) => {
                assert_eq!(expected_error(name, &segment), None, "{name}");
                let mut wanted = segment[..header.len()].to_vec();
                wanted[0] &= !0x3c;
                assert_eq!(*header.octets(), *wanted, "{name}");
                check_fields(name, &vector["in"], &header);
                read += 1;
            }
        }
    }
    assert!(read > 80, "only {read} segments were read");
}

/// Returns the error for the vectors whose header cannot be read.
fn expected_error(name: &str, segment: &[u8]) -> Option<SegmentError> {
    let len = segment.len();
    let version = |tagged, version| Some(SegmentError::Version { tagged, version });
    match name {
        "fpdu_ulpdu_length_zero" | "fpdu_ulpdu_too_short_untagged" => {
            Some(SegmentError::TooShort { len, tagged: false })
        }
        "fpdu_ulpdu_too_short_tagged" => Some(SegmentError::TooShort { len, tagged: true }),
        "ddp_version_0_untagged" => version(false, 0),
        "ddp_version_2_untagged" => version(false, 2),
        "ddp_version_0_tagged" => version(true, 0),
        _ => None,
    }
}

/// Checks each field that the vector names.
fn check_fields(name: &str, fields: &Value, header: &Header) {
    let check = |field: &str, got: u64| {
        if let Some(wanted) = number(&fields[field]) {
            assert_eq!(got, wanted, "{field} of {name}");
        }
    };
    check("last", u64::from(header.last()));
    match header {
        Header::Tagged(header) => {
            check("stag", header.stag.0.into());
            check("to", header.to);
        }
        Header::Untagged(header) => {
            check("qn", header.qn.0.into());
            check("msn", header.msn.0.into());
            check("mo", header.mo.into());
        }
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(hex) => u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok(),
        _ => None,
    }
}
