//! Limits of a gateway.

use std::time::Duration;

use rddp_verbs_device::Queues;

use crate::bridge::{RECEIVES, SENDS, Shape};

/// Queues of the endpoints of a gateway.
pub(crate) const QUEUES: Queues = Queues { sends: SENDS, receives: RECEIVES, inline: 0 };

/// Limits of a gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// Octets of the longest Send, of either side.
    pub max_message: usize,
    /// Time that the leg to the other host may take.
    pub leg_time: Duration,
    /// Time after which the device's host is asked whether it is still there.
    pub probe_time: Duration,
    /// Time between two looks at a connection that goes on: an event tells what it has moved.
    pub interval: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_message: 64 * 1024,
            leg_time: Duration::from_secs(3),
            probe_time: Duration::from_secs(30),
            interval: None,
        }
    }
}

impl Options {
    /// Returns how many octets of registered memory a connection has.
    #[must_use]
    pub fn memory(&self) -> usize {
        Shape::len_for(self.max_message)
    }
}
