//! A model check of the state machine: two ends, two wires in order with any delay, and all that a
//! binding may do, in random order and, for the crossings that the rules are about, in every order.
//!
//! At each step: a message finds a buffer (`receive` refuses it else), octets are delivered in the
//! order in which they were sent, none lost or twice, and no memory is touched that is not
//! advertised. In the end everything drains, and both ends count alike.
//!
//! The long form: `cargo test --release -p rddp-sdp --test model -- --ignored`; the environment
//! variable `SDP_MODEL_RUNS` says how many (1,000,000), `SDP_MODEL_SEED` from which seed (0).

#![allow(clippy::unwrap_used, reason = "a test")]

mod actions;
mod crossings;
mod random;
mod world;

/// Octets of both directions, in any order of all actions (sdp.md 10.5 to 10.8).
#[test]
fn random_interleavings() {
    random::explore(0..10_000, 120);
    random::explore(10_000..10_200, 1_500);
}

/// The long form of [`random_interleavings`].
#[test]
#[ignore = "takes minutes"]
fn many_random_interleavings() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let from = number("SDP_MODEL_SEED", 0);
    random::explore(from..from + number("SDP_MODEL_RUNS", 1_000_000), 200);
}
