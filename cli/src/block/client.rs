//! One client of a server of disks, by NBD: its requests under way.
//!
//! | module | what |
//! |---|---|
//! | `handshake` | the way to the first request |
//! | `replies` | the replies, until TCP has taken them |
//! | `wrong` | the mistakes that end a client |

mod handshake;
mod replies;
mod wrong;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rddp_block::export::{Command, DiskError};
use rddp_block::nbd::Terms;
use rddp_block::nbd::handshake::Handshake;
use rddp_block::nbd::request::{REQUEST_LEN, Request};
use rddp_command::failure::printable_name;
use rddp_rnic::{Completed, Completion, MemoryRegion, PostError, QueuePair, RecvWr, SendWr, Status};

pub(super) use self::wrong::Wrong;
use super::buffers::{Buffer, Buffers};
use super::disk::{Disk, Done, Job};
use super::payload::Payload;
use super::session::{MOST_OCTETS, Means, PATIENCE, Session, Wrong as Any};
use super::troubles::Kind;

/// Requests of a client that are under way.
const MOST: usize = 128;

/// Octets of the longest option of a handshake.
pub(super) const INBOX: usize = 16 * 1024;

/// Sends and receives that a client can have posted, and the completions of all of them.
pub(super) const SENDS: usize = 2 * MOST + 8;
pub(super) const RECEIVES: usize = 4;
pub(super) const COMPLETIONS: usize = SENDS + RECEIVES;

/// A client.
pub(super) struct Client {
    qp: QueuePair,
    peer: String,
    inbox: MemoryRegion,
    /// The use of the receive that is posted.
    awaited: Awaited,
    /// The disk that the client has chosen, and how it is to be answered.
    chosen: Option<(usize, Terms)>,
    under_way: HashMap<u64, UnderWay>,
    octets: usize,
    next_id: u64,
    /// Replies that are to be sent by the next call.
    out: Vec<SendWr>,
    /// Replies that TCP has not taken.
    unsent: usize,
    /// The time when it last took one or gave octets of a payload, or owed neither.
    moved: Instant,
    /// The end of the handshake at the latest, or of the client.
    until: Option<Instant>,
    leaving: bool,
    /// The name of a disk that was asked for, and that there is not.
    unknown: Option<String>,
    /// The request that was refused last, and was not told of.
    refused: Option<(Request, DiskError)>,
}

/// The next thing that comes from a client.
enum Awaited {
    Handshake(Handshake),
    /// Nothing: the client takes the reply to its last option first, so that it has one at a time.
    Taken(Handshake),
    Request,
    Payload(Payload),
    /// Nothing: the request waits for memory, or for others to be answered.
    Room(Option<Request>),
    /// Nothing more.
    End,
}

/// A request that has not been answered, or whose reply TCP has not taken.
struct UnderWay {
    request: Option<Request>,
    octets: usize,
    buffer: Option<Buffer>,
}

impl Client {
    /// Greets a client.
    pub(super) fn greet(qp: QueuePair, peer: String, inbox: MemoryRegion) -> Result<Self, Wrong> {
        let mut client = Client {
            qp,
            peer,
            inbox,
            awaited: Awaited::End,
            chosen: None,
            under_way: HashMap::new(),
            octets: 0,
            next_id: 0,
            out: Vec::new(),
            unsent: 0,
            moved: Instant::now(),
            until: Some(Instant::now() + PATIENCE),
            leaving: false,
            unknown: None,
            refused: None,
        };
        client.expect_handshake(Handshake::default())?;
        client.say(&Handshake::greeting());
        client.send()?;
        Ok(client)
    }

    /// Returns whether all is over.
    fn has_ended(&self, now: Instant) -> Result<bool, Wrong> {
        let is_late = self.until.is_some_and(|until| now >= until);
        if is_late && !self.leaving {
            return Err(Wrong::Silent);
        }
        Ok(self.leaving && (self.under_way.is_empty() || is_late))
    }

