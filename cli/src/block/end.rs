//! The ends of a copy: disks, here or far away, that take jobs and give them back when done.
//!
//! One thread drives them: it begins jobs, hands them the completions of the queue, and has each
//! take its turn. No method sleeps.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rddp_block::export::{Command, DiskError, Export};
use rddp_command::failure::Failure;
use rddp_rnic::Completion;

use super::desk::Desk;
use super::disk::{Disk, Done, Job, Remedies, Results};

/// Octets of a request to a file: more make nothing faster.
const LONGEST: u32 = 1 << 20;

const REMEDIES: Remedies =
    Remedies { denied: "ls -l shows who may", missing: "name a file or device that is there" };

/// A disk to copy from or to, or to measure.
pub(super) trait End {
    /// The disk, its size, and whether it may be written.
    fn export(&self) -> &Export;

    /// Limits of requests to the disk.
    fn limits(&self) -> Limits;

    /// Begins a job. Payload is in the job's buffer, which comes back with it.
    fn begin(&mut self, job: Job) -> Result<(), Failure>;

    /// Acts on a completion of the desk's queue, if it is of a queue pair of this end.
    fn take(&mut self, completion: &Completion) -> Result<(), Failure>;

    /// Returns the failure of a request: of this host, or of a peer.
    fn failure(&self, command: &Command, error: DiskError) -> Failure;

    /// Sends what was begun since the last turn, and adds the jobs that are done.
    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure>;
}

/// Limits of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Jobs at a time.
    pub(super) jobs: usize,
    /// Connections to its server; none to a file.
    pub(super) connections: usize,
    /// Octets of the longest read or write.
    pub(super) longest: u32,
    /// Octets of which offsets and lengths are multiples, a power of two.
    pub(super) block: u32,
    /// Octets of the longest `Command::Zero`, a multiple of a block; `None` if the disk takes none.
    pub(super) zeroes: Option<u32>,
}

/// A file or block device of this host.
pub(super) struct Local {
    disk: Disk,
    results: Receiver<Vec<Done>>,
    done: Vec<Done>,
}

impl Local {
    pub(super) fn open(desk: &Desk, path: &Path, writable: bool) -> Result<Self, Failure> {
        let (file, export) = Disk::open(path.display().to_string(), path, writable, &REMEDIES)?;
        Self::start(desk, file, export)
    }

    /// Takes a file that is open to be written, and that no other program of ours writes.
    pub(super) fn of(desk: &Desk, file: File, path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let size = file.metadata().map_err(|error| Failure::failed(format!("{name}: {error}")))?.len();
        Self::start(desk, Arc::new(file), Export { name, size, writable: true })
    }

    fn start(desk: &Desk, file: Arc<File>, export: Export) -> Result<Self, Failure> {
        let (sender, results) = Results::new(&desk.bell);
        Ok(Local { disk: Disk::start(file, export, &sender)?, results, done: Vec::new() })
    }
}

impl End for Local {
    fn export(&self) -> &Export {
        &self.disk.export
    }

    fn limits(&self) -> Limits {
        Limits { jobs: 64, connections: 0, longest: LONGEST, block: 1, zeroes: Some(u32::MAX) }
    }

    fn begin(&mut self, job: Job) -> Result<(), Failure> {
        self.done.extend(self.disk.take(job));
        Ok(())
    }

    fn take(&mut self, _: &Completion) -> Result<(), Failure> {
        Ok(())
    }

    fn failure(&self, command: &Command, error: DiskError) -> Failure {
        Failure::failed(format!("{}: {command}: {error}", self.disk.export.name))
            .remedy("df and dmesg say more of its disk")
    }

    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        self.disk.hand_over();
        done.append(&mut self.done);
        done.extend(self.results.try_iter().flatten());
        Ok(())
    }
}
