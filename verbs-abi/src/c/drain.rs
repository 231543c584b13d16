//! The state SQD: what is posted in it waits until the queue pair is back in RTS, and all before it
//! is sent and answered (InfiniBand Architecture §10.3.1).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use parking_lot::MutexGuard;
use rddp_rnic::{Gather, Operation, PostListError, SendWr, Status};

use super::abi::{event, qp_state};
use super::queue_pair::{Drain, Qp};
use crate::engine::spawn;
use crate::errors::Outcome;
use crate::refusal::because;

/// Time between two looks whether all has been sent, where a program waits for the event.
const LOOK: Duration = Duration::from_millis(1);

impl Qp {
    /// Goes to SQD, unless the connection ends meanwhile. `tells` asks for an event when all that
    /// was posted is done.
    pub(super) fn drain(self: &Arc<Self>, tells: bool) -> Outcome<()> {
        let mut waiting = self.drain.lock();
        self.refuse_if_over()?;
        if tells {
            // First, as nothing has changed where there is no thread; it waits for the lock.
            self.tell_when_drained()?;
        }
        let requests = waiting.take().map_or_else(Vec::new, |waiting| waiting.requests);
        *waiting = Some(Drain { requests, tells });
        self.set_state(qp_state::SQD);
        Ok(())
    }

    /// Refuses a step where the connection has ended since the program asked for it. Called with
    /// the lock under which the end is noted.
    fn refuse_if_over(&self) -> Outcome<()> {
        match self.state() {
            qp_state::ERR => Err(because(Errno::EINVAL, "the connection has ended meanwhile")),
            _ => Ok(()),
        }
    }

    /// Has a thread tell the program when all is done, unless the queue pair leaves SQD before.
    fn tell_when_drained(self: &Arc<Self>) -> Outcome<()> {
        let qp = Arc::downgrade(self);
        spawn(move || {
            while qp.upgrade().is_some_and(|qp| !qp.tell_if_drained()) {
                thread::sleep(LOOK);
            }
        })
    }

    /// Tells the program if all is done. Returns whether nothing is to be told any more.
    fn tell_if_drained(&self) -> bool {
        // A queue pair that is destroyed has left SQD before its events are forgotten.
        let mut waiting = self.drain.lock();
        let Some(waiting) = waiting.as_mut().filter(|waiting| waiting.tells) else { return true };
        let is_drained = self.queues.outstanding() == 0;
        if is_drained {
            waiting.tells = false;
            self.report(event::SQ_DRAINED);
        }
        is_drained
    }

    /// Returns whether the queue pair is in SQD, and requests of before are not done.
    pub(super) fn is_draining(&self) -> bool {
        self.state() == qp_state::SQD && self.queues.outstanding() > 0
    }

    /// Keeps requests of a queue pair in SQD: all, or with `whole` none if one of them is refused.
    /// Returns `None` if it is not in SQD: they are to be posted.
    #[cold]
    pub(super) fn hold(&self, list: &[SendWr], whole: bool) -> Option<Result<(), PostListError>> {
        let mut waiting = self.drain.lock();
        let requests = &mut waiting.as_mut()?.requests;
        let before = requests.len();
        for (posted, wr) in list.iter().enumerate() {
            if let Err(error) = self.queues.check_request(wr, requests.len()) {
                requests.truncate(if whole { before } else { before + posted });
                return Some(Err(PostListError { posted, error }));
            }
            requests.push(wr.clone());
        }
        Some(Ok(()))
    }

    /// Goes to RTS with what has waited in SQD, if it was there, unless the connection ends
    /// meanwhile.
    pub(super) fn go_on(&self) -> Outcome<()> {
        let waiting = self.drain.lock();
        self.refuse_if_over()?;
        self.go_with_requests(waiting, qp_state::RTS);
        Ok(())
    }

    /// Goes to ERR, where what has waited in SQD is flushed.
    pub(super) fn go_to_end(&self) {
        self.go_with_requests(self.drain.lock(), qp_state::ERR);
    }

    /// Goes to a state with what has waited in SQD.
    fn go_with_requests(&self, mut waiting: MutexGuard<'_, Option<Drain>>, state: u32) {
        let requests = waiting.take().map_or_else(Vec::new, |waiting| waiting.requests);
        // Who posts meanwhile waits for this lock.
        requests.iter().for_each(|wr| self.post_late(wr));
        self.set_state(state);
    }

    /// Posts a request that has waited. One that cannot be posted any more, as its memory is gone,
    /// fails, and does not vanish.
    fn post_late(&self, wr: &SendWr) {
        let Err(refused) = self.post_now(std::slice::from_ref(wr)) else { return };
        tracing::info!(error = %refused.error, "a request that waited in SQD fails");
        let empty = SendWr { operation: without_memory(&wr.operation), ..wr.clone() };
        if let Err(error) = self.queues.fail_request(&empty, Status::LocalProtection, None) {
            tracing::warn!(%error, "a request that waited in SQD is not posted");
        }
    }

    /// Drops what waits: the queue pair is about to leave SQD, and nobody asks for completions.
    pub(super) fn give_up_drain(&self) {
        *self.drain.lock() = None;
    }
}

/// Returns an operation that stands for another, and names no memory.
fn without_memory(operation: &Operation) -> Operation {
    let gather = Gather::Inline(Vec::new());
    match operation {
        Operation::Unreliable { to, .. } => Operation::Unreliable { gather, to: *to, immediate: None },
        _ => Operation::Send { gather, invalidate: None },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TURN, made};
    use super::*;

    /// The device's thread may note the end between the program's look at the state and the step.
    #[test]
    fn a_queue_pair_whose_connection_has_ended_comes_neither_to_sqd_nor_to_rts() {
        let _turn = TURN.lock();
        let qp = made();
        qp.end();
        assert!(qp.drain(false).is_err() && qp.go_on().is_err());
        assert_eq!((qp.state(), qp.drain.lock().is_none()), (qp_state::ERR, true));
    }
}
