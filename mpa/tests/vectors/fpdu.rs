//! Layer `mpa-fpdu`: MULPDU, FPDUs to send and to receive, FPDUs to refuse.

use rddp_mpa::{Deframer, FpduError, Framer, Framing, Step, mulpdu};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{hex, name, number, vectors};

#[test]
fn every_fpdu_vector_holds() {
    for vector in vectors("mpa-fpdu", 38) {
        match (vector["kind"].as_str().unwrap(), vector["expect"]["verdict"].as_str()) {
            ("compute", None) => mulpdu_is_as_computed(&vector),
            ("positive", Some("accept")) => {
                let (ulpdu, wire) = ulpdu_and_wire(&vector);
                is_sent_so(&vector, &ulpdu, &wire);
                is_laid_out_so(&vector, &ulpdu, &wire);
                is_delivered(&vector, &ulpdu, &wire);
            }
            // Deviations that a receiver must ignore.
            ("negative", Some("accept")) => {
                is_delivered(&vector, &hex(&vector["ulpdu_hex"]), &hex(&vector["hex"]));
            }
            ("negative", Some("error")) => is_refused(&vector, &hex(&vector["hex"])),
            other => panic!("{}: {other:?}", name(&vector)),
        }
    }
}

// RFC 5044 §4.5
fn mulpdu_is_as_computed(vector: &Value) {
    let emss = number(&vector["in"]["emss"]) as usize;
    assert_eq!(mulpdu(emss, true) as u64, number(&vector["expect"]["markers"]), "{}", name(vector));
    assert_eq!(mulpdu(emss, false) as u64, number(&vector["expect"]["no_markers"]), "{}", name(vector));
}

fn ulpdu_and_wire(vector: &Value) -> (Vec<u8>, Vec<u8>) {
    if vector["digest"].is_null() {
        return (hex(&vector["ulpdu_hex"]), hex(&vector["hex"]));
    }
    let ulpdu = largest_ulpdu(&vector["in"]);
    let wire = sent(vector, &ulpdu, 14);
    let digest = &vector["digest"];
    assert_eq!(wire.len() as u64, number(&digest["length"]));
    assert_eq!(wire[..32], hex(&digest["first_32_hex"]));
    assert_eq!(wire[wire.len() - 16..], hex(&digest["last_16_hex"]));
    assert_eq!(Sha256::digest(&wire)[..], hex(&digest["sha256"]));
    (ulpdu, wire)
}

/// An RDMA Write that is not the last segment of its message; octet i of the payload is i mod 256.
fn largest_ulpdu(input: &Value) -> Vec<u8> {
    assert_eq!((input["op"].as_str(), number(&input["last"])), (Some("RDMA Write"), 0));
    let mut ulpdu = vec![0x81, 0x40];
    ulpdu.extend((number(&input["stag"]) as u32).to_be_bytes());
    ulpdu.extend(number(&input["to"]).to_be_bytes());
    ulpdu.extend((0..number(&input["payload_len"])).map(|octet| octet as u8));
    ulpdu
}

fn framing(vector: &Value) -> Framing {
    let stream = &vector["stream"];
    Framing { crc: stream["crc"].as_bool().unwrap(), markers: stream["markers"].as_bool().unwrap() }
}

fn position(vector: &Value) -> u64 {
    number(&vector["stream"]["pos"])
}

fn sent(vector: &Value, ulpdu: &[u8], header_len: usize) -> Vec<u8> {
    let mut framer = Framer::at(framing(vector), position(vector));
    let announced = framer.fpdu_len(ulpdu.len());
    let (header, payload) = ulpdu.split_at(header_len);
    let mut out = Vec::new();
    let fill = |at: usize, dst: &mut [u8]| dst.copy_from_slice(&payload[at..at + dst.len()]);
    framer.emit(header, payload.len(), fill, &mut out);
    assert_eq!(out.len(), announced, "{}", name(vector));
    assert_eq!(framer.position(), position(vector) + announced as u64, "{}", name(vector));
    out
}

/// Checks that the ULPDU gives these octets, however it is divided into header and payload.
fn is_sent_so(vector: &Value, ulpdu: &[u8], wire: &[u8]) {
    let most = if ulpdu.len() > 2000 { 20 } else { ulpdu.len() };
    for header_len in 0..=most {
        assert_eq!(sent(vector, ulpdu, header_len), wire, "{} with a header of {header_len}", name(vector));
    }
}

