//! One client of the server: one file, to or from the client.

use std::time::{Duration, Instant};

use rddp_rnic::{Access, ConnectOptions, ConnectRequest, MemoryRegion};
use serde::Serialize;

use super::Server;
use crate::failure::{Failure, Kind, printable};
use crate::out;
use crate::places::Place;
use crate::transfer::files::FileError;
use crate::transfer::greeting::Hello;
use crate::transfer::partial::{Clobber, Partial};
use crate::transfer::protocol::{Chunk, MAX_PATH, SLOT, SLOTS, ToClient, ToServer, Window, out_of_step};
use crate::transfer::show::{replaced_text, resumed_text};
use crate::transfer::source::Source;
use crate::transfer::talk::Talk;
use crate::transfer::token::{Nonce, Token, nonce};
use crate::transfer::tree::Depth;
use crate::units::about;

/// Time limit for a client to receive the reason of a refusal and to disconnect.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Client<'a> {
    pub(super) server: &'a Server,
    pub(super) talk: Talk,
    peer: String,
    /// The server's token and the nonce of this connection, by which requests are checked; `None`
    /// if the server asks for no token.
    proof: Option<(&'a Token, Nonce)>,
    begun: Instant,
}

/// The result of a transfer, as `--json` prints it.
#[derive(Serialize)]
pub(super) struct Served {
    peer: String,
    op: &'static str,
    file: String,
    octets: u64,
    /// For a tree: how many files.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    resumed_from: u64,
    /// For a put: whether a file with the name was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<bool>,
    seconds: f64,
    #[serde(skip_serializing_if = "String::is_empty")]
    sha256: String,
}

impl<'a> Client<'a> {
    pub(super) fn accept(
        server: &'a Server,
        request: ConnectRequest,
        hello: Hello,
        peer: String,
        place: &Place,
    ) -> Result<Self, Failure> {
        let talk = Talk::metered(&server.rnic, place.meter())?;
        let proof = server.token.as_ref().map(|token| nonce().map(|nonce| (token, nonce))).transpose()?;
        let private_data = hello.answer(proof.as_ref().map(|(_, nonce)| nonce));
        talk.end.accept(request, &ConnectOptions { private_data, ..ConnectOptions::default() })?;
        Ok(Client { server, talk, peer, proof, begun: Instant::now() })
    }

    /// Serves this client's one request. Tells the client of a failure, and returns it.
    pub(super) fn serve(mut self) -> Result<(), Failure> {
        // The memory is kept until the client was told how the request ended: the client may access
        // it until then.
        let mut slots = None;
        let served =
            match self.request() {
                // No client of ours names so long a path, so it is not repeated in messages.
                Ok(
                    ToServer::Put { path, .. } | ToServer::Get { path, .. } | ToServer::PutTree { path, .. },
                ) if path.len() > MAX_PATH => Err(out_of_step()),
                Ok(ToServer::Put { path, size, mode, no_clobber }) => {
                    self.put(path, size, mode, Clobber::unless(no_clobber), &mut slots)
                }
                Ok(ToServer::Get { path, have, sha256 }) => self.get(path, have, &sha256, &mut slots),
                Ok(ToServer::PutTree { path, no_clobber }) => {
                    self.put_tree(path, Clobber::unless(no_clobber), &mut slots)
                }
                Ok(ToServer::GetTree { paths, recursive, names_only }) => {
                    self.get_tree(&paths, Depth { recursive, names_only }, &mut slots)
                }
                Ok(_) => Err(out_of_step()),
                Err(failure) => Err(failure),
            };
        match served {
            Ok(served) => served.print(self.server.json),
            Err(failure) => {
                self.refuse(&failure);
                return Err(failure);
            }
        }
        self.talk.end.close();
        Ok(())
    }

    /// Returns the client's request. Where there is a token, its proof has been checked.
    fn request(&mut self) -> Result<ToServer, Failure> {
        let heard = self.hear()?;
        let Some((token, nonce)) = &self.proof else { return Ok(heard) };
        match heard {
            ToServer::Signed { mac, request } if token.verify(nonce, &request, &mac) => {
                serde_json::from_str(&request).map_err(|_| out_of_step())
            }
            ToServer::Signed { .. } => Err(Failure::refused("that is not the server's token")
                .remedy("name the file that has the server's token with --token")),
            _ => Err(Failure::refused("this server asks for a token")),
        }
    }

