//! The active end, which posts and measures.

use std::time::{Duration, Instant};

use rddp_rnic::{Completed, Operation, SendWr};

use super::{BATCH, End, connection_of, kind_of, marker, post, single_id, step_of};
use crate::Extent;

/// Limits on what an active end has outstanding on one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that have not completed.
    pub depth: usize,
    /// Receives that the passive end keeps posted.
    pub window: usize,
    /// True if each message takes one of these receives, as a Send does.
    pub takes_receives: bool,
}

/// The loops of an active end, and the requests that it has outstanding.
#[derive(Debug)]
pub struct Active {
    limits: Limits,
    flows: Vec<Flow>,
    answers: u64,
    by_sends: bool,
}

/// Requests outstanding on one connection.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// The requests of a batch, posted again and again. Only the last is signaled: they complete in
    /// order, so one completion stands for all.
    batch: Vec<SendWr>,
    outstanding: usize,
    /// Messages that took a receive at the passive end, and those of them whose receive is posted
    /// again.
    sent: u64,
    credited: u64,
}

impl Flow {
    /// Returns the first `count` messages of the batch, each signaled for itself.
    fn part(&self, at: usize, count: usize) -> Vec<SendWr> {
        let single = |wr: &SendWr| SendWr { wr_id: single_id(at), signaled: true, ..wr.clone() };
        self.batch[..count].iter().map(single).collect()
    }
}

impl Active {
    /// Makes an end whose first `connections` carry messages. Each has to be [aimed](Self::aim).
    #[must_use]
    pub fn new(connections: usize, limits: Limits) -> Self {
        Active { limits, flows: vec![Flow::default(); connections], answers: 0, by_sends: false }
    }

    /// Says whether slices end, and credits come, [by Sends](super).
    pub fn set_by_sends(&mut self, by_sends: bool) {
        self.by_sends = by_sends;
    }

