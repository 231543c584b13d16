//! `rddp put`: the client Writes into the server's memory.

use std::path::Path;

use rddp_rnic::{Access, MemoryRegion, SendWr};

use super::PutArgs;
use super::files::{FileError, local_file};
use super::protocol::{Chunk, SLOT, SLOTS, ToClient, ToServer, Window, out_of_step};
use super::remote::{Peer, RemoteFile};
use super::show::{Finished, Progress, resumable};
use super::source::Source;
use super::talk::Talk;
use super::tree;
use crate::failure::{Failure, Kind};

/// The id of Writes, which cause no completions.
const WRITE: u64 = 1;

pub(super) fn run(args: &PutArgs) -> Result<(), Failure> {
    let [local] = &args.locals[..] else {
        return tree::put(&args.locals, &args.remote, args.recursive, &args.common);
    };
    if args.recursive {
        return tree::put(&args.locals, &args.remote, true, &args.common);
    }
    let remote = RemoteFile::parse(&args.remote)?;
    let source = open(local)?;
    let path = remote.path_with(source.name())?;
    // A server of protocol 1 does not know that a file has to be kept.
    let peer = if args.common.no_clobber { Peer::Two } else { Peer::Any };
    let (mut talk, addr) = remote.connect(args.common.token()?.as_ref(), peer)?;
    let put = Put { talk: &mut talk, args, local, source };
    let finished = put.all(path.clone()).map_err(resumable)?;
    talk.end.close();
    finished.summary(path, addr).print(args.common.json);
    Ok(())
}

/// Turns an error of a local file into a failure.
fn failed(error: FileError) -> Failure {
    error.failure(Kind::Failed)
}

fn open(path: &Path) -> Result<Source, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::usage(format!("{path:?} has no name in UTF-8")))?;
    local_file(path).and_then(|file| Source::new(file, name)).map_err(failed)
}

struct Put<'a> {
    talk: &'a mut Talk,
    args: &'a PutArgs,
    local: &'a Path,
    source: Source,
}

impl Put<'_> {
    fn hear(&mut self) -> Result<ToClient, Failure> {
        self.talk.hear(self.args.common.timeout)
    }

    fn all(mut self, path: String) -> Result<Finished, Failure> {
        let (size, mode) = (self.source.size(), self.source.mode());
        let no_clobber = self.args.common.no_clobber;
        self.talk.ask(&ToServer::Put { path, size, mode, no_clobber })?;
        let ToClient::Take { have, sha256, window, replaces } = self.hear()? else {
            return Err(out_of_step());
        };
        let talk = &mut *self.talk;
        let from =
            self.source.resume(have, &sha256, &mut || talk.say_busy(&ToServer::Busy)).map_err(failed)?;
        self.talk.say(&ToServer::From { offset: from })?;
        let progress = Progress::new(self.source.name(), from, size);
        self.send(from, window, &progress)?;
        self.source.check_unchanged(local_file(self.local)).map_err(failed)?;
        let sha256 = self.source.checksum();
        self.talk.say(&ToServer::End { sha256: sha256.clone() })?;
        match self.hear()? {
            ToClient::Same => Ok(progress.finish(size, sha256, replaces)),
            _ => Err(out_of_step()),
        }
    }

    /// Sends all octets from `offset` on, and waits until they are in the server's file.
    fn send(&mut self, mut offset: u64, window: Window, progress: &Progress) -> Result<(), Failure> {
        let buffers = self.talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE)?;
        let mut free: Vec<usize> = (0..SLOTS).collect();
        let mut written = offset;
        let mut lens = [0; SLOTS];
        let limit = self.args.common.limit;
        // With a limit, pieces hold the octets of a tenth of a second.
        let most = limit.map_or(SLOT as u64, |limit| (limit / 10).clamp(4096, SLOT as u64));
        while offset < self.source.size() || free.len() < SLOTS {
            match free.pop() {
                Some(slot) if offset < self.source.size() => {
                    let len = (self.source.size() - offset).min(most) as usize;
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

    /// Writes the next octets of the file into a slot of the server, and announces them.
    fn write_chunk(&mut self, buffers: &MemoryRegion, window: Window, chunk: Chunk) -> Result<(), Failure> {
        let mut octets = vec![0; chunk.len];
        self.source.read(&mut octets).map_err(failed)?;
        let at = chunk.slot * SLOT;
        buffers.write(at, &octets)?;
        let write = SendWr::write(WRITE, buffers.sge(at..at + chunk.len), window.slot(chunk.slot));
        self.talk.say_behind(Some(write), &ToServer::Chunk(chunk))
    }
}
