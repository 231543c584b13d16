//! The passive end, which answers.

use rddp_rnic::{Completed, PostError};

use super::{End, connection_of, marker, step_of};

/// Answers of a passive end, beside the credits that it gives.
pub trait Answers<E: End> {
    /// Answers a message that has arrived on a connection.
    fn message(&mut self, end: &mut E, at: usize) -> Result<(), E::Failure>;

    /// Answers messages that only memory shows; called at each turn. Returns whether there were
    /// any.
    fn poll_memory(&mut self, end: &mut E) -> Result<bool, E::Failure>;
}

/// The loop of a passive end, and the credits that it owes.
#[derive(Debug)]
pub struct Passive {
    flows: Vec<Flow>,
    /// Receives that are posted again before the active end is told.
    step: u64,
    /// True if a credit could not be posted because the send queue was full.
    owes_credits: bool,
    by_sends: bool,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// Receives that were used up, and posted again.
    consumed: u64,
    /// The part of them that the active end was told of.
    credited: u64,
    ended: bool,
}

impl Passive {
    /// Makes an end whose first `connections` carry messages, with `window` receives posted on
    /// each.
    #[must_use]
    pub fn new(connections: usize, window: usize) -> Self {
        let (flows, step) = (vec![Flow::default(); connections], step_of(window));
        Passive { flows, step, owes_credits: false, by_sends: false }
    }

    /// Says whether slices end, and credits are given, [by Sends](super).
    pub fn set_by_sends(&mut self, by_sends: bool) {
        self.by_sends = by_sends;
    }

    /// Receives and answers until the active end has ended the slice on every connection.
    ///
    /// # Errors
    ///
    /// An error that stops the end, or that `answers` returns.
    pub fn serve<E: End>(&mut self, end: &mut E, answers: &mut impl Answers<E>) -> Result<(), E::Failure> {
        self.flows.iter_mut().for_each(|flow| flow.ended = false);
        while !self.flows.iter().all(|flow| flow.ended && flow.credited == flow.consumed) {
            end.turn()?;
            let count = end.poll()?;
            self.handle(end, answers)?;
            if self.owes_credits {
                self.owes_credits = false;
                (0..self.flows.len()).try_for_each(|at| self.give_credit(end, at))?;
            }
            if !answers.poll_memory(end)? && count == 0 {
                end.idle()?;
            }
        }
        Ok(())
    }

    fn handle<E: End>(&mut self, end: &mut E, answers: &mut impl Answers<E>) -> Result<(), E::Failure> {
        for number in 0..end.polled().len() {
            let completion = end.polled()[number];
            let at = connection_of(completion.wr_id);
            match completion.completed {
                Completed::Receive | Completed::ReceiveImmediate => end.post_receive(at)?,
                _ => continue,
            }
            self.flows[at].consumed += 1;
            let is_empty = self.by_sends && completion.byte_len == 0;
            if is_empty || completion.completed == Completed::ReceiveImmediate {
                self.flows[at].ended = true;
            } else {
                answers.message(end, at)?;
            }
            self.give_credit(end, at)?;
        }
        Ok(())
    }

    /// Tells the active end of receives that are posted again: a quarter of the window at a time.
    fn give_credit<E: End>(&mut self, end: &E, at: usize) -> Result<(), E::Failure> {
        let flow = &mut self.flows[at];
        loop {
            let due = flow.consumed - flow.credited;
            if due == 0 || (due < self.step && !flow.ended) {
                return Ok(());
            }
            // A Send says that there is one step more, or the rest.
            let told = if self.by_sends { flow.credited + due.min(self.step) } else { flow.consumed };
            let credit = marker(at, self.by_sends, told.to_be_bytes()).unsignaled();
            match end.qp(at).post_send(&credit) {
                Ok(()) => flow.credited = told,
                // The active end is slow to read: the credit is posted at the next turn.
                Err(PostError::QueueFull { .. }) => {
                    self.owes_credits = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
