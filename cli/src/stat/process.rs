//! Processes with counters, found by what they have open.

use std::collections::HashSet;
use std::fs::{read_dir, read_link, read_to_string};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rddp_command::failure::{Failure, printable};
use rddp_stat::{Connection, Counter, Counts, Page, TerminateCount};

use super::page::{self, Read};
use super::streams::{self, Stream};

/// A process, and the counts of all its devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Name of the program.
    pub(super) command: String,
    /// Sums of the counts of connections that have ended.
    pub(super) ended: Counts,
    pub(super) terminates: Vec<TerminateCount>,
    pub(super) connections: Vec<Connection>,
}

impl Process {
    /// Returns the counts of all connections, of those that have ended too.
    pub(super) fn total(&self) -> Counts {
        let mut total = self.ended;
        self.connections.iter().for_each(|connection| total.add(&connection.counts));
        total
    }

    /// Returns whether any of its connections counts this, those that have ended among them.
    pub(super) fn counts(&self, counter: Counter) -> bool {
        let has_qps = self.ended != Counts::default();
        has_qps || self.connections.iter().any(|connection| connection.identity.kind.counts(counter))
    }

    fn add(&mut self, page: Page) {
        self.ended.add(&page.ended);
        self.connections.extend(page.connections);
        page.terminates.into_iter().for_each(|count| self.add_terminate(count));
    }

    /// Adds a stream, which has no other place where its Terminate would be counted.
    fn add_stream(&mut self, stream: &Connection) {
        for (code, sent) in [(stream.terminate_sent, 1), (stream.terminate_received, 0)] {
            if let Some(code) = code {
                self.add_terminate(TerminateCount { code, sent, received: 1 - sent });
            }
        }
        self.connections.push(*stream);
    }

    fn add_terminate(&mut self, count: TerminateCount) {
        match self.terminates.iter_mut().find(|known| known.code == count.code) {
            Some(known) => {
                known.sent = known.sent.wrapping_add(count.sent);
                known.received = known.received.wrapping_add(count.received);
            }
            None => self.terminates.push(count),
        }
    }
}

/// The result of looking at all processes.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) processes: Vec<Process>,
    /// Number of processes that this user may not look into.
    pub(super) closed: usize,
}

/// Looks at all processes, to which these streams belong.
pub(super) fn all(streams: &[Stream]) -> Result<Found, Failure> {
    let proc = read_dir("/proc").map_err(|error| {
        Failure::failed(format!("/proc: {error}")).remedy("mount it: processes are found there")
    })?;
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let names = proc.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for pid in names {
        match inspect(pid, &mut seen, &streams::of(pid, streams)) {
            Ok(Some(process)) => found.processes.push(process),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found.closed += 1,
            // One that has just ended is none.
            Ok(None) | Err(_) => {}
        }
    }
    found.processes.sort_by_key(|process| process.pid);
    Ok(found)
}

/// Looks at one process, to which some of these streams may belong.
///
/// # Errors
/// There is no such process, it may not be looked into, or it has no counters.
pub(super) fn one(pid: u32, streams: &[Stream]) -> Result<Process, Failure> {
    match inspect(pid, &mut HashSet::new(), &streams::with(pid, streams)) {
        Ok(Some(process)) => Ok(process),
        Ok(None) => Err(Failure::failed(format!("process {pid} ({}) has no counters of rddp", command_of(pid)))
            .remedy("counters begin with a program's first connection; rddp stat alone lists the processes that have some")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Failure::failed(format!("process {pid} ({}) is another user's", command_of(pid)))
                .remedy(format!("as that user or as root: sudo rddp stat {pid}")))
        }
        Err(_) => Err(Failure::failed(format!("there is no process {pid}"))
            .remedy("rddp stat alone lists the processes that have counters")),
    }
}

/// Reads the pages of a process that are its own: a child of `fork` has its parent's open, too.
/// `seen` has the files that another process was found to own.
fn inspect(pid: u32, seen: &mut HashSet<u64>, streams: &[Connection]) -> io::Result<Option<Process>> {
    let mut pages = Vec::new();
    for path in pages_of(pid)? {
        // A descriptor that has been closed meanwhile, or is no page, is nobody's loss.
        let read = page::read(&path).ok().flatten();
        pages.extend(read.filter(|read| is_owner(pid, read) && seen.insert(read.inode)));
    }
    if pages.is_empty() && streams.is_empty() {
        return Ok(None);
    }
    let mut process = Process { pid, command: command_of(pid), ..Process::default() };
    pages.into_iter().for_each(|read| process.add(read.page));
    streams.iter().for_each(|stream| process.add_stream(stream));
    Ok(Some(process))
}

/// Returns the descriptors of a process that are named as pages are.
fn pages_of(pid: u32) -> io::Result<Vec<PathBuf>> {
    let name = format!("/memfd:{}", rddp_stat::NAME);
    let is_named = |path: &PathBuf| {
        read_link(path).is_ok_and(|to| to.as_os_str().as_bytes().starts_with(name.as_bytes()))
    };
    let entries = read_dir(format!("/proc/{pid}/fd"))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_named).collect())
}

/// Returns whether a page says that it is this process's: by the number that the process has in
/// its own container.
fn is_owner(pid: u32, read: &Read) -> bool {
    own_number(pid).is_none_or(|own| own == read.page.pid)
}

fn own_number(pid: u32) -> Option<u32> {
    let status = read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

pub(super) fn command_of(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    match String::from_utf8_lossy(&name).trim_end_matches('\n') {
        // A program that was started by its own /proc/self/exe, as the server of `perf local` is.
        "exe" => {
            let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            printable(&program.file_name().unwrap_or_default().to_string_lossy())
        }
        name => printable(name),
    }
}
