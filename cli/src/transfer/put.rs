//! `rddp put`: the client Writes into the server's memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

use rddp_rnic::{Access, MemoryRegion, SendWr};

use super::PutArgs;
use super::checksum::Checksum;
use super::files::{FileError, local_file};
use super::protocol::{Chunk, SLOT, SLOTS, ToClient, ToServer, Window, out_of_step};
use super::remote::RemoteFile;
use super::show::{Finished, Progress, resumable};
use super::talk::Talk;
use crate::failure::{Failure, Kind};

/// The id of Writes, which make no completions.
const WRITE: u64 = 1;

pub(super) fn run(args: &PutArgs) -> Result<(), Failure> {
    let remote = RemoteFile::parse(&args.remote)?;
    let source = Source::open(args)?;
    let path = remote.path_with(&source.name)?;
    let (mut talk, addr) = remote.connect()?;
    let put = Put { talk: &mut talk, args, source };
    let finished = put.all(path.clone()).map_err(resumable)?;
    talk.end.close();
    finished.summary(path, addr).print(args.common.json);
    Ok(())
}

/// The file that is sent.
struct Source {
    file: File,
    name: String,
    size: u64,
    modified: Option<SystemTime>,
    mode: u32,
    checksum: Checksum,
}

impl Source {
    fn open(args: &PutArgs) -> Result<Self, Failure> {
        let name = args.local.file_name().and_then(|name| name.to_str());
        let name =
            name.ok_or_else(|| Failure::usage(format!("{:?} has no name in UTF-8", args.local)))?.to_owned();
        let file = local_file(&args.local).map_err(|error| error.failure(Kind::Failed))?;
        let metadata = file.metadata().map_err(|error| FileError::new(&name, error).failure(Kind::Failed))?;
        let source = Source {
            size: metadata.len(),
            modified: metadata.modified().ok(),
            mode: metadata.mode() & 0o777,
            checksum: Checksum::new(),
            file,
            name,
        };
        if source.size == 0 && source.has_more()? {
            return Err(Failure::failed(format!("{}: it has octets, but no size", source.name))
                .remedy("files such as those of /proc have to be copied first, and the copy put"));
        }
        Ok(source)
    }

    /// Whether there is anything behind its size.
    fn has_more(&self) -> Result<bool, Failure> {
        let read = self.file.read_at(&mut [0], self.size).map_err(|error| self.wrong(error))?;
        Ok(read > 0)
    }

    /// What was sent is the file, and not parts of two.
    fn is_unchanged(&self) -> Result<(), Failure> {
        let now = self.file.metadata().map_err(|error| self.wrong(error))?;
        if now.len() == self.size && now.modified().ok() == self.modified && !self.has_more()? {
            return Ok(());
        }
        Err(FileError::Changed(self.name.clone()).failure(Kind::Failed))
    }

    fn wrong(&self, error: std::io::Error) -> Failure {
        FileError::new(&self.name, error).failure(Kind::Failed)
    }

    /// Where to begin, when the other end has `have` octets with this checksum.
    fn resume(
        &mut self,
        have: u64,
        sha256: &str,
        tick: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        if have > 0 && have <= self.size {
            let mut checksum = Checksum::new();
            let read = checksum.add_all(&self.file, have, &self.name, tick);
            if read.map_err(|error| error.failure(Kind::Failed))? == have && checksum.so_far() == sha256 {
                self.checksum = checksum;
                return Ok(have);
            }
            self.file.seek(SeekFrom::Start(0)).map_err(|error| self.wrong(error))?;
        }
        Ok(0)
    }

    /// The next octets, exactly as many as the buffer has room for.
    fn read(&mut self, octets: &mut [u8]) -> Result<(), Failure> {
        self.file.read_exact(octets).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => FileError::Changed(self.name.clone()).failure(Kind::Failed),
            _ => self.wrong(error),
        })?;
        self.checksum.add(octets);
        Ok(())
    }
}

struct Put<'a> {
    talk: &'a mut Talk,
    args: &'a PutArgs,
    source: Source,
}

impl Put<'_> {
    fn hear(&mut self) -> Result<ToClient, Failure> {
        self.talk.hear(self.args.common.timeout)
    }

    fn all(mut self, path: String) -> Result<Finished, Failure> {
        let (size, mode) = (self.source.size, self.source.mode);
        self.talk.say(&ToServer::Put { path, size, mode })?;
        let ToClient::Take { have, sha256, window } = self.hear()? else { return Err(out_of_step()) };
        let talk = &mut *self.talk;
        let from = self.source.resume(have, &sha256, &mut || talk.say_busy(&ToServer::Busy))?;
        self.talk.say(&ToServer::From { offset: from })?;
        let progress = Progress::new(&self.args.common, &self.source.name, from, size);
        self.send(from, window, &progress)?;
        self.source.is_unchanged()?;
        let sha256 = self.source.checksum.so_far();
        self.talk.say(&ToServer::End { sha256: sha256.clone() })?;
        match self.hear()? {
            ToClient::Same => Ok(progress.finish(size, sha256)),
            _ => Err(out_of_step()),
        }
    }

    /// All octets from `offset` on, until they are in the server's file.
    fn send(&mut self, mut offset: u64, window: Window, progress: &Progress) -> Result<(), Failure> {
        let buffers = self.talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE)?;
        let mut free: Vec<usize> = (0..SLOTS).collect();
        let mut written = offset;
        let mut lens = [0; SLOTS];
        let limit = self.args.common.limit;
        // With a limit, pieces for a tenth of a second.
        let most = limit.map_or(SLOT as u64, |limit| (limit / 10).clamp(4096, SLOT as u64));
        while offset < self.source.size || free.len() < SLOTS {
            match free.pop() {
                Some(slot) if offset < self.source.size => {
                    let len = (self.source.size - offset).min(most) as usize;
                    self.write_chunk(&buffers, window, Chunk { slot, offset, len })?;
                    (lens[slot], offset) = (len, offset + len as u64);
                    progress.hold_back(offset, limit)?;
                }
                last => {
                    free.extend(last);
                    let ToClient::Free { slot } = self.hear()? else { return Err(out_of_step()) };
                    if slot >= SLOTS || free.contains(&slot) {
                        return Err(out_of_step());
                    }
                    free.push(slot);
                    written += lens[slot] as u64;
                    progress.at(written);
                }
            }
        }
        Ok(())
    }

    /// Writes the next octets of the file into a slot of the server's, and tells it.
    fn write_chunk(&mut self, buffers: &MemoryRegion, window: Window, chunk: Chunk) -> Result<(), Failure> {
        let mut octets = vec![0; chunk.len];
        self.source.read(&mut octets)?;
        let at = chunk.slot * SLOT;
        buffers.write(at, &octets)?;
        let write = SendWr::write(WRITE, buffers.sge(at..at + chunk.len), window.slot(chunk.slot));
        self.talk.say_behind(Some(write), &ToServer::Chunk(chunk))
    }
}
