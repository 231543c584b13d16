//! One client of the server: one file, to or from the client.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rddp_command::device::By;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::places::{Place, TOO_MANY};
use rddp_rnic::{Access, ConnectOptions, MemoryRegion};
use rddp_stat::Counter;

use super::Server;
use super::served::Served;
use super::startups::Entry;
use super::workers::Newcomer;
use crate::checksum::Check;
use crate::files::refused;
use crate::greeting::Hello;
use crate::partial::{Clobber, Last, Partial};
use crate::protocol::{LARGEST, MAX_PATH, SLOT, SLOTS, Terms, Time, ToClient, ToServer, Window, out_of_step};
use crate::talk::Talk;
use crate::tasks::Hub;
use crate::token::{Nonce, Token, nonce};
use crate::tree::Depth;

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
    /// FPDUs of this connection have a CRC.
    pub(super) has_crc: bool,
    stay: Stay,
}

/// The memory that a client Reads or Writes, which is kept until it was told how its request ended.
pub(super) type Memory = Option<Arc<MemoryRegion>>;

/// A client's stay at the server: its place, once its request has come. It ends with this.
enum Stay {
    Startup { _entry: Entry, host: Option<IpAddr> },
    Place { _place: Place },
}

/// A file that a client puts.
struct Putting {
    path: String,
    size: u64,
    mode: u32,
    clobber: Clobber,
    terms: Terms,
}

impl<'a> Client<'a> {
    pub(super) fn accept(
        server: &'a Server,
        hub: &Rc<Hub>,
        newcomer: Newcomer,
        peer: String,
    ) -> Result<Self, Failure> {
        let Newcomer { rnic, request, hello, host, entry } = newcomer;
        let talk = Talk::with(hub, &rnic, entry.startup())?;
        let hello = Hello { large: hello.large && !By::of(&rnic).is_host(), ..hello };
        let proof = server.token.as_ref().map(|token| nonce().map(|nonce| (token, nonce))).transpose()?;
        let private_data = hello.answer(proof.as_ref().map(|(_, nonce)| nonce));
        let agreed =
            talk.end.accept(request, &ConnectOptions { private_data, ..ConnectOptions::default() })?;
        let has_crc = agreed.is_some_and(|agreed| agreed.crc);
        if hello.large {
            talk.end.qp.send_large_fpdus();
        }
        let stay = Stay::Startup { _entry: entry, host };
        Ok(Client { server, talk, peer, proof, begun: Instant::now(), has_crc, stay })
    }

    /// Serves this client's one request. Tells the client of a failure, and returns it.
    pub(super) async fn serve(mut self) -> Result<(), Failure> {
        // The memory is kept until the client was told how the request ended: the client may access
        // it until then.
        let mut slots = None;
        let served = match self.request().await {
            Ok(request) => self.carry_out(request, &mut slots).await,
            Err(failure) => Err(failure),
        };
        match served {
            Ok(served) => served.print(self.server.json),
            Err(failure) => {
                if failure.kind() != FailureKind::NobodyReads {
                    self.refuse(&failure).await;
                }
                return Err(failure);
            }
        }
        self.talk.close().await;
        Ok(())
    }

    async fn carry_out(&mut self, request: ToServer, slots: &mut Memory) -> Result<Served, Failure> {
        match request {
            // No client of ours names so long a path, so it is not repeated in messages.
            ToServer::Put { path, .. } | ToServer::Get { path, .. } | ToServer::PutTree { path, .. }
                if path.len() > MAX_PATH =>
            {
                Err(out_of_step())
            }
            ToServer::Put { path, size, mode, no_clobber, terms } => {
                let (clobber, terms) = (Clobber::unless(no_clobber), valid(terms)?);
                self.put(Putting { path, size, mode, clobber, terms }, slots).await
            }
            ToServer::Get { path, have, sha256, terms } => {
                self.get(path, have, &sha256, valid(terms)?, slots).await
            }
            ToServer::PutTree { path, no_clobber, wishes, terms } => {
                self.put_tree(path, Clobber::unless(no_clobber), (wishes, valid(terms)?), slots).await
            }
            ToServer::GetTree { paths, recursive, names_only, wishes, terms } => {
                let depth = Depth { recursive, names_only };
                self.get_tree(&paths, depth, (wishes, valid(terms)?), slots).await
            }
            _ => Err(out_of_step()),
        }
    }

