//! A file system in this process, by FUSE (the kernel's `uapi/linux/fuse.h`): a directory with
//! three files, of which one is slow and one fails.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use rddp_test_support::random_octets;

/// Octets of the files that are slow and broken, and of the quick one.
pub(crate) const LEN: usize = 4 << 20;
pub(crate) const SHORT: usize = 10_000;

/// Time that a read of the slow file takes.
const READ: Duration = Duration::from_millis(5);

/// A generous time limit, which only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The octet from which on the broken file cannot be read.
const BROKEN: usize = 1 << 20;

const NAMES: [&str; 3] = ["slow", "quick", "broken"];
/// The nodes of the files are those behind the directory's.
const ROOT: u64 = 1;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ_FILE: u32 = 15;
const OPENDIR: u32 = 27;
const INIT: u32 = 26;
/// Requests that nobody answers: FORGET, INTERRUPT, and the FORGET of many.
const SILENT: [u32; 3] = [2, 36, 42];
/// Requests that are answered with nothing: RELEASE, FLUSH, RELEASEDIR, ACCESS.
const NOTHING: [u32; 4] = [18, 25, 29, 34];

/// The side that the test and the file system share.
#[derive(Default)]
struct State {
    is_released: bool,
    waiting: usize,
}

#[derive(Clone)]
pub(crate) struct Disk {
    state: Arc<(Mutex<State>, Condvar)>,
    fuse: Arc<File>,
    octets: Arc<[Vec<u8>; 3]>,
}

impl Disk {
    /// Mounts the file system in a namespace, in which `start` starts a program.
    pub(crate) fn mount<T: Send>(dir: &Path, start: impl FnOnce() -> T + Send) -> io::Result<(Self, T)> {
        let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
        let octets = [random_octets(1, LEN), random_octets(2, SHORT), random_octets(3, LEN)];
        let disk = Disk { state: Arc::default(), fuse: Arc::new(fuse), octets: Arc::new(octets) };
        // The namespace is that of a thread, and of the processes that it starts.
        let started = thread::scope(|scope| {
            scope.spawn(|| disk.mount_here(dir).map(|()| start())).join().expect("no panic")
        })?;
        Ok((disk, started))
    }

    fn mount_here(&self, dir: &Path) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount("none", Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE, "")?;
        let options = format!("fd={},rootmode=40755,user_id=0,group_id=0", self.fuse.as_raw_fd());
        mount("rddp", dir, "fuse.rddp", libc::MS_NOSUID | libc::MS_NODEV, &options)?;
        let disk = self.clone();
        thread::spawn(move || disk.serve());
        Ok(())
    }

    /// Lets reads of the slow file be answered.
    pub(crate) fn release(&self) {
        self.state.0.lock().unwrap().is_released = true;
        self.state.1.notify_all();
    }

    /// Waits until somebody waits for the slow file.
    pub(crate) fn until_reads_wait(&self) {
        let state = self.state.0.lock().unwrap();
        let waited = self.state.1.wait_timeout_while(state, PATIENCE, |state| state.waiting == 0);
        assert!(!waited.unwrap().1.timed_out(), "nobody reads");
    }

    /// Answers the kernel, until the file system is mounted nowhere.
    fn serve(&self) {
        let mut request = vec![0; 1 << 20];
        while let Ok(len) = (&*self.fuse).read(&mut request) {
            let request = request[..len].to_vec();
            let disk = self.clone();
            // A thread for each, since a read waits.
            thread::spawn(move || disk.answer(&request));
        }
    }

    fn answer(&self, request: &[u8]) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let (opcode, unique, node, body) = (word(4), long(8), long(16), 40);
        let answered = match opcode {
            _ if SILENT.contains(&opcode) => return,
            _ if NOTHING.contains(&opcode) => Ok(Vec::new()),
            INIT => {
                let readahead_and_flags = [word(body + 8), word(body + 12) & 1];
                let words = [&[7, 31][..], &readahead_and_flags, &[0, 1 << 16, 1], &[0; 9]].concat();
                Ok(words.into_iter().flat_map(u32::to_ne_bytes).collect())
            }
            GETATTR => Ok([&[0; 16][..], &self.attributes(node)].concat()),
            LOOKUP => {
                let name = &request[body..request.len() - 1];
                let found = NAMES.iter().position(|other| other.as_bytes() == name);
                found.map_or(Err(libc::ENOENT), |at| {
                    let node = ROOT + 1 + at as u64;
                    Ok([&node.to_ne_bytes()[..], &[0; 32], &self.attributes(node)].concat())
                })
            }
            // Reads of files go past the page cache.
            OPEN => Ok([&[0; 8][..], &1u32.to_ne_bytes(), &[0; 4]].concat()),
            OPENDIR => Ok(vec![0; 16]),
            READ_FILE => self.read(node, long(body + 8) as usize, word(body + 16) as usize),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = answered.map_or_else(|errno| (-errno, Vec::new()), |body| (0, body));
        let len = (16 + body.len()) as u32;
        let head = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()].concat();
        // Who asked may have gone.
        let _ = (&*self.fuse).write(&[head, body].concat());
    }

    fn read(&self, node: u64, at: usize, len: usize) -> Result<Vec<u8>, i32> {
        let (file, octets) = self.file(node).ok_or(libc::EISDIR)?;
        if file == "slow" {
            let mut state = self.state.0.lock().unwrap();
            state.waiting += 1;
            self.state.1.notify_all();
            drop(self.state.1.wait_while(state, |state| !state.is_released).unwrap());
            thread::sleep(READ);
        }
        if file == "broken" && at + len > BROKEN {
            return Err(libc::EIO);
        }
        let end = octets.len().min(at + len);
        Ok(octets[at.min(end)..end].to_vec())
    }

    fn file(&self, node: u64) -> Option<(&'static str, &[u8])> {
        let at = usize::try_from(node.checked_sub(ROOT + 1)?).ok()?;
        Some((NAMES.get(at)?, &self.octets[at]))
    }

    /// Returns a node's attributes (`struct fuse_attr`).
    fn attributes(&self, node: u64) -> Vec<u8> {
        let file = self.file(node);
        let size = file.map_or(0, |(_, octets)| octets.len() as u64);
        let mode = if file.is_some() { libc::S_IFREG | 0o644 } else { libc::S_IFDIR | 0o755 };
        let longs = [node, size, size.div_ceil(512), 1, 1, 1].into_iter().flat_map(u64::to_ne_bytes);
        let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].into_iter().flat_map(u32::to_ne_bytes);
        longs.chain(words).collect()
    }
}

fn mount(source: &str, dir: &Path, kind: &str, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let text = |octets: &[u8]| CString::new(octets).unwrap();
    let (source, kind, data) = (text(source.as_bytes()), text(kind.as_bytes()), text(data.as_bytes()));
    let dir = text(dir.as_os_str().as_bytes());
    // SAFETY: texts that end, and live until the call returns.
    let done =
        unsafe { libc::mount(source.as_ptr(), dir.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
