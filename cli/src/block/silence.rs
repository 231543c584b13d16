//! The silence of a server that owes an answer, which has a limit.

use std::time::{Duration, Instant};

use rddp_block::export::Command;
use rddp_command::failure::Failure;

/// The time for which a server may owe an answer and say nothing, and since when that is so.
pub(super) struct Silence {
    patience: Duration,
    since: Instant,
    /// The server has said something since the last check.
    is_heard: bool,
}

impl Silence {
    pub(super) fn new(patience: Duration) -> Self {
        Silence { patience, since: Instant::now(), is_heard: false }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn heard(&mut self) {
        self.is_heard = true;
    }

    /// Fails where the server, which has that name, has owed answers to requests for too long.
    pub(super) fn check(
        &mut self,
        name: &str,
        owes: bool,
        requests: impl FnOnce() -> Vec<Command>,
    ) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_heard) || !owes {
            self.since = Instant::now();
            return Ok(());
        }
        if self.since.elapsed() < self.patience {
            return Ok(());
        }
        let time = self.patience.as_secs_f32();
        let requests = requests();
        let one = requests.first().map(|command| format!(": {command}")).unwrap_or_default();
        let count = requests.len();
        let cause =
            format!("{name}: the server has said nothing for {time} s, with {count} requests under way{one}");
        Err(Failure::peer(cause).remedy("--timeout gives it more time; its log may say more"))
    }
}