    /// Returns the client's request, for which it gets a place.
    async fn request(&mut self) -> Result<ToServer, Failure> {
        let request = self.proven().await?;
        if let Stay::Startup { host, .. } = self.stay {
            let place = self.server.places.take(host);
            let place = place.ok_or_else(|| Failure::new(FailureKind::TurnedAway, TOO_MANY))?;
            self.talk.seat(place.meter());
            self.stay = Stay::Place { _place: place };
        }
        Ok(request)
    }

    /// Returns the client's request. Where there is a token, its proof has been checked.
    async fn proven(&mut self) -> Result<ToServer, Failure> {
        let heard = self.hear().await?;
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

    pub(super) async fn hear(&mut self) -> Result<ToServer, Failure> {
        self.talk.hear(self.server.idle).await
    }

    /// Tells the client the reason, and waits until it has disconnected: if this end closed at
    /// once, the client could lose the message.
    async fn refuse(&mut self, failure: &Failure) {
        let [mismatch, changed, turned_away] =
            [FailureKind::Mismatch, FailureKind::Changed, FailureKind::TurnedAway]
                .map(|kind| failure.kind() == kind);
        let (reason, remedy) = match failure.kind() {
            FailureKind::Interrupted => ("it is being stopped".to_owned(), None),
            _ => (failure.to_string(), failure.how().map(str::to_owned)),
        };
        let refused = ToClient::Refused { reason, remedy, mismatch, changed, turned_away };
        let asked = matches!(self.stay, Stay::Place { .. }) || failure.kind() != FailureKind::Peer;
        // A client that asks for nothing is not waited for.
        if self.talk.say(&refused).is_ok() && asked {
            self.talk.await_end(REFUSAL_TIMEOUT).await;
        }
    }

    /// Receives a file, by the client's RDMA Writes into slots of this end's memory.
    async fn put(&mut self, file: Putting, slots: &mut Memory) -> Result<Served, Failure> {
        let Putting { path, size, mode, clobber, terms } = file;
        self.writable(&path)?;
        if size > LARGEST {
            return Err(out_of_step());
        }
        let Terms { check, modified, unknown_size: is_unknown, .. } = terms;
        let hub = self.talk.hub.clone();
        let spot = self.server.root.spot(&path).map_err(refused)?;
        let mut partial = Partial::open(spot, clobber, check, &hub).await.map_err(refused)?;
        if !terms.again && partial.is_there(Last { size, mode, modified }) {
            partial.discard();
            self.talk.say(&ToClient::Same)?;
            return Ok(Served { unchanged: Some(1), ..self.served("put", path, size, 0, String::new()) });
        }
        let (have, proof) = if is_unknown {
            partial.restart().map_err(refused)?;
            (0, String::new())
        } else {
            let talk = &mut self.talk;
            let mut tick = async || talk.say_busy(&ToClient::Busy).await;
            partial.examine(&mut tick).await.map_err(refused)?
        };
        // The octets that exist count as free space: they are either kept or overwritten.
        if !terms.has_holes {
            partial.has_room(size.saturating_sub(have)).map_err(refused)?;
        }
        let slots = slots.insert(Arc::new(self.slots(Access::REMOTE_WRITE)?));
        let replaces = partial.replaces().map_err(refused)?;
        let take = ToClient::Take { have, sha256: proof, window: Window::of(slots), replaces };
        self.talk.say(&take)?;
        let ToServer::From { offset: from } = self.hear().await? else { return Err(out_of_step()) };
        match from {
            0 => partial.restart().map_err(refused)?,
            from if from == have && from <= size => {}
            _ => return Err(out_of_step()),
        }
        let known = if is_unknown { None } else { Some(size) };
        let received = self.receive(&mut partial, known, check, slots).await;
        let (theirs, size) = match received {
            Err(failure) if is_unknown => {
                // Nobody sends the same octets again.
                partial.discard();
                return Err(failure);
            }
            received => received?,
        };
        let talk = &mut self.talk;
        let mut tick = async || talk.say_busy(&ToClient::Busy).await;
        let sha256 = match partial.checksum(size, &mut tick).await {
            Ok(checksum) => checksum.so_far(),
            Err(error) => return Err(refused(error)),
        };
        if sha256 != theirs {
            partial.discard();
            return Err(Failure::mismatch(format!("{path}: its sha256 is {sha256} here and {theirs} there")));
        }
        let replaced = partial.finish(Last { size, mode, modified }, &hub).await.map_err(refused)?;
        self.talk.say(&ToClient::Same)?;
        let served = self.served("put", path, size, from, sha256).checked(check);
        Ok(Served { replaced: Some(replaced), ..served })
    }

    pub(super) fn writable(&self, path: &str) -> Result<(), Failure> {
        if self.server.writable {
            return Ok(());
        }
        let path = if path.is_empty() { "." } else { path }; // the served directory itself
        Err(Failure::refused(format!("{path}: this server is read-only")).remedy("start it with --writable"))
    }

    /// Registers memory for the client to access in this way.
    pub(super) fn slots(&self, remote: Access) -> Result<MemoryRegion, Failure> {
        self.talk.end.qp.count(Counter::Registrations, 1);
        Ok(self.talk.end.pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE | remote)?)
    }

