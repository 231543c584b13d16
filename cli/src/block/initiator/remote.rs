//! A disk of an NVMe target, by one I/O queue or several.

use std::time::{Duration, Instant};

use rddp_block::export::{Command, DiskError, Export, Extent};
use rddp_block::nvme::ADMIN_COMMANDS;
use rddp_block::nvme::host::{self, Disk, KEEP_ALIVE_MS, Next, Opening};
use rddp_command::failure::Failure;
use rddp_rnic::Completion;

use super::identity;
use super::queue::{Desktop, Queue, Shape};
use crate::block::desk::Desk;
use crate::block::disk::{Answer, Done, Job};
use crate::block::end::{End, Limits};
use crate::block::place::Way;
use crate::block::uri::Uri;

/// Time between two signs of life.
const ALIVE: Duration = Duration::from_millis(KEEP_ALIVE_MS as u64 / 3);

/// Octets that one command zeroes: what Write Zeroes has in 16 bits of blocks, and less.
const ZEROES: u32 = 16 << 20;

/// A disk.
pub(in crate::block) struct Remote {
    export: Export,
    disk: Disk,
    /// The queues go before the controller.
    queues: Vec<Queue>,
    admin: Queue,
    /// The time of the next sign of life.
    alive: Instant,
    /// Jobs that needed no command.
    done: Vec<Done>,
}

impl Remote {
    /// Connects, with as many I/O queues as are wanted and the target has.
    pub(in crate::block) fn open(desk: &Desk, uri: &Uri, way: Way<'_>) -> Result<Self, Failure> {
        let (host, desktop) = (identity::host(way.client.host_nqn.as_deref())?, Desktop::new(desk)?);
        let patience = way.client.timeout;
        let shape = Shape { qid: 0, entries: ADMIN_COMMANDS, cntlid: 0 };
        let admin = Queue::connect(desk, uri, shape, patience)?;
        let wanted = u16::try_from(way.connections.get()).unwrap_or(u16::MAX);
        let opening = Opening::for_disk(host.clone(), &uri.export, wanted, desktop.memory());
        let Next::Disk(disk) = admin.open(desk, opening, &desktop, uri)? else {
            return Err(Failure::peer(format!("{uri}: no disk")));
        };
        let export = Export { name: uri.to_string(), size: disk.size, writable: disk.writable };
        if way.writable && !export.writable {
            return Err(Failure::refused(format!("{uri} is served to read only"))
                .remedy("start its target for writing (rddp block serve --writable)"));
        }
        let mut queues = Vec::new();
        for qid in 1..=disk.queues {
            let shape = Shape { qid, entries: disk.entries, cntlid: disk.cntlid };
            let opening = Opening::for_queue(host.clone(), &uri.export, disk, qid, desktop.memory());
            let opened = Queue::connect(desk, uri, shape, patience)
                .and_then(|queue| queue.open(desk, opening, &desktop, uri).map(|_| queue));
            match opened {
                Ok(queue) => queues.push(queue),
                // A target may have no more; there is one at least.
                Err(failure) if qid > 1 => {
                    tracing::info!(%failure, "fewer queues");
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Remote { export, disk, queues, admin, alive: Instant::now() + ALIVE, done: Vec::new() })
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the answer to a job for which NVMe has no command.
    fn by_itself(&self, command: Command) -> Option<Answer> {
        match command {
            Command::Status { len, .. } => {
                Some(Answer::Extents(vec![Extent { len: len.into(), hole: false }]))
            }
            Command::Flush if !self.disk.has_cache => Some(Answer::Done),
            _ => None,
        }
    }
}

impl End for Remote {
    fn export(&self) -> &Export {
        &self.export
    }

    fn limits(&self) -> Limits {
        let disk = &self.disk;
        Limits {
            jobs: usize::from(disk.entries - 1) * self.queues.len(),
            connections: self.queues.len(),
            longest: disk.longest,
            block: 1 << disk.block_shift,
            zeroes: disk.zeroes.then_some(ZEROES),
        }
    }

    fn begin(&mut self, job: Job) -> Result<(), Failure> {
        if let Some(answer) = self.by_itself(job.command) {
            let Job { owner, id, buffer, .. } = job;
            self.done.push(Done { owner, id, buffer, result: Ok(answer) });
            return Ok(());
        }
        let idlest = self.queues.iter_mut().min_by_key(|queue| queue.load());
        let left = idlest.and_then(|queue| queue.begin(&self.disk, job));
        left.map_or(Ok(()), |job| Err(Failure::failed(format!("NVMe has no command for {}", job.command))))
    }

    fn take(&mut self, completion: &Completion) -> Result<(), Failure> {
        self.admin.take_note(completion)?;
        self.queues.iter_mut().try_for_each(|queue| queue.take(completion))
    }

    fn failure(&self, command: &Command, error: DiskError) -> Failure {
        Failure::refused(format!("{}: {command}: {error}", self.export.name))
            .remedy("the target's log may say more, and -v its status")
    }

    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        done.append(&mut self.done);
        if Instant::now() >= self.alive {
            self.alive = Instant::now() + ALIVE;
            self.admin.send(&host::keep_alive(0))?;
        }
        self.queues.iter_mut().try_for_each(|queue| queue.turn(done))
    }
}

impl Drop for Remote {
    /// Says goodbye, as NVMe has it.
    fn drop(&mut self) {
        // A target that has gone needs none.
        let _ = self.admin.send(&host::shut_down(0));
    }
}
