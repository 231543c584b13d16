//! A disk: the file or block device of an export, and the threads that wait for it.
//!
//! What the kernel has in memory is read where it is asked for. All else may sleep and is done by
//! these threads; each disk has its own, so that one which hangs holds up no other.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::iter;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rddp_block::export::{Command, DiskError, Export, Extent, extents};
use rddp_command::failure::Failure;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom as Seeks, fallocate, flock, seek};
use rustix::io::Errno;

use super::bell::Bell;
use super::buffers::Buffer;
use super::pool::Pool;

/// Threads of a disk.
const THREADS: usize = 4;

/// Zeroes that are written at a time where a disk has no other way.
const ZEROES: usize = 64 * 1024;

/// A disk that is served.
pub(super) struct Disk {
    pub(super) export: Export,
    file: Arc<File>,
    /// Jobs for the threads that they have not been told of.
    queued: VecDeque<Job>,
    pool: Arc<Pool>,
}

/// The ways out for whoever names a file that cannot be opened.
pub(super) struct Remedies {
    /// The way where it may not be read, or written.
    pub(super) denied: &'static str,
    /// The way where it is not there.
    pub(super) missing: &'static str,
}

/// A request, and the memory of its payload.
pub(super) struct Job {
    /// The number of whoever asks: of a server's client its queue pair's.
    pub(super) owner: u32,
    pub(super) id: u64,
    pub(super) command: Command,
    pub(super) buffer: Option<Buffer>,
}

/// The outcome of a job.
pub(super) struct Done {
    pub(super) owner: u32,
    pub(super) id: u64,
    pub(super) buffer: Option<Buffer>,
    pub(super) result: Result<Answer, DiskError>,
}

/// The result of a command.
pub(super) enum Answer {
    /// Nothing but that it is done; the octets of a read are in its buffer.
    Done,
    /// The places of data.
    Extents(Vec<Extent>),
}

/// The way from the threads to the server.
#[derive(Clone)]
pub(super) struct Results {
    done: Sender<Vec<Done>>,
    bell: Bell,
}

impl Results {
    pub(super) fn new(bell: &Bell) -> (Self, Receiver<Vec<Done>>) {
        let (done, results) = channel();
        (Results { done, bell: bell.clone() }, results)
    }
}

impl Disk {
    pub(super) fn open(
        name: String,
        path: &Path,
        writable: bool,
        remedies: &Remedies,
    ) -> Result<(Arc<File>, Export), Failure> {
        let failed = |error: io::Error| {
            let failure = Failure::failed(format!("{}: {error}", path.display()));
            match error.kind() {
                ErrorKind::PermissionDenied => failure.remedy(remedies.denied),
                ErrorKind::NotFound => failure.remedy(remedies.missing),
                _ => failure,
            }
        };
        // Before it is opened: a FIFO would sleep there until somebody writes.
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if !(kind.is_file() || kind.is_block_device()) {
            let cause = format!("{}: neither a file nor a block device", path.display());
            return Err(
                Failure::failed(cause).remedy("name an image of a disk, or a device such as /dev/sdb")
            );
        }
        let mut file = OpenOptions::new().read(true).write(writable).open(path).map_err(failed)?;
        if writable {
            lock(&file, path)?;
        }
        // Of a block device as well.
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Arc::new(file), Export { name, size, writable }))
    }

    /// Starts the threads of a disk.
    pub(super) fn start(file: Arc<File>, export: Export, results: &Results) -> Result<Self, Failure> {
        let disk = Disk { export, file, queued: VecDeque::new(), pool: Arc::new(Pool::new(THREADS)) };
        for number in 0..THREADS {
            let (file, pool, results) = (disk.file.clone(), disk.pool.clone(), results.clone());
            thread::Builder::new()
                .name("rddp-disk".into())
                .spawn(move || serve(&file, (&pool, number), &results))
                .map_err(|error| Failure::failed(format!("starting a thread: {error}")))?;
        }
        Ok(disk)
    }

    /// Does a job at once, if it is a read of what the kernel has in memory, and else has a thread
    /// do it after [`hand_over`](Self::hand_over), and returns `None`.
    pub(super) fn take(&mut self, job: Job) -> Option<Done> {
        if let (Command::Read { offset, len }, Some(buffer)) = (job.command, &job.buffer) {
            let read = buffer.region().read_now(&self.file, offset, Buffer::payload(len));
            if read.is_ok_and(|count| count == len as usize) {
                let Job { owner, id, buffer, .. } = job;
                return Some(Done { owner, id, buffer, result: Ok(Answer::Done) });
            }
        }
        self.queued.push_back(job);
        None
    }

    /// Hands the jobs of a turn to the threads.
    pub(super) fn hand_over(&mut self) {
        self.pool.add(&mut self.queued);
    }

    /// Takes back the jobs of somebody who has gone, but those that a thread has begun. Returns
    /// their buffers.
    pub(super) fn withdraw(&mut self, owner: u32) -> impl Iterator<Item = Buffer> + use<> {
        self.hand_over();
        self.pool.withdraw(owner).into_iter().filter_map(|job| job.buffer)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Keeps other writers of ours from a file for as long as it is open. Where there are no locks,
/// there are none.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    if !matches!(flock(file, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK)) {
        return Ok(());
    }
    Err(Failure::failed(format!("{}: another program is about to write it", path.display()))
        .remedy("end that one first: lslocks shows it"))
}