    /// Acts on a completion of this client's queue pair.
    fn complete(
        &mut self,
        completion: &Completion,
        disks: &mut [Disk],
        buffers: &mut Buffers,
    ) -> Result<(), Wrong> {
        match (completion.completed, completion.status) {
            (Completed::Receive, Status::Success) => self.received(disks, buffers),
            // The client has gone: in the middle of something, or without a word.
            (Completed::Receive, _) => {
                self.leave();
                Ok(())
            }
            (_, status) => {
                self.sent(completion.wr_id, buffers);
                if status != Status::Success {
                    self.leave();
                }
                Ok(())
            }
        }
    }

    /// Takes what was received.
    fn received(&mut self, disks: &mut [Disk], buffers: &mut Buffers) -> Result<(), Wrong> {
        match std::mem::replace(&mut self.awaited, Awaited::End) {
            Awaited::Handshake(handshake) => self.shake_hands(handshake, disks, buffers),
            Awaited::Request => {
                let mut octets = [0; REQUEST_LEN];
                self.inbox.read_into(0, &mut octets)?;
                let request = Request::parse(&octets)?;
                self.begin(request, disks, buffers)
            }
            Awaited::Payload(payload) => {
                self.moved = Instant::now();
                self.take_payload(payload, disks, buffers)
            }
            Awaited::Taken(_) | Awaited::Room(_) | Awaited::End => Ok(()),
        }
    }

    /// Begins a request, unless there is no room for its payload now.
    fn begin(&mut self, request: Request, disks: &mut [Disk], buffers: &mut Buffers) -> Result<(), Wrong> {
        let Some((disk, terms)) = self.chosen else { return Ok(()) };
        if request.is_disconnect() {
            self.leave();
            return Ok(());
        }
        let checked = request.check(&disks[disk].export, &terms);
        let len = match checked {
            Ok(Command::Read { len, .. }) => len,
            _ => request.payload_len(),
        };
        if len == 0 {
            self.dispatch(request, checked, None, disks, buffers);
            return self.expect_request();
        }
        let client = self.qp.num().0;
        let has_room = self.octets == 0 || self.octets + len as usize <= MOST_OCTETS;
        let Some(buffer) = has_room.then(|| buffers.take_for(disk, client, len as usize)).flatten() else {
            self.awaited = Awaited::Room(Some(request));
            return Ok(());
        };
        if request.payload_len() > 0 {
            self.owe();
            return self.take_payload(Payload::new(request, checked, buffer), disks, buffers);
        }
        self.dispatch(request, checked, Some(buffer), disks, buffers);
        self.expect_request()
    }

    /// Has the next piece of a payload come, or does the request behind the last.
    fn take_payload(
        &mut self,
        mut payload: Payload,
        disks: &mut [Disk],
        buffers: &mut Buffers,
    ) -> Result<(), Wrong> {
        if let Some(piece) = payload.next() {
            self.awaited = Awaited::Payload(payload);
            return Ok(self.receive(piece)?);
        }
        let Payload { request, checked, buffer, .. } = payload;
        self.dispatch(request, checked, Some(buffer), disks, buffers);
        self.expect_request()
    }

    /// Goes on where there was no room, if there is some now.
    fn go_on(&mut self, disks: &mut [Disk], buffers: &mut Buffers) -> Result<(), Wrong> {
        match std::mem::replace(&mut self.awaited, Awaited::End) {
            Awaited::Room(Some(request)) => self.begin(request, disks, buffers),
            Awaited::Room(None) => self.expect_request(),
            Awaited::Taken(handshake) if self.unsent == 0 && !self.leaving => {
                self.expect_handshake(handshake)
            }
            other => {
                self.awaited = other;
                Ok(())
            }
        }
    }

