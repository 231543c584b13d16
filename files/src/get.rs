//! `rddp get`: the client Reads from the server's memory.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rddp_command::failure::{Failure, FailureKind};
use rddp_command::signals;
use rddp_rnic::{MemoryRegion, SendWr, TerminateCode};

use super::Options;
use super::checksum::Check;
use super::extents::Extents;
use super::files::FileError;
use super::partial::{Clobber, Last};
use super::patience::patiently;
use super::protocol::{Chunk, Here, LARGEST, SLOT, SLOTS, Terms, ToClient, ToServer, Window, out_of_step};
use super::remote::RemoteFile;
use super::show::{About, Finished, Progress, resumable};
use super::sink::Sink;
use super::talk::{Next, Talk};
use super::target::{STANDARD, Target};
use super::tasks::Hub;
use super::tree;

/// Interval at which a client that Reads one range says how far it is.
const TELL: Duration = Duration::from_millis(500);

pub(super) fn run(names: &[PathBuf], recursive: bool, options: &Options) -> Result<(), Failure> {
    // As for cp, the last of several names is the destination.
    let (remotes, local) = match names {
        [remotes @ .., local] if !remotes.is_empty() => (remotes, Path::new(local)),
        remotes => (remotes, Path::new(".")),
    };
    let remotes = texts(remotes)?;
    let [remote] = &remotes[..] else { return tree::get(&remotes, local, recursive, options) };
    if recursive {
        return tree::get(&remotes, local, true, options);
    }
    options.one_file()?;
    let hub = Hub::new(&RemoteFile::parse(remote)?.device(&options.device)?.open()?)?;
    patiently(options.retry, || 0, || hub.run(one(options, remote, local, &hub))?)
}

