//! Peers that speak nothing but plain TCP, as was seen: the policy's `both` does not try them again
//! for a time.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rddp_real as real;

/// How long a peer is taken for a plain one.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How many of them.
const MANY: usize = 64;

/// Peers, and when each was seen to be a plain one.
type Plain = Vec<(SocketAddr, Instant)>;

static PLAIN: Mutex<Plain> = Mutex::new(Vec::new());

fn plain() -> real::Locked<Plain> {
    real::lock(&PLAIN)
}

/// Returns whether this peer has turned out to be a plain one.
pub(crate) fn is_known(peer: SocketAddr) -> bool {
    let mut known = plain();
    known.retain(|(_, at)| at.elapsed() < REMEMBERED);
    known.iter().any(|(known, _)| *known == peer)
}

/// Notes that this peer is a plain one.
pub(crate) fn remember(peer: SocketAddr) {
    let mut known = plain();
    if known.len() == MANY {
        known.remove(0);
    }
    known.push((peer, Instant::now()));
}
