//! The place from which one thread works with disks, near and far: one completion queue for all
//! connections, and a bell for the threads of files.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use rddp_command::device::Choice;
use rddp_command::endpoint::{cannot_wait, silent};
use rddp_command::failure::Failure;
use rddp_command::signals;
use rddp_rnic::{
    Access, Completed, Completion, CompletionQueue, ConnectOptions, ProtectionDomain, QpNum, Status,
};

use super::bell::Bell;
use super::buffers::Buffers;
use super::disk::Done;
use super::end::End;

/// Time for a whole handshake, at the most.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(30);

/// Completions that are taken before the ends send, at the most.
const TURN: usize = 256;

/// Returns the options of a connection to a server that may say nothing for so long.
pub(super) fn connect_options(patience: Duration) -> ConnectOptions {
    let usual = ConnectOptions::default();
    ConnectOptions { timeout: usual.timeout.min(patience), ..usual }
}

/// A device, and what all ends of a copy share of it.
pub(super) struct Desk {
    pub(super) pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
    pub(super) bell: Bell,
    /// Completions that came while another queue pair's were waited for.
    kept: RefCell<Vec<Completion>>,
}

impl Desk {
    pub(super) fn new() -> Result<Self, Failure> {
        // As the server's.
        let rnic = Choice::software().open()?;
        let cq = rnic.create_cq(64)?;
        let bell = Bell::new(&cq);
        Ok(Desk { pd: rnic.alloc_pd(), cq, bell, kept: RefCell::default() })
    }

    /// Returns buffers for payloads, of so many octets together. Servers of RDMA reach them.
    pub(super) fn buffers(&self, most: usize) -> Buffers {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        Buffers::new(self.pd.clone(), access, most)
    }

    /// Makes room in the completion queue for so many more completions.
    pub(super) fn make_room(&self, completions: usize) -> Result<(), Failure> {
        Ok(self.cq.resize(self.cq.capacity() + completions)?)
    }

    /// Returns the next receive of one queue pair, and keeps completions of others.
    pub(super) fn received(
        &self,
        qp: QpNum,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Completion, Failure> {
        loop {
            let completion = self.next_of(qp, deadline, patience)?;
            match (completion.completed, completion.status) {
                (Completed::Receive, Status::Success) => return Ok(completion),
                (_, Status::Success) => {}
                _ => {
                    return Err(Failure::peer("the server has ended the connection").remedy(
                        "it may have too many clients, or speak another protocol: its log may say more",
                    ));
                }
            }
        }
    }

    fn next_of(&self, qp: QpNum, deadline: Instant, patience: Duration) -> Result<Completion, Failure> {
        loop {
            if let Some(completion) = self.cq.poll_one() {
                if completion.qp == qp {
                    return Ok(completion);
                }
                self.kept.borrow_mut().push(completion);
                continue;
            }
            if Instant::now() >= deadline {
                return Err(silent(patience));
            }
            self.wait()?;
        }
    }

    /// Has the ends act on what has come, and adds the jobs that are done; waits where nothing has
    /// happened.
    pub(super) fn turn(&self, ends: &mut [&mut dyn End], done: &mut Vec<Done>) -> Result<(), Failure> {
        let mut count = 0;
        // A receive that an end posts may complete at once. All that has come is taken before
        // anything is sent, so that one call sends it.
        for completion in self.kept.take().into_iter().chain(self.cq.completions().take(TURN)) {
            count += 1;
            ends.iter_mut().try_for_each(|end| end.take(&completion))?;
        }
        ends.iter_mut().try_for_each(|end| end.turn(done))?;
        if count == 0 && done.is_empty() { self.wait() } else { Ok(()) }
    }

    /// Waits for a completion or the bell, but not for long.
    fn wait(&self) -> Result<(), Failure> {
        signals::check()?;
        self.bell.wait(signals::CHECK_INTERVAL).map_err(|error| cannot_wait(&error))
    }
}
