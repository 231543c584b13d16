//! Every MPA vector of `tests/vectors/vectors.json`: positive, negative and computed.
#![allow(clippy::unwrap_used)] // in tests

mod crc;
mod fpdu;
mod negotiation;
mod startup;

use serde_json::Value;

/// Returns the vectors of a layer. There must be `count` of them, so that none is lost unnoticed.
fn vectors(layer: &str, count: usize) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/vectors.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let vectors: Vec<_> = file["vectors"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|vector| vector["layer"] == layer)
        .cloned()
        .collect();
    assert_eq!(vectors.len(), count, "vectors of {layer}");
    vectors
}

fn name(vector: &Value) -> &str {
    vector["name"].as_str().unwrap()
}

fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// A number, or its hexadecimal form in a string.
fn number(value: &Value) -> u64 {
    match value.as_str() {
        Some(text) => u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        None => value.as_u64().unwrap(),
    }
}

fn bit(value: &Value) -> bool {
    number(value) == 1
}
