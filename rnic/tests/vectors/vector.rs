//! The vectors of `tests/vectors/vectors.json`.

use rddp_ddp::Stag;
use rddp_mpa::{Framing, StartupConfig};
use rddp_rnic::ConnectOptions;
use rddp_test_support::{plain, segment};
use serde_json::{Map, Value};

use crate::common::raw;

pub struct Vector {
    pub name: String,
    pub rx: Map<String, Value>,
    pub expect: Value,
    pub framing: Framing,
    pub position: u64,
    pub ulpdu: Option<Vec<u8>>,
    pub octets: Vec<u8>,
}

pub fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap_or_default();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

pub fn number(value: &Value) -> u64 {
    match value.as_str() {
        Some(hex) => u64::from_str_radix(hex.strip_prefix("0x").unwrap(), 16).unwrap(),
        None => value.as_u64().unwrap_or(0),
    }
}

pub fn stag(value: &Value) -> Stag {
    Stag(number(value) as u32)
}

/// Returns the vectors of a layer that have octets, each with the context of its receiver.
pub fn vectors(layer: &str) -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of_layer = |vector: &&Value| vector["layer"] == layer && vector["kind"] != "compute";
    let vectors = file["vectors"].as_array().unwrap().iter().filter(of_layer);
    vectors.map(|vector| Vector::new(vector, &file["default_rx_context"])).collect()
}

impl Vector {
    fn new(vector: &Value, default: &Value) -> Self {
        let mut rx = default.as_object().unwrap().clone();
        rx.extend(vector["rx"].as_object().cloned().unwrap_or_default());
        // Some frames are not the first of their stream.
        if vector["layer"] == "mpa-fpdu" && vector["in"]["msn"].is_u64() {
            rx["q0"]["next_msn"] = vector["in"]["msn"].clone();
        } else if number(&vector["stream"]["pos"]) > 0 {
            rx["q0"]["next_msn"] = 2.into();
        }
        let mut ulpdu = vector.get("ulpdu_hex").map(hex);
        if vector.get("digest").is_some() {
            // Octet i of the payload is i mod 256.
            let payload: Vec<u8> = (0..number(&vector["in"]["payload_len"])).map(|i| i as u8).collect();
            let (stag, to) = (stag(&vector["in"]["stag"]), number(&vector["in"]["to"]));
            ulpdu = Some(segment::write(stag, to, false, &payload));
        }
        let bit = |name: &str| vector["stream"][name].as_bool().unwrap();
        Vector {
            name: vector["name"].as_str().unwrap().to_owned(),
            rx,
            expect: vector["expect"].clone(),
            framing: Framing { crc: bit("crc"), markers: bit("markers") },
            position: number(&vector["stream"]["pos"]),
            ulpdu,
            octets: hex(&vector["hex"]),
        }
    }

    pub fn verdict(&self) -> &str {
        self.expect["verdict"].as_str().unwrap()
    }

    pub fn code(&self) -> Option<u64> {
        self.expect.get("terminate").map(|terminate| number(&terminate["code"]))
    }

    /// Returns whether the vector's context is reached only when the engine sends something first.
    pub fn makes_the_engine_send(&self) -> bool {
        let reads = self.rx["outstanding_reads"].as_array().unwrap();
        !reads.is_empty() || ["atomic_fetchadd_rsp", "write_invalidated_stag"].contains(&&*self.name)
    }

    pub fn is_mpa_fault(&self) -> bool {
        self.expect.get("mpa_error").is_some()
    }

    pub fn startup(&self) -> StartupConfig {
        let ird = number(&self.rx["q1"]["ird"]) as u16;
        StartupConfig { ird: 8, ord: ird, crc: self.framing.crc, ..plain() }
    }

    pub fn options(&self) -> ConnectOptions {
        ConnectOptions {
            crc: self.framing.crc,
            markers: self.framing.markers,
            ird: number(&self.rx["q1"]["ird"]) as u16,
            ord: 8,
            extensions: self.rx.get("rfc7306") != Some(&Value::Bool(false)),
            ..raw::client_server()
        }
    }
}