    /// Hands a request to its disk, or answers what cannot be done.
    fn dispatch(
        &mut self,
        request: Request,
        checked: Result<Command, DiskError>,
        buffer: Option<Buffer>,
        disks: &mut [Disk],
        buffers: &mut Buffers,
    ) {
        let Some((disk, _)) = self.chosen else { return };
        let (owner, id) = (self.qp.num().0, self.next_id);
        let octets = buffer.as_ref().map_or(0, Buffer::len);
        self.next_id += 1;
        self.octets += octets;
        self.under_way.insert(id, UnderWay { request: Some(request), octets, buffer: None });
        let done = match checked {
            Ok(command) => disks[disk].take(Job { owner, id, command, buffer }),
            Err(error) => {
                self.refused = Some((request, error));
                Some(Done { owner, id, buffer, result: Err(error) })
            }
        };
        if let Some(done) = done {
            self.answer(done, buffers);
        }
    }

    /// Warns of what a disk did not do.
    fn warn(&self, id: u64, error: DiskError, means: &mut Means) {
        let request = self.under_way.get(&id).and_then(|work| work.request);
        let (Some((at, terms)), Some(request)) = (self.chosen, request) else { return };
        let export = &means.disks[at].export;
        // The disk had it because it was found good.
        let Ok(command) = request.check(export, &terms) else { return };
        means.troubles.warn_of_disk(&self.peer, (at, export), &command, error);
    }

    /// Gives back the memory of a client that has gone. Its connection goes first.
    fn give_up(self, buffers: &mut Buffers) {
        self.qp.disconnect();
        let Client { qp, awaited, under_way, .. } = self;
        drop(qp);
        let payload = match awaited {
            Awaited::Payload(payload) => Some(payload.buffer),
            _ => None,
        };
        let kept = under_way.into_values().filter_map(|work| work.buffer);
        kept.chain(payload).for_each(|buffer| buffers.give_back(buffer));
    }

    /// Takes nothing more of the client; what is under way is still answered.
    fn leave(&mut self) {
        self.leaving = true;
        self.until = Some(Instant::now() + PATIENCE);
    }

    fn expect_request(&mut self) -> Result<(), Wrong> {
        if self.under_way.len() >= MOST {
            self.awaited = Awaited::Room(None);
            return Ok(());
        }
        self.receive(self.inbox.sge(..REQUEST_LEN))?;
        self.awaited = Awaited::Request;
        Ok(())
    }

    fn receive(&self, sge: rddp_rnic::Sge) -> Result<(), PostError> {
        self.qp.post_recv(RecvWr::one(0, sge).until_full())
    }
}

impl Session for Client {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn completions(&self) -> usize {
        COMPLETIONS
    }

    fn take(&mut self, completion: &Completion, means: &mut Means) -> Result<(), Any> {
        let completed = self.complete(completion, &mut means.disks, &mut means.buffers);
        if let Some(name) = self.unknown.take() {
            let text = format_args!("{}: no disk is called {}", self.peer, printable_name(&name));
            means.troubles.warn(Kind::Name, text);
        }
        if let (Some((request, error)), Some((at, _))) = (self.refused.take(), self.chosen) {
            let name = printable_name(&means.disks[at].export.name);
            let (offset, len) = (request.offset(), request.len());
            let text = format_args!("{}: disk {name}: {len} octets at {offset}: {error}", self.peer);
            means.troubles.warn(Kind::Refused, text);
        }
        Ok(completed?)
    }

    fn done(&mut self, done: Done, means: &mut Means) -> Result<(), Any> {
        if let Err(error) = &done.result {
            self.warn(done.id, *error, means);
        }
        self.answer(done, &mut means.buffers);
        Ok(())
    }

    fn waits(&self) -> bool {
        matches!(self.awaited, Awaited::Room(_))
    }

    fn resume(&mut self, means: &mut Means) -> Result<(), Any> {
        Ok(self.go_on(&mut means.disks, &mut means.buffers)?)
    }

    fn flush(&mut self, _: &mut Means) -> Result<(), Any> {
        Ok(self.send()?)
    }

    fn is_stalled_for(&self, now: Instant) -> Option<Duration> {
        self.owes().then(|| now.saturating_duration_since(self.moved))
    }

    fn is_over(&self, now: Instant, _: &Means) -> Result<bool, Any> {
        Ok(self.has_ended(now)?)
    }

    fn end(self: Box<Self>, means: &mut Means) {
        self.give_up(&mut means.buffers);
    }
}