/// Fetches one file.
async fn one(options: &Options, remote: &str, local: &Path, hub: &Rc<Hub>) -> Result<(), Failure> {
    let remote = RemoteFile::parse(remote)?;
    let name = remote.name().map_err(|failure| {
        failure.remedy("name it behind the host, as in 192.0.2.1/big.iso; --recursive for a whole directory")
    })?;
    let path = remote.path_with(name)?;
    let local = destination(local, name)?;
    let clobber = Clobber::unless(options.no_clobber);
    let token = options.token()?;
    let target = Target::of(&local, clobber).map_err(failed)?;
    let check = options.check;
    let mut sink = Sink::open(target, clobber, check, hub).await.map_err(failed)?;
    // A server lets those go that ask for nothing, and reading what is there already may take long.
    let begun = sink.examine(&mut async || signals::check()).await.map_err(failed)?;
    let mut server = remote.connect(options.asks(token.as_ref()), hub)?;
    let is_resumable = sink.is_resumable();
    let talk = &mut server.talk;
    let arrived = Default::default();
    let get = Get { talk, options, sink, begun, check, arrived, path: &path };
    let finished = get.all().await;
    let finished = server.talk.leaving(finished).await;
    let finished = if is_resumable { finished.map_err(resumable) } else { finished }?;
    server.talk.close().await;
    let about = About { file: path, peer: server.addr, by: server.by, check };
    let summary = finished.summary(about);
    if local == Path::new(STANDARD) {
        summary.complain(options.json);
    } else {
        summary.print(options.json);
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
    error.failure(FailureKind::Failed)
}

fn destination(local: &Path, name: &str) -> Result<PathBuf, Failure> {
    if local == Path::new(STANDARD) {
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
    options: &'a Options,
    sink: Sink,
    /// The number and proof of the octets that are here already.
    begun: (u64, String),
    check: Check,
    /// The contents of each slot, present or to come by the Read that is under way.
    arrived: [Option<Chunk>; SLOTS],
    /// The path at the server.
    path: &'a str,
}

impl Get<'_> {
    async fn all(mut self) -> Result<Finished, Failure> {
        let (have, sha256) = std::mem::take(&mut self.begun);
        let path = self.path.to_owned();
        let terms = Terms { check: self.check, ..Terms::default() };
        self.talk.ask(&ToServer::Get { path, have, sha256, terms })?;
        let answer = self.talk.hear(self.options.timeout).await?;
        let ToClient::Give { size, mode, from, window, modified, has_holes, range, here } = answer else {
            return Err(out_of_step());
        };
        if !modified.is_valid() || size > LARGEST {
            return Err(out_of_step());
        }
        let last = Last { size, mode, modified: Some(modified) };
        if !self.options.again && self.sink.is_there(last) {
            self.talk.say(&ToServer::Same)?;
            self.sink.discard();
            return Ok(Finished::unchanged(size));
        }
        match from {
            0 => self.sink.restart().map_err(failed)?,
            from if from == have && from <= size => {}
            _ => return Err(out_of_step()),
        }
        if !has_holes {
            self.sink.has_room(size - from).map_err(failed)?;
        }
        let progress = Progress::new(&self.sink.name(), from, size);
        let (theirs, end) = match (here, window) {
            (Some(here), None) => (self.take_here(from, here, &progress).await?, ToServer::Done),
            (None, Some(window)) if range => {
                let extents = match has_holes {
                    true => Extents::unknown(from, size),
                    false => Extents::whole(from, size),
                };
                let read = self.read_range(extents, window, &progress).await;
                (read.map_err(|failure| self.cut_short(failure))?, ToServer::Same)
            }
            (None, Some(window)) => (self.receive(size, window, &progress).await?, ToServer::Same),
            _ => return Err(out_of_step()),
        };
        let talk = &mut *self.talk;
        let mut tick = async || talk.say_busy(&ToServer::Busy).await;
        self.sink.fill(size, &mut tick).await.map_err(failed)?;
        let ours = self.sink.checksum(size, &mut tick).await.map_err(failed)?;
        if ours != theirs {
            self.sink.discard();
            return Err(Failure::mismatch(format!("the file's sha256 is {ours} here and {theirs} there")));
        }
        let replaced = self.sink.finish(last, &self.talk.hub).await.map_err(failed)?;
        self.talk.say(&end)?;
        Ok(progress.finish(size, ours, replaced))
    }

    /// Takes the octets that stood behind the answer. Returns the checksum that the server names.
    async fn take_here(&mut self, from: u64, here: Here, progress: &Progress) -> Result<String, Failure> {
        let octets = self.talk.behind();
        here.check_octets(&octets, self.check)?;
        let hub = self.talk.hub.clone();
        let talk = &mut *self.talk;
        let mut tick = async || talk.say_busy(&ToServer::Busy).await;
        self.sink.append_octets(from, &octets, &hub, &mut tick).await.map_err(failed)?;
        progress.carries(octets.len());
        progress.at(self.sink.len());
        progress.keep_to(self.options.limit)?;
        Ok(here.sha256)
    }

    /// Reads chunk by chunk, until the server says that these were all. Returns the checksum that
    /// the server names.
    async fn receive(&mut self, size: u64, window: Window, progress: &Progress) -> Result<String, Failure> {
        let buffers = self.talk.sinks(SLOTS * SLOT)?;
        // The offset up to which the server has announced octets.
        let mut announced = self.sink.len();
        loop {
            match self.talk.next(self.options.timeout).await? {
                Next::Message(ToClient::Chunk(chunk)) => {
                    chunk.check_ahead(announced, size)?;
                    if self.arrived[chunk.slot].replace(chunk).is_some() {
                        return Err(out_of_step());
                    }
                    announced = chunk.offset + chunk.len as u64;
                    let at = chunk.slot * SLOT;
                    let sink = buffers.sge(at..at + chunk.len);
                    self.talk.end.post(&SendWr::read(chunk.slot as u64, sink, window.slot(chunk.slot)))?;
                }
                Next::Read(slot) => {
                    progress.carries(self.take(&buffers, slot).await?);
                    progress.at(self.sink.len());
                    progress.keep_to(self.options.limit)?;
                }
                Next::Message(ToClient::End { sha256 }) if self.has_all() => return Ok(sha256),
                Next::Message(_) => return Err(out_of_step()),
            }
        }
    }

    /// Reads the file from a range of the server's, up to its end. Returns the checksum that the
    /// server names when the file is still the one that it was.
    async fn read_range(
        &mut self,
        mut extents: Extents,
        window: Window,
        progress: &Progress,
    ) -> Result<String, Failure> {
        let buffers = self.talk.sinks(SLOTS * SLOT)?;
        let mut free: Vec<usize> = (0..SLOTS).collect();
        let from = self.sink.len();
        let (mut has_asked, mut octets, mut told) = (false, 0, Instant::now());
        while !extents.is_over() || free.len() < SLOTS {
            if let Some(&slot) = free.last()
                && let Some((offset, len)) = extents.next(SLOT)
            {
                free.pop();
                let chunk = Chunk { slot, offset, len, crc: None };
                let sink = buffers.sge(chunk.part(&buffers).range);
                self.talk.end.post(&SendWr::read(slot as u64, sink, window.at(offset - from)))?;
                self.arrived[slot] = Some(chunk);
                continue;
            }
            if let Some(from) = extents.wanted().filter(|_| !has_asked) {
                self.talk.say(&ToServer::Where { from })?;
                has_asked = true;
            }
            let slot = match self.talk.next::<ToClient>(self.options.timeout).await? {
                Next::Read(slot) => usize::try_from(slot).unwrap_or(SLOTS),
                Next::Message(ToClient::Extents { list, to }) if has_asked => {
                    extents.add(list, to)?;
                    has_asked = false;
                    continue;
                }
                Next::Message(_) => return Err(out_of_step()),
            };
            let chunk = self.arrived.get_mut(slot).and_then(Option::take).ok_or_else(out_of_step)?;
            self.keep(chunk, &buffers).await?;
            free.push(slot);
            progress.carries(chunk.len);
            progress.at(self.sink.len());
            progress.keep_to(self.options.limit)?;
            octets += chunk.len as u64;
            if told.elapsed() >= TELL {
                self.talk.say(&ToServer::At { octets })?;
                told = Instant::now();
            }
        }
        self.talk.say(&ToServer::At { octets })?;
        self.talk.say(&ToServer::Done)?;
        match self.talk.hear(self.options.timeout).await? {
            ToClient::End { sha256 } => Ok(sha256),
            _ => Err(out_of_step()),
        }
    }

    /// Returns the failure of a Read beyond the end that the file has now, or of octets that its
    /// disk does not give: the server's device ends the connection, before the server itself can
    /// say why. Any other end names the file.
    fn cut_short(&self, failure: Failure) -> Failure {
        match self.talk.end.qp.terminate_received() {
            Some(terminate)
                if terminate.code == TerminateCode::BOUNDS && failure.kind() == FailureKind::Peer =>
            {
                FileError::ChangedThere(self.path.to_owned()).failure(FailureKind::Changed)
            }
            _ => failure.of(self.path),
        }
    }

    /// Returns whether all that was announced has arrived, up to the end of the file or to the hole
    /// there.
    fn has_all(&self) -> bool {
        self.arrived.iter().all(Option::is_none)
    }

    /// Handles a completed Read: its octets go into the file, and the server may use its slot
    /// again. Returns how many there were.
    async fn take(&mut self, buffers: &MemoryRegion, slot: u64) -> Result<usize, Failure> {
        let slot = usize::try_from(slot).unwrap_or(SLOTS);
        let chunk = self.arrived.get_mut(slot).and_then(Option::take).ok_or_else(out_of_step)?;
        chunk.check_octets(&chunk.part(buffers), self.check)?;
        self.talk.say(&ToServer::Free { slot })?;
        self.keep(chunk, buffers).await?;
        Ok(chunk.len)
    }

    /// Writes the octets of a chunk to the file.
    async fn keep(&mut self, chunk: Chunk, buffers: &MemoryRegion) -> Result<(), Failure> {
        let hub = self.talk.hub.clone();
        let talk = &mut *self.talk;
        let mut tick = async || talk.say_busy(&ToServer::Busy).await;
        let octets = chunk.part(buffers);
        self.sink.append(chunk.offset, &octets, &hub, &mut tick).await.map_err(failed)
    }
}
