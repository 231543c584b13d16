//! `rddp get`: the client Reads from the server's memory.

use std::path::{Path, PathBuf};

use rddp_rnic::{Access, MemoryRegion, SendWr};

use super::GetArgs;
use super::files::FileError;
use super::partial::Clobber;
use super::protocol::{Chunk, SLOT, SLOTS, ToClient, ToServer, Window, out_of_step};
use super::remote::{Peer, RemoteFile};
use super::show::{Finished, Progress, resumable};
use super::sink::Sink;
use super::talk::{Next, Talk};
use super::target::{STDOUT, Target};
use super::tree;
use crate::failure::{Failure, Kind};

pub(super) fn run(args: &GetArgs) -> Result<(), Failure> {
    // As for cp, the last of several names is the destination.
    let (remotes, local) = match &args.names[..] {
        [remotes @ .., local] if !remotes.is_empty() => (remotes, Path::new(local)),
        remotes => (remotes, Path::new(".")),
    };
    let remotes = texts(remotes)?;
    let [remote] = &remotes[..] else { return tree::get(&remotes, local, args.recursive, &args.common) };
    if args.recursive {
        return tree::get(&remotes, local, true, &args.common);
    }
    let remote = RemoteFile::parse(remote)?;
    let name = remote.name()?;
    let path = remote.path_with(name)?;
    let local = destination(local, name)?;
    let clobber = Clobber::unless(args.common.no_clobber);
    let token = args.common.token()?;
    let target = Target::of(&local, clobber).map_err(failed)?;
    let (mut talk, addr) = remote.connect(token.as_ref(), Peer::Any)?;
    let sink = Sink::open(target, clobber).map_err(failed)?;
    let is_resumable = sink.is_resumable();
    let get = Get { talk: &mut talk, args, sink, arrived: Default::default() };
    let finished = get.all(path.clone());
    let finished = if is_resumable { finished.map_err(resumable) } else { finished }?;
    talk.end.close();
    let summary = finished.summary(path, addr);
    if local == Path::new(STDOUT) {
        summary.complain(args.common.json);
    } else {
        summary.print(args.common.json);
    }
    Ok(())
}

fn texts(names: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let text = |name: &PathBuf| {
        let text = name.to_str().map(str::to_owned);
        text.ok_or_else(|| {
            Failure::usage(format!("{name:?} is not UTF-8")).remedy("name its directory with --recursive")
        })
    };
    names.iter().map(text).collect()
}

/// Turns an error of a local file into a failure.
fn failed(error: FileError) -> Failure {
    error.failure(Kind::Failed)
}

fn destination(local: &Path, name: &str) -> Result<PathBuf, Failure> {
    if local == Path::new(STDOUT) {
        return Ok(local.to_owned());
    }
    if local.is_dir() {
        return Ok(local.join(name));
    }
    let text = local.as_os_str().as_encoded_bytes();
    if text.ends_with(b"/") || text.ends_with(b"/.") {
        return Err(Failure::failed(format!("{}: no such directory", local.display()))
            .remedy("make the directory first, or name a file, without a slash at the end"));
    }
    Ok(local.to_owned())
}

struct Get<'a> {
    talk: &'a mut Talk,
    args: &'a GetArgs,
    sink: Sink,
    /// The contents of each slot, present or to come by the Read that is under way.
    arrived: [Option<Chunk>; SLOTS],
}

impl Get<'_> {
    fn all(mut self, path: String) -> Result<Finished, Failure> {
        let talk = &mut *self.talk;
        let (have, sha256) = self.sink.examine(&mut || talk.say_busy(&ToServer::Busy)).map_err(failed)?;
        self.talk.ask(&ToServer::Get { path, have, sha256 })?;
        let answer = self.talk.hear(self.args.common.timeout)?;
        let ToClient::Give { size, mode, from, window } = answer else { return Err(out_of_step()) };
        match from {
            0 => self.sink.restart().map_err(failed)?,
            from if from == have && from <= size => {}
            _ => return Err(out_of_step()),
        }
        self.sink.has_room(size - from).map_err(failed)?;
        let progress = Progress::new(self.sink.name(), from, size);
        let theirs = self.receive(size, window, &progress)?;
        let ours = self.sink.checksum();
        if ours != theirs {
            self.sink.discard();
            return Err(Failure::mismatch(format!("the file's sha256 is {ours} here and {theirs} there")));
        }
        let replaced = self.sink.finish(mode).map_err(failed)?;
        self.talk.say(&ToServer::Same)?;
        Ok(progress.finish(size, ours, Some(replaced)))
    }

    /// Reads chunk by chunk, until the server says that these were all. Returns the checksum that
    /// the server names.
    fn receive(&mut self, size: u64, window: Window, progress: &Progress) -> Result<String, Failure> {
        let buffers = self.talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE)?;
        // The offset up to which the server has announced octets.
        let mut announced = self.sink.len();
        loop {
            match self.talk.next(self.args.common.timeout)? {
                Next::Message(ToClient::Chunk(chunk)) => {
                    chunk.check(announced, size)?;
                    if self.arrived[chunk.slot].replace(chunk).is_some() {
                        return Err(out_of_step());
                    }
                    announced += chunk.len as u64;
                    let at = chunk.slot * SLOT;
                    let sink = buffers.sge(at..at + chunk.len);
                    self.talk.end.post(&SendWr::read(chunk.slot as u64, sink, window.slot(chunk.slot)))?;
                }
                Next::Read(slot) => {
                    self.take(&buffers, slot)?;
                    progress.at(self.sink.len());
                    progress.hold_back(self.sink.len(), self.args.common.limit)?;
                }
                Next::Message(ToClient::End { sha256 }) if self.sink.len() == size => return Ok(sha256),
                Next::Message(_) => return Err(out_of_step()),
            }
        }
    }

    /// Handles a completed Read: its octets go into the file, and the server may use its slot
    /// again.
    fn take(&mut self, buffers: &MemoryRegion, slot: u64) -> Result<(), Failure> {
        let slot = usize::try_from(slot).unwrap_or(SLOTS);
        let chunk = self.arrived.get_mut(slot).and_then(Option::take).ok_or_else(out_of_step)?;
        let octets = buffers.read(slot * SLOT, chunk.len)?;
        self.talk.say(&ToServer::Free { slot })?;
        let talk = &mut *self.talk;
        self.sink.append(&octets, &mut || talk.say_busy(&ToServer::Busy)).map_err(failed)
    }
}