    /// Returns the number of connections that carry messages.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.flows.len()
    }

    /// Prepares the batch of one connection: the same operation, `batch` times.
    pub fn aim(&mut self, at: usize, operation: Operation, batch: usize) {
        self.aim_at_all(at, vec![operation; batch]);
    }

    /// Prepares the batch of one connection: each of `operations` once.
    pub fn aim_at_all(&mut self, at: usize, operations: Vec<Operation>) {
        let wr = |operation| SendWr::new(BATCH | at as u64, operation).unsignaled();
        let mut batch: Vec<_> = operations.into_iter().map(wr).collect();
        if let Some(last) = batch.last_mut() {
            last.signaled = true;
        }
        self.flows[at].batch = batch;
    }

    /// Posts within the limits, then tells the passive end and waits for all outstanding requests.
    /// Returns the number of messages; all of them have arrived by then, since the other end has
    /// confirmed it.
    ///
    /// # Errors
    ///
    /// An error that stops the end.
    pub fn bandwidth<E: End>(&mut self, end: &mut E, extent: impl Into<Extent>) -> Result<u64, E::Failure> {
        let extent = extent.into();
        let until = Instant::now() + extent.time;
        let mut messages = 0;
        while messages < extent.messages && Instant::now() < until {
            let posted = self.post_batches(end, extent.messages - messages)?;
            messages += posted;
            if self.reap(end)? == 0 && posted == 0 {
                end.idle()?;
            }
        }
        self.finish(end)?;
        Ok(messages)
    }

    /// Posts a batch on each connection that may have more outstanding, altogether at most `most`
    /// messages, and returns their number.
    fn post_batches<E: End>(&mut self, end: &E, most: u64) -> Result<u64, E::Failure> {
        let Limits { depth, window, takes_receives } = self.limits;
        let mut posted = 0;
        for (at, flow) in self.flows.iter_mut().enumerate() {
            let count = (flow.batch.len() as u64).min(most - posted);
            // One receive is left for the message that ends the slice.
            let has_receives = !takes_receives || flow.sent - flow.credited + count < window as u64;
            if count > 0 && flow.outstanding + flow.batch.len() <= depth && has_receives {
                if count == flow.batch.len() as u64 {
                    post(end, at, &flow.batch)?;
                } else {
                    post(end, at, &flow.part(at, count as usize))?;
                }
                flow.outstanding += count as usize;
                flow.sent += if takes_receives { count } else { 0 };
                posted += count;
            }
        }
        Ok(posted)
    }

    /// Tells the passive end that the slice is over, and waits for all outstanding requests.
    ///
    /// # Errors
    ///
    /// An error that stops the end.
    pub fn finish<E: End>(&mut self, end: &mut E) -> Result<(), E::Failure> {
        for at in 0..self.flows.len() {
            self.post(end, at, &[marker(at, self.by_sends, [0; 8])])?;
            self.flows[at].sent += 1;
        }
        // The last credit of a slice, which is that of all the rest, must not come in the next.
        let is_over =
            |by_sends: bool, flow: &Flow| flow.outstanding == 0 && (!by_sends || flow.credited == flow.sent);
        self.until(end, |active, _| Ok(active.flows.iter().all(|flow| is_over(active.by_sends, flow))))
    }

    fn post<E: End>(&mut self, end: &E, at: usize, list: &[SendWr]) -> Result<(), E::Failure> {
        post(end, at, list)?;
        self.flows[at].outstanding += list.iter().filter(|wr| wr.signaled).count();
        Ok(())
    }

    /// Takes completions until `done` returns true.
    ///
    /// # Errors
    ///
    /// An error that stops the end, or that `done` returns.
    pub fn until<E: End>(
        &mut self,
        end: &mut E,
        mut done: impl FnMut(&Self, &E) -> Result<bool, E::Failure>,
    ) -> Result<(), E::Failure> {
        end.progressed();
        while !done(self, end)? {
            if self.reap(end)? == 0 {
                end.idle()?;
            }
        }
        Ok(())
    }

    /// Takes completions, and returns their number.
    fn reap<E: End>(&mut self, end: &mut E) -> Result<usize, E::Failure> {
        let count = end.poll()?;
        for completion in end.polled() {
            let at = connection_of(completion.wr_id);
            let flow = &mut self.flows[at];
            match completion.completed {
                Completed::ReceiveImmediate => {
                    // Credits beyond what was sent are ignored.
                    let credited = u64::from_be_bytes(completion.immediate.unwrap_or_default());
                    flow.credited = credited.clamp(flow.credited, flow.sent);
                    end.post_receive(at)?;
                }
                Completed::Receive if self.by_sends && completion.byte_len == 0 => {
                    flow.credited = (flow.credited + step_of(self.limits.window)).min(flow.sent);
                    end.post_receive(at)?;
                }
                Completed::Receive => {
                    self.answers += 1;
                    end.post_receive(at)?;
                }
                _ if kind_of(completion.wr_id) == BATCH => flow.outstanding -= flow.batch.len(),
                _ => flow.outstanding -= 1,
            }
        }
        Ok(count)
    }

    /// Calls `round` again and again within the limits, and records how long each call took.
    ///
    /// # Errors
    ///
    /// An error that stops the end, or that `round` returns.
    pub fn latency<E: End>(
        &mut self,
        end: &mut E,
        extent: impl Into<Extent>,
        mut round: impl FnMut(&mut Self, &mut E) -> Result<(), E::Failure>,
        mut record: impl FnMut(Duration),
    ) -> Result<(), E::Failure> {
        let extent = extent.into();
        let (mut begun, mut rounds) = (Instant::now(), 0);
        let until = begun + extent.time;
        while rounds < extent.messages && begun < until {
            round(self, end)?;
            rounds += 1;
            let now = Instant::now();
            record(now - begun);
            begun = now;
        }
        self.finish(end)
    }

    /// Posts requests on the first connection and waits until those that are signaled have
    /// completed.
    ///
    /// # Errors
    ///
    /// An error that stops the end.
    pub fn complete<E: End>(&mut self, end: &mut E, list: &[SendWr]) -> Result<(), E::Failure> {
        self.post(end, 0, list)?;
        self.until(end, |active, _| Ok(active.flows[0].outstanding == 0))
    }

    /// Posts requests on the first connection, of which one takes a receive. Waits for the answer,
    /// and until those that are signaled have completed.
    ///
    /// # Errors
    ///
    /// An error that stops the end.
    pub fn ask<E: End>(&mut self, end: &mut E, list: &[SendWr]) -> Result<(), E::Failure> {
        let before = self.answers;
        self.flows[0].sent += 1;
        self.post(end, 0, list)?;
        self.until(end, |active, _| Ok(active.answers != before && active.flows[0].outstanding == 0))
    }
}