    pub(super) fn hear(&mut self) -> Result<ToServer, Failure> {
        self.talk.hear(self.server.idle)
    }

    /// Tells the client the reason, and waits until it has disconnected: if this end closed at
    /// once, the client could lose the message.
    fn refuse(&mut self, failure: &Failure) {
        let [mismatch, changed] = [Kind::Mismatch, Kind::Changed].map(|kind| failure.kind() == kind);
        let (reason, remedy) = match failure.kind() {
            Kind::Interrupted => ("it is being stopped".to_owned(), None),
            _ => (failure.to_string(), failure.how().map(str::to_owned)),
        };
        let refused = ToClient::Refused { reason, remedy, mismatch, changed };
        let deadline = Instant::now() + REFUSAL_TIMEOUT;
        if self.talk.say(&refused).is_ok() {
            // Messages that the client still sends are ignored; no more of them are received than
            // receives are posted.
            let left = || deadline.saturating_duration_since(Instant::now());
            while matches!(self.talk.end.try_next(left()), Ok(Some(_))) {}
        }
    }

    /// Receives a file, by the client's RDMA Writes into slots of this end's memory.
    fn put(
        &mut self,
        path: String,
        size: u64,
        mode: u32,
        clobber: Clobber,
        slots: &mut Option<MemoryRegion>,
    ) -> Result<Served, Failure> {
        self.writable(&path)?;
        let spot = self.server.root.spot(&path).map_err(refused)?;
        let mut partial = Partial::open(spot, clobber).map_err(refused)?;
        let talk = &mut self.talk;
        let (have, sha256) = partial.examine(&mut || talk.say_busy(&ToClient::Busy)).map_err(refused)?;
        // The octets that exist count as free space: they are either kept or overwritten.
        partial.has_room(size.saturating_sub(have)).map_err(refused)?;
        let slots = slots.insert(self.slots(Access::REMOTE_WRITE)?);
        let replaces = Some(partial.replaces().map_err(refused)?);
        self.talk.say(&ToClient::Take { have, sha256, window: Window::of(slots), replaces })?;
        let ToServer::From { offset: from } = self.hear()? else { return Err(out_of_step()) };
        match from {
            0 => partial.restart().map_err(refused)?,
            from if from == have && from <= size => {}
            _ => return Err(out_of_step()),
        }
        let theirs = self.receive(&mut partial, size, slots)?;
        let sha256 = partial.checksum();
        if sha256 != theirs {
            partial.discard();
            return Err(Failure::mismatch(format!("{path}: its sha256 is {sha256} here and {theirs} there")));
        }
        let replaced = partial.finish(mode).map_err(refused)?;
        self.talk.say(&ToClient::Same)?;
        Ok(Served { replaced: Some(replaced), ..self.served("put", path, size, from, sha256) })
    }

    pub(super) fn writable(&self, path: &str) -> Result<(), Failure> {
        if self.server.writable {
            return Ok(());
        }
        Err(Failure::refused(format!("{path}: this server is read-only")).remedy("start it with --writable"))
    }

