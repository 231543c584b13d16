//! The active end, which measures.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rddp_command::failure::Failure;
use rddp_command::signals::CHECK_INTERVAL;
use rddp_load::Extent;

use super::{Link, link};
use crate::perf::control::{Phase, Sent, Setup};
use crate::perf::measure::Latencies;
use crate::perf::spin::Wish;

/// Time without an answer after which a datagram counts as lost.
const LOST: Duration = Duration::from_millis(200);

pub(in crate::perf) struct Active {
    link: Box<dyn Link>,
    may_lose: bool,
}

impl Active {
    pub(in crate::perf) fn new(setup: &Setup, list: Vec<TcpStream>, wish: Wish) -> Result<Self, Failure> {
        Ok(Self::over(link(setup, list, wish)?, setup.op.is_datagrams()))
    }

    pub(super) fn over(link: Box<dyn Link>, may_lose: bool) -> Self {
        Active { link, may_lose }
    }

    /// Limits the slice that begins, where a client has asked for it.
    pub(in crate::perf) fn end_by(&mut self, deadline: Instant) {
        self.link.spin().serve_until(deadline);
    }

    /// Sends within the limits.
    pub(in crate::perf) fn bandwidth(&mut self, extent: Extent) -> Result<Sent, Failure> {
        self.begin(Phase::Bandwidth);
        let until = Instant::now() + extent.time;
        let mut sent = 0;
        while sent < extent.messages && Instant::now() < until {
            let now = self.link.send(extent.messages - sent)?;
            sent += now;
            if !self.link.poll()? && now == 0 {
                self.link.idle(CHECK_INTERVAL)?;
            }
        }
        self.finish(sent)
    }

    /// Measures one message at a time there and back, within the limits.
    pub(in crate::perf) fn latency(
        &mut self,
        extent: Extent,
        latencies: &mut Latencies,
    ) -> Result<Sent, Failure> {
        self.begin(Phase::Latency);
        let (mut begun, mut rounds, mut unanswered) = (Instant::now(), 0, 0);
        let until = begun + extent.time;
        while rounds < extent.messages && begun < until {
            rounds += 1;
            let is_answered = self.ask(begun)?;
            let now = Instant::now();
            if is_answered {
                latencies.record((now - begun) / 2);
            } else {
                unanswered += 1;
            }
            begun = now;
        }
        let Sent { messages, .. } = self.finish(rounds)?;
        Ok(Sent { messages, lost: unanswered })
    }

    /// Sends a message; returns whether its answer has come.
    fn ask(&mut self, begun: Instant) -> Result<bool, Failure> {
        let before = self.link.arrived();
        self.link.send_one()?;
        while self.link.arrived() == before {
            if self.link.poll()? {
                continue;
            }
            self.link.idle(CHECK_INTERVAL)?;
            if self.may_lose && begun.elapsed() > LOST {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin(&mut self, phase: Phase) {
        self.link.spin().reset();
        self.link.begin(phase);
    }

    /// Tells the passive end how many messages there were, and returns how many have arrived.
    fn finish(&mut self, sent: u64) -> Result<Sent, Failure> {
        self.until(|link| Ok(link.has_sent().then_some(())))?;
        self.link.tell(sent)?;
        // What strangers have sent to a port does not count.
        let messages = self.until(|link| link.told())?.min(sent);
        Ok(Sent { messages, lost: sent - messages })
    }

    fn until<T>(
        &mut self,
        mut done: impl FnMut(&mut dyn Link) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        loop {
            if let Some(done) = done(&mut *self.link)? {
                return Ok(done);
            }
            if !self.link.poll()? {
                self.link.idle(CHECK_INTERVAL)?;
            }
        }
    }

    pub(in crate::perf) fn close(&self) {
        self.link.close();
    }
}