/// Does jobs until there will be no more.
fn serve(file: &File, (pool, number): (&Pool, usize), results: &Results) {
    while pool.wait(number) {
        let jobs = iter::from_fn(|| pool.next(number));
        let done = jobs.map(|Job { owner, id, command, buffer }| {
            let result = perform(file, command, buffer.as_ref()).map_err(|error| {
                tracing::info!(%command, %error, "a disk fails");
                value(&error)
            });
            Done { owner, id, buffer, result }
        });
        if results.done.send(done.collect()).is_err() {
            return;
        }
        results.bell.ring();
    }
}

/// Does what was asked for, to the end.
fn perform(file: &File, command: Command, buffer: Option<&Buffer>) -> io::Result<Answer> {
    let memory = || buffer.map(Buffer::region).ok_or_else(|| io::Error::from(ErrorKind::OutOfMemory));
    let fua = match command {
        // There is nothing to move, and no buffer for it.
        Command::Read { len: 0, .. } => false,
        Command::Write { len: 0, fua, .. } => fua,
        Command::Read { offset, len } => {
            let count = memory()?.read_from(file, offset, Buffer::payload(len))?;
            // The file has been cut short since it was opened.
            return if count == len as usize { Ok(Answer::Done) } else { Err(Errno::IO.into()) };
        }
        Command::Status { offset, len, .. } => return data(file, offset, offset + u64::from(len)),
        Command::Write { offset, len, fua } => {
            memory()?.write_to(file, offset, Buffer::payload(len))?;
            fua
        }
        Command::Zero { offset, len, fua, may_trim } => {
            zero(file, offset, len.into(), may_trim)?;
            fua
        }
        Command::Trim { offset, len, fua } => {
            // A wish, and no promise: octets that stay are octets that the client does not need.
            match punch(file, offset, len.into()) {
                Err(error) if !cannot(&error) => return Err(error),
                _ => fua,
            }
        }
        Command::Flush => true,
    };
    if fua {
        file.sync_data()?;
    }
    Ok(Answer::Done)
}

/// Has octets read as zeroes.
fn zero(file: &File, offset: u64, len: u64, may_trim: bool) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let range = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    let by_call = if may_trim {
        punch(file, offset, len)
    } else {
        fallocate(file, range, offset, len).map_err(Into::into)
    };
    match by_call {
        Err(error) if cannot(&error) => {}
        done => return done,
    }
    let zeroes = vec![0; ZEROES];
    let mut at = offset;
    while at < offset + len {
        let now = (offset + len - at).min(ZEROES as u64);
        file.write_all_at(&zeroes[..now as usize], at)?;
        at += now;
    }
    Ok(())
}

fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, hole, offset, len)?)
}

/// Returns whether the disk or its file system has not got such a call.
fn cannot(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL))
}

/// Finds the data between two offsets. A file that does not tell is all data, and so is what it has
/// no more since it was cut short: a hole would read as zeroes, and reading fails.
fn data(file: &File, from: u64, to: u64) -> io::Result<Answer> {
    let (mut pieces, mut at) = (Vec::new(), from);
    while at < to && pieces.len() < rddp_block::nbd::reply::MOST_EXTENTS {
        let begin = match seek(file, Seeks::Data(at)) {
            Ok(begin) => begin,
            // There are none behind.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = match seek(file, Seeks::Hole(begin)) {
            Ok(end) => end,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => to,
            // It has been cut short since.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        pieces.push(begin..end);
        at = end;
    }
    // What is behind the last of very many pieces is left for the next question.
    let told = if pieces.len() == rddp_block::nbd::reply::MOST_EXTENTS { at.min(to) } else { to };
    let end = seek(file, Seeks::End(0))?;
    if end < told && pieces.len() < rddp_block::nbd::reply::MOST_EXTENTS {
        pieces.push(end.max(from)..told);
    }
    Ok(Answer::Extents(extents(from..told, pieces)))
}

/// Returns the error that a client is told.
fn value(error: &io::Error) -> DiskError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => DiskError::NoSpc,
        Some(Errno::PERM | Errno::ROFS | Errno::ACCESS) => DiskError::Perm,
        Some(Errno::NOMEM) => DiskError::NoMem,
        _ if error.kind() == ErrorKind::OutOfMemory => DiskError::NoMem,
        _ => DiskError::Io,
    }
}
