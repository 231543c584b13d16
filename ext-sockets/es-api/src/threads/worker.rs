//! One of the two threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{POLLERR, POLLHUP, POLLNVAL};
use rddp_real::Errno;

use super::descriptor::Descriptor;
use super::rounds::Rounds;
use super::task::Task;
use super::{Direction, IS_WORKER};
use crate::sys::threads::{PostBox, spawn};

/// The end that callers post work to.
pub(super) struct Worker {
    shared: Arc<Shared>,
}

struct Shared {
    post_box: PostBox,
    posted: Mutex<Posted>,
}

/// Tasks that were written to the socket and not yet read, each with how often.
#[derive(Default)]
struct Posted {
    tasks: HashMap<u64, (Arc<dyn Task>, usize)>,
    is_dead: bool,
}

impl Worker {
    pub(super) fn begin(direction: Direction) -> Result<Self, Errno> {
        let shared = Arc::new(Shared { post_box: PostBox::new()?, posted: Mutex::default() });
        let name = match direction {
            Direction::Send => "rddp-send",
            Direction::Receive => "rddp-receive",
        };
        let of_thread = Arc::clone(&shared);
        spawn(name, move || {
            IS_WORKER.set(true);
            Life { shared: of_thread, active: Vec::new() }.live();
        })?;
        Ok(Worker { shared })
    }

    pub(super) fn post(&self, task: &Arc<dyn Task>) -> Result<(), Errno> {
        let mut posted = self.shared.posted();
        if posted.is_dead {
            return Err(Errno::ABORTED);
        }
        let descriptor = Descriptor { process: std::process::id(), fd: task.fd(), task: task.id() };
        self.shared.post_box.post(&descriptor.octets()).map_err(|errno| match errno {
            Errno::WOULD_BLOCK => Errno::WOULD_BLOCK,
            _ => Errno::ABORTED,
        })?;
        posted.tasks.entry(task.id()).or_insert_with(|| (task.clone(), 0)).1 += 1;
        Ok(())
    }

    pub(super) fn nudge(&self) {
        // A full socket wakes the thread as well, so that a failure does not matter.
        let nudge = Descriptor { process: std::process::id(), fd: -1, task: 0 };
        let _ = self.shared.post_box.post(&nudge.octets());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.post_box.hang_up();
    }
}

impl Shared {
    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the tasks whose descriptors have come into `into`, and returns their numbers.
    fn take(&self, into: &mut Vec<Arc<dyn Task>>) -> Result<Vec<u64>, Errno> {
        let mut taken = Vec::new();
        while let Some(octets) = self.post_box.take()? {
            let Some(descriptor) = Descriptor::parse(&octets) else { continue };
            if descriptor.process != std::process::id() || descriptor.task == 0 {
                continue;
            }
            let mut posted = self.posted();
            let Some((task, count)) = posted.tasks.get_mut(&descriptor.task) else { continue };
            if !into.iter().any(|known| known.id() == descriptor.task) {
                into.push(task.clone());
            }
            *count -= 1;
            if *count == 0 {
                posted.tasks.remove(&descriptor.task);
            }
            taken.push(descriptor.task);
        }
        Ok(taken)
    }
}

/// The thread's own side. However the thread ends, no caller is left waiting.
struct Life {
    shared: Arc<Shared>,
    active: Vec<Arc<dyn Task>>,
}

impl Life {
    fn live(mut self) {
        let mut rounds = Rounds::default();
        while self.turn(&mut rounds).is_ok() {}
    }

    fn turn(&mut self, rounds: &mut Rounds) -> Result<(), Errno> {
        match rounds.wait(self.shared.post_box.inbox(), &self.active, None) {
            Ok(posted) => {
                let mut index = 0;
                self.active.retain(|task| {
                    index += 1;
                    !rounds.is_due(index - 1) || task.advance()
                });
                if rounds.first_events() & (POLLERR | POLLHUP | POLLNVAL) != 0 {
                    return Err(Errno::ABORTED);
                }
                if posted { self.begin_posted() } else { Ok(()) }
            }
            Err(Errno::INTERRUPTED) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn begin_posted(&mut self) -> Result<(), Errno> {
        let posted = self.shared.take(&mut self.active)?;
        self.active.retain(|task| !posted.contains(&task.id()) || task.advance());
        Ok(())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let tasks = {
            let mut posted = self.shared.posted();
            posted.is_dead = true;
            std::mem::take(&mut posted.tasks)
        };
        for task in self.active.drain(..).chain(tasks.into_values().map(|(task, _)| task)) {
            task.abandon(Errno::ABORTED);
        }
    }
}