/// Checks the vector's own list of which octets are what.
fn is_laid_out_so(vector: &Value, ulpdu: &[u8], wire: &[u8]) {
    let (mut found, mut end) = (Vec::new(), 0);
    for field in vector["layout"].as_array().unwrap() {
        let (at, len) = (number(&field[0]) as usize, number(&field[1]) as usize);
        assert_eq!(at, end, "{}", name(vector));
        end = at + len;
        match field[2].as_str().unwrap() {
            "ULPDU_Length" => assert_eq!(wire[at..end], (ulpdu.len() as u16).to_be_bytes()),
            "ULPDU" => found.extend_from_slice(&wire[at..end]),
            "pad" => assert!(wire[at..end].iter().all(|&octet| octet == 0)),
            "CRC" => assert_eq!((len, end), (4, wire.len())),
            marker => {
                let pointer: u32 = marker.strip_prefix("marker ptr=").unwrap().parse().unwrap();
                assert_eq!((wire[at..end].to_vec(), len), (pointer.to_be_bytes().to_vec(), 4));
            }
        }
    }
    assert_eq!(found, ulpdu, "{}", name(vector));
}

/// Shows the deframer the first `first` octets, which are not all, and then all of them.
fn received(vector: &Value, wire: &[u8], first: usize) -> (Result<Step, FpduError>, Vec<u8>, Deframer) {
    let mut deframer = Deframer::at(framing(vector), position(vector));
    let mut stream = wire[..first].to_vec();
    match deframer.step(&mut stream) {
        Ok(Step::Need { total }) => assert!(total > first, "{} cut at {first}", name(vector)),
        // A shorter FPDU than the vector's: a marker where none belongs is read as a length of 0.
        other => return (other, stream, deframer),
    }
    assert_eq!(stream, wire[..first], "{} cut at {first}: changed too early", name(vector));
    stream.extend_from_slice(&wire[first..]);
    let step = deframer.step(&mut stream);
    (step, stream, deframer)
}

// RFC 5044 §5.2: the FPDU is delivered wherever TCP cut the stream.
fn is_delivered(vector: &Value, ulpdu: &[u8], wire: &[u8]) {
    let cuts: Vec<_> = if wire.len() > 2000 {
        (0..40).chain(wire.len() - 40..wire.len()).collect()
    } else {
        (0..wire.len()).collect()
    };
    for cut in cuts {
        let (step, stream, deframer) = received(vector, wire, cut);
        let Ok(Step::Fpdu { ulpdu: found, used }) = step else {
            panic!("{} cut at {cut}: {step:?}", name(vector));
        };
        assert_eq!(&stream[found], ulpdu, "{} cut at {cut}", name(vector));
        assert_eq!(used, wire.len(), "{} cut at {cut}", name(vector));
        assert_eq!(deframer.position(), position(vector) + used as u64);
        assert_eq!(deframer.finish(&stream[used..]), Ok(()));
    }
}

fn is_refused(vector: &Value, wire: &[u8]) {
    match vector["expect"]["terminate"]["code"].as_str() {
        Some("0x2002" | "0x2003") => mpa_refuses(vector, wire),
        Some("0x1000") => ddp_refuses(vector, wire),
        None if number(&vector["expect"]["mpa_error"]) == 1 => is_cut_short(vector, wire),
        other => panic!("{}: {other:?}", name(vector)),
    }
}

// RFC 5044 §4.4, §8
fn mpa_refuses(vector: &Value, wire: &[u8]) {
    for cut in 0..wire.len() {
        let (step, stream, mut deframer) = received(vector, wire, cut);
        let error = step.unwrap_err();
        assert_eq!(
            u64::from(error.code().code()),
            number(&vector["expect"]["mpa_error"]),
            "{}",
            name(vector)
        );
        let terminate = 0x2000 | u64::from(error.code().code());
        assert_eq!(terminate, number(&vector["expect"]["terminate"]["code"]), "{}", name(vector));
        assert_eq!(stream, wire[..stream.len()], "{}: nothing is moved in what is refused", name(vector));
        // RFC 5044 §8: nothing more of this direction is delivered.
        assert_eq!(deframer.step(&mut [0, 0, 0, 0, 0xc7, 0x4b, 0x67, 0x48]), Err(error));
    }
}

/// Checks a vector that DDP refuses: the ULPDU is too short for its header. MPA knows no shortest
/// ULPDU (RFC 5044 §3) and passes it on unchanged.
fn ddp_refuses(vector: &Value, wire: &[u8]) {
    is_delivered(vector, &hex(&vector["ulpdu_hex"]), wire);
}

// RFC 5044 §8: code 1 also stands for a FIN received.
fn is_cut_short(vector: &Value, wire: &[u8]) {
    for have in 1..=wire.len() {
        let mut deframer = Deframer::at(framing(vector), position(vector));
        let mut stream = wire[..have].to_vec();
        assert!(matches!(deframer.step(&mut stream), Ok(Step::Need { .. })), "{}", name(vector));
        let error = deframer.finish(&stream).unwrap_err();
        assert_eq!(error, FpduError::Truncated { have });
        assert_eq!(u64::from(error.code().code()), number(&vector["expect"]["mpa_error"]));
    }
}
