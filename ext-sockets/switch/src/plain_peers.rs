//! Peers that are known not to speak MPA: under the policy's `both`, `connect` does not try it
//! again for a time.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rddp_real as real;

/// The time for which a peer counts as a plain one.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The largest number of peers that are remembered.
const MANY: usize = 64;

/// The plain peers, and the time when each was found to be one.
type Plain = Vec<(SocketAddr, Instant)>;

static PLAIN: Mutex<Plain> = Mutex::new(Vec::new());

fn plain() -> real::Locked<Plain> {
    real::lock(&PLAIN)
}

/// Returns whether this peer was found to be a plain one.
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