    /// Receives chunk by chunk, until the client says that these were all. Returns the checksum
    /// that the client names, and the size of the file.
    async fn receive(
        &mut self,
        partial: &mut Partial,
        known: Option<u64>,
        check: Check,
        slots: &MemoryRegion,
    ) -> Result<(String, u64), Failure> {
        let hub = self.talk.hub.clone();
        let most = known.unwrap_or(LARGEST);
        loop {
            match self.hear().await? {
                ToServer::Chunk(chunk) => {
                    match known {
                        Some(_) => chunk.check_ahead(partial.len(), most)?,
                        None => chunk.check(partial.len(), most)?,
                    }
                    let octets = chunk.part(slots);
                    chunk.check_octets(&octets, check)?;
                    let talk = &mut self.talk;
                    let mut tick = async || talk.say_busy(&ToClient::Busy).await;
                    partial.append_part(chunk.offset, &octets, &hub, &mut tick).await.map_err(refused)?;
                    self.talk.say(&ToClient::Free { slot: chunk.slot })?;
                    self.talk.moved(chunk.len);
                    hub.breathe().await;
                }
                ToServer::End { sha256, size } => {
                    let end = known.or(size).ok_or_else(out_of_step)?;
                    // A hole may be at the end of a file whose size was known.
                    let is_all = partial.len() == end || known.is_some();
                    return if is_all { Ok((sha256, end)) } else { Err(out_of_step()) };
                }
                _ => return Err(out_of_step()),
            }
        }
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
        Served {
            peer: self.peer.clone(),
            by: By::of(&self.talk.end.rnic),
            op,
            file,
            octets,
            files: None,
            unchanged: None,
            connection: None,
            resumed_from,
            replaced: None,
            how: None,
            seconds,
            checksum: None,
            sha256,
        }
    }
}

/// Checks the terms of a request.
fn valid(terms: Terms) -> Result<Terms, Failure> {
    let is_valid =
        terms.modified.is_none_or(Time::is_valid) && terms.share.is_none_or(|share| share.number < share.of);
    if is_valid { Ok(terms) } else { Err(out_of_step()) }
}
