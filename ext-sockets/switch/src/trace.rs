//! Events of the switch (`tracing`, target `rddp_switch`): what was switched, framed or refused,
//! and why. `RDDP_LOG` asks for them, and `rddp run -v`.
//!
//! Fields are numbers, addresses and words: an event takes no lock and no heap, since `connect` and
//! `accept` may be called in a signal handler.

use std::fmt::Arguments;
use std::net::SocketAddr;

use rddp_policy::{Family, Side};
use rddp_real as real;
use rddp_stream::{Phase, State};
use tracing::Level;

use crate::journal::Level as Importance;
use crate::socket::{Held, KindId};

/// Begins the log that the environment asks for, when the library is loaded.
pub fn begin() {
    rddp_log::begin(real::secure_variable);
}

/// The policy's decision on a socket, the line of the policy that says so, and the remark why it is
/// not as that line has it. Returns whether standard error has shown it.
pub(crate) fn decided(
    side: Side,
    addr: SocketAddr,
    (family, policy_line): (Family, Option<usize>),
    becomes: &'static str,
    remark: &'static str,
) -> bool {
    let (call, family) = (word(side), family.word());
    let (colon, becomes) = if remark.is_empty() { (": ", becomes) } else { ("", "") };
    tracing::info!(target: "rddp_switch", policy_line, "{call} {addr}: {family}{colon}{becomes}{remark}");
    is_shown(Importance::Call)
}

/// A line of the policy's log, too. Returns whether standard error has shown it.
pub(crate) fn told(importance: Importance, what: Arguments<'_>) -> bool {
    match importance {
        Importance::Call => tracing::info!(target: "rddp_switch", "{what}"),
        Importance::Warning => tracing::warn!(target: "rddp_switch", "{what}"),
        Importance::Error => tracing::error!(target: "rddp_switch", "{what}"),
    }
    is_shown(importance)
}

fn is_shown(importance: Importance) -> bool {
    let is_enabled = match importance {
        Importance::Call => tracing::enabled!(target: "rddp_switch", Level::INFO),
        Importance::Warning => tracing::enabled!(target: "rddp_switch", Level::WARN),
        Importance::Error => tracing::enabled!(target: "rddp_switch", Level::ERROR),
    };
    is_enabled && rddp_log::is_on_stderr()
}

/// A startup that has led to a framed connection, once for each.
pub(crate) fn startup_is_over(held: &Held, fd: i32, state: &State) {
    if state.phase() == Phase::Framed && tracing::enabled!(target: "rddp_switch", Level::INFO) {
        framed(held, fd);
    }
}

#[cold]
fn framed(held: &Held, fd: i32) {
    let _no_signals = real::NoSignals::here();
    let mut settings = held.settings();
    if std::mem::replace(&mut settings.framed_told, true) {
        return;
    }
    let call = if settings.to.is_some() { "connect" } else { "accept" };
    let what = if settings.kind == KindId::Sdp { "SDP" } else { "DDPMODE" };
    drop(settings);
    match real::peer_address(fd) {
        Some(peer) => tracing::info!(target: "rddp_switch", "{call} {peer}: framed, {what}"),
        None => tracing::info!(target: "rddp_switch", "{call}: framed, {what}; the peer has left"),
    }
}

/// Returns the call that a side makes.
pub(crate) fn word(side: Side) -> &'static str {
    match side {
        Side::Server => "listen",
        Side::Client => "connect",
    }
}