    /// Registers memory for the client to access in this way.
    pub(super) fn slots(&self, remote: Access) -> Result<MemoryRegion, Failure> {
        Ok(self.talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE | remote)?)
    }

    /// Receives chunk by chunk, until the client says that these were all. Returns the checksum
    /// that the client names.
    fn receive(&mut self, partial: &mut Partial, size: u64, slots: &MemoryRegion) -> Result<String, Failure> {
        let mut octets = vec![0; SLOT];
        loop {
            match self.hear()? {
                ToServer::Chunk(chunk) => {
                    chunk.check(partial.len(), size)?;
                    // The client can write to this memory at any time: only the octets that are
                    // copied here count.
                    let octets = &mut octets[..chunk.len];
                    slots.read_into(chunk.slot * SLOT, octets)?;
                    self.talk.say(&ToClient::Free { slot: chunk.slot })?;
                    partial.append(octets).map_err(refused)?;
                    self.talk.moved(chunk.len);
                }
                ToServer::End { sha256 } if partial.len() == size => return Ok(sha256),
                _ => return Err(out_of_step()),
            }
        }
    }

    /// Gives a file, by the client's RDMA Reads of slots of this end's memory.
    fn get(
        &mut self,
        path: String,
        have: u64,
        sha256: &str,
        slots: &mut Option<MemoryRegion>,
    ) -> Result<Served, Failure> {
        let file = self.server.root.file(&path);
        let mut source = file.and_then(|file| Source::new(file, &path)).map_err(refused)?;
        let talk = &mut self.talk;
        let mut tick = || talk.say_busy(&ToClient::Busy);
        let from = source.resume(have, sha256, &mut tick).map_err(refused)?;
        let (size, mode) = (source.size(), source.mode());
        let slots = slots.insert(self.slots(Access::REMOTE_READ)?);
        self.talk.say(&ToClient::Give { size, mode, from, window: Window::of(slots) })?;
        self.give(&mut source, from, slots)?;
        source.check_unchanged(self.server.root.file(&path)).map_err(refused)?;
        let sha256 = source.checksum();
        self.talk.say(&ToClient::End { sha256: sha256.clone() })?;
        match self.hear()? {
            ToServer::Same => Ok(self.served("get", path, size, from, sha256)),
            _ => Err(out_of_step()),
        }
    }

    /// Sends all octets from `offset` on, and waits until the client has them.
    fn give(&mut self, source: &mut Source, mut offset: u64, slots: &MemoryRegion) -> Result<(), Failure> {
        let size = source.size();
        let mut free: Vec<usize> = (0..SLOTS).collect();
        let mut lens = [0; SLOTS];
        let mut octets = vec![0; SLOT];
        while offset < size || free.len() < SLOTS {
            match free.pop() {
                Some(slot) if offset < size => {
                    let len = (size - offset).min(SLOT as u64) as usize;
                    let octets = &mut octets[..len];
                    source.read(octets).map_err(refused)?;
                    slots.write(slot * SLOT, octets)?;
                    self.talk.say(&ToClient::Chunk(Chunk { slot, offset, len }))?;
                    (lens[slot], offset) = (len, offset + len as u64);
                }
                last => {
                    free.extend(last);
                    let ToServer::Free { slot } = self.hear()? else { return Err(out_of_step()) };
                    if slot >= SLOTS || free.contains(&slot) {
                        return Err(out_of_step());
                    }
                    self.talk.moved(lens[slot]);
                    free.push(slot);
                }
            }
        }
        Ok(())
    }

    pub(super) fn served(
        &self,
        op: &'static str,
        file: String,
        octets: u64,
        resumed_from: u64,
        sha256: String,
    ) -> Served {
        let seconds = self.begun.elapsed().as_secs_f64();
        let peer = self.peer.clone();
        Served { peer, op, file, octets, files: None, resumed_from, replaced: None, seconds, sha256 }
    }
}

/// Returns the failure that a client is told for an error of a file.
pub(super) fn refused(error: FileError) -> Failure {
    match error {
        FileError::Changed(_) => error.failure(Kind::Changed),
        _ => error.failure(Kind::Refused),
    }
}

impl Served {
    pub(super) fn with_files(self, files: u64) -> Self {
        Served { files: Some(files), ..self }
    }

    fn print(&self, json: bool) {
        if out::style().quiet {
            return;
        }
        if json {
            out::json_event(self);
            return;
        }
        // A peer chose the name, so characters that would move the cursor are escaped.
        let name = printable(&self.file);
        let (octets, seconds) = (about(self.octets), self.seconds);
        let (resumed, replaced) = (resumed_text(self.resumed_from), replaced_text(self.replaced));
        let files = self.files.map_or_else(String::new, |files| format!("{files} files, "));
        let how = format!("{files}{octets} in {seconds:.2} s{resumed}{replaced}");
        out::event(format_args!("{}: {} {name}, {how}", self.peer, self.op));
    }
}
