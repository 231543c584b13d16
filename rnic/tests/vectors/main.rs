//! Every vector about FPDUs, DDP and RDMAP through a real socket, towards the active and the
//! passive side: placement, guard octets, completions, the asynchronous event, and the Terminate
//! octet for octet.
//!
//! A vector names fixed STags and TOs; here regions have others. The vector's octets are
//! therefore patched: an STag of its context becomes that of the region that stands for it, with
//! the same difference in the key, and a TO moves with the region's base. TOs that wrap stay as
//! they are. The CRC is computed anew for what was patched; all else is sent as the vector has
//! it. Two vectors about the MSN's wrap need a stream that is four billion messages old:
//! `src/qp/tests.rs` has them.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod outcome;
mod vector;

use bench::Bench;
use common::raw::{BOTH, Role};
use rddp_rnic::Rnic;
use vector::{Vector, vectors};

/// `send_msn_wrap_last` and `send_msn_wrapped`.
const ELSEWHERE: [&str; 2] = ["send_msn_wrap_last", "send_msn_wrapped"];

/// Runs a layer's vectors towards both roles; returns their number.
fn run(layer: &str) -> usize {
    let vectors = vectors(layer);
    let here = vectors.iter().filter(|vector| !ELSEWHERE.contains(&&*vector.name));
    for vector in here {
        for role in BOTH {
            run_one(vector, role);
        }
    }
    vectors.len()
}

fn run_one(vector: &Vector, role: Role) {
    let rnic = Rnic::open().unwrap();
    let pds = [rnic.alloc_pd(), rnic.alloc_pd()];
    // A passive side may send nothing before the first good FPDU: both ways, where the stream
    // allows it.
    let opened: &[bool] = match role {
        Role::Active => &[false],
        Role::Passive if vector.framing.markers => &[false],
        Role::Passive if vector.makes_the_engine_send() => &[true],
        Role::Passive => &[false, true],
    };
    for &open in opened {
        let mut bench = Bench::new(vector, &rnic, &pds, role, open);
        let sent = bench.play();
        let may_answer =
            role == Role::Active || open || bench.raw.fpdus.framer.position() > 0 || !vector.is_mpa_fault();
        outcome::check(&mut bench, sent.as_deref(), may_answer);
    }
}

#[test]
fn framed_vectors() {
    // RFC 5044 §4, §8
    assert_eq!(run("mpa-fpdu"), 30);
}

#[test]
fn tagged_vectors() {
    // RFC 5041 §7.1, §7.2
    assert_eq!(run("ddp-tagged"), 27);
}

#[test]
fn untagged_vectors() {
    // RFC 5041 §7.1, §7.2
    assert_eq!(run("ddp-untagged"), 32);
}

#[test]
fn rdmap_vectors() {
    // RFC 5040 §4.8, §7.1, §7.2
    assert_eq!(run("rdmap"), 29);
}

#[test]
fn extension_vectors() {
    // RFC 7306 §8
    assert_eq!(run("rdmap-ext"), 10);
}
