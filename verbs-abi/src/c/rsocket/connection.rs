//! A connection: the queue pair, the memory and the protocol.

use std::sync::Arc;

use nix::errno::Errno;
use rddp_rnic::{
    Access, Completed, CompletionChannel, CompletionQueue, ConnectOptions, MemoryRegion, QpConfig, QueuePair,
    RecvWr, Remote, SendWr, Stag, Status,
};

use super::map::Mapped;
use crate::engine::Engine;
use crate::errors::{Outcome, of_device, of_post};
use crate::rsocket::{Hello, Mapping, Message, Place, Stream, Update, Violation};

/// Sizes that a program may choose before a connection is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) sends: u16,
    pub(super) receives: u16,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    pub(super) inline: u16,
    /// Mappings that the peer may tell of.
    pub(super) mappings: u16,
}

impl Default for Sizes {
    fn default() -> Self {
        let (send_buffer, receive_buffer) = (1 << 17, 1 << 17);
        Sizes { sends: 384, receives: 384, send_buffer, receive_buffer, inline: 64, mappings: 0 }
    }
}

/// Receives for messages that need no credit.
const SPARE: usize = 16;
/// Requests for updates and the ends of directions.
const CONTROL: usize = 2 * Stream::UPDATES + 4;
/// The greatest write. A whole buffer in one would have the peer wait for the whole.
pub(super) const MOST: usize = 65_536;

/// Kinds of completed requests, besides data of so many octets.
const UPDATE: u64 = 1 << 40;
const CONTROL_SENT: u64 = 1 << 41;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    pub(super) channel: CompletionChannel,
    inbox: MemoryRegion,
    ring: MemoryRegion,
    /// The list of places, and the table of mappings behind it.
    pub(super) places: MemoryRegion,
    pub(super) outbox: MemoryRegion,
    receives: u16,
    /// Sends with data that may still be posted, and octets of the outbox that are free.
    pub(super) slots: usize,
    pub(super) free: usize,
    /// Offset in the outbox of the next octets.
    pub(super) next: usize,
    pub(super) mapped: Mapped,
    /// Ends of directions that are not completed.
    controls: usize,
    pub(super) stream: Option<Stream>,
    pub(super) error: Option<Errno>,
}

impl Connection {
    pub(super) fn new(engine: &Arc<Engine>, sizes: &Sizes) -> Outcome<Connection> {
        let (rnic, receives) = (&engine.rnic, sizes.receives.clamp(4, 16_384));
        let slots = usize::from(sizes.sends.clamp(16, 16_384)) / 2;
        let depth = usize::from(receives) + SPARE;
        let channel = rnic.create_channel().map_err(of_device)?;
        let cq = rnic.create_cq_on(&channel, depth + slots + 2 * CONTROL).map_err(of_device)?;
        let config = QpConfig {
            max_send: 2 * slots + CONTROL,
            max_recv: depth,
            inbound_read: false,
            ..QpConfig::new(&cq)
        };
        let pd = rnic.alloc_pd();
        let qp = pd.create_qp(&config).map_err(of_device)?;
        let memory = |len, access| pd.allocate(len, access).map_err(of_device);
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let connection = Connection {
            inbox: memory(depth * Message::LEN, Access::LOCAL_WRITE)?,
            ring: memory((sizes.receive_buffer as usize).max(2) & !1, written)?,
            places: memory(
                Stream::PLACES * Place::LEN + usize::from(sizes.mappings) * Mapping::LEN,
                written,
            )?,
            outbox: memory((sizes.send_buffer as usize).max(2048), Access::LOCAL_WRITE)?,
            qp,
            cq,
            channel,
            receives,
            slots,
            free: (sizes.send_buffer as usize).max(2048),
            next: 0,
            mapped: Mapped::new(pd, sizes.mappings),
            controls: 0,
            stream: None,
            error: None,
        };
        (0..depth).try_for_each(|index| connection.post_receive(index))?;
        Ok(connection)
    }

    /// Returns options with the private data for the peer.
    pub(super) fn options(&self) -> ConnectOptions {
        let place = |region: &MemoryRegion, len: usize| Place {
            addr: region.remote(0).to,
            key: region.stag().0,
            len: len as u32,
        };
        let hello = Hello {
            is_big_endian: cfg!(target_endian = "big"),
            credits: self.receives,
            list: place(&self.places, Stream::PLACES),
            data: place(&self.ring, self.ring.len() / 2),
            mappings: self.mapped.theirs.len() as u16,
        };
        ConnectOptions { private_data: hello.encode(), extensions: false, ..ConnectOptions::default() }
    }

    /// Begins the stream with the private data of the peer.
    pub(super) fn begin(&mut self, private_data: &[u8]) -> Result<(), Violation> {
        let hello = Hello::decode(private_data)?;
        let mappings = self.mapped.theirs.len() as u16;
        self.stream = Some(Stream::new(&hello, self.ring.len(), self.receives, mappings));
        Ok(())
    }

    fn post_receive(&self, index: usize) -> Outcome<()> {
        let at = index * Message::LEN;
        let sge = self.inbox.sge(at..at + Message::LEN);
        self.qp.post_recv(RecvWr::one(index as u64, sge)).map_err(of_post)
    }

    /// Takes what has completed, and tells the peer of what has been read. Returns whether there
    /// was anything.
    pub(super) fn progress(&mut self) -> bool {
        let mut any = self.tell();
        while let Some(completion) = self.cq.poll_one() {
            any = true;
            let done = match (completion.status, completion.completed) {
                (Status::Success, Completed::Receive) => {
                    self.received(completion.wr_id as usize, completion.byte_len as usize)
                }
                (Status::Success, _) => {
                    self.sent(completion.wr_id);
                    Ok(())
                }
                _ => Err(Errno::ECONNRESET),
            };
            if let Err(error) = done {
                self.fail(error);
            }
        }
        any | self.tell()
    }

    /// Ends the connection with an error, unless it is over already.
    pub(super) fn fail(&mut self, error: Errno) {
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.is_gone()) else { return };
        stream.end();
        self.error = Some(error);
        if error == Errno::EPROTO {
            self.qp.terminate();
        }
    }

    fn received(&mut self, index: usize, len: usize) -> Outcome<()> {
        let mut octets = [0; Message::LEN];
        self.inbox.read_into(index * Message::LEN, &mut octets).map_err(|_| Errno::EIO)?;
        let stream = self.stream.as_mut().ok_or(Errno::EPROTO)?;
        if stream.is_gone() {
            return Ok(());
        }
        let taken = match len {
            Message::LEN => Message::decode(octets, stream.is_peer_big_endian()),
            _ => Err(Violation),
        };
        let message = taken.map_err(|Violation| Errno::EPROTO)?;
        stream.take(message).map_err(|Violation| Errno::EPROTO)?;
        let is_gone = stream.is_gone();
        if let Message::Map(number) = message {
            self.note_mapping(number)?;
        }
        if is_gone { Ok(()) } else { self.post_receive(index) }
    }

    fn sent(&mut self, id: u64) {
        match id {
            UPDATE => self.stream.iter_mut().for_each(Stream::updated),
            CONTROL_SENT => self.controls = self.controls.saturating_sub(1),
            len => {
                self.slots += 1;
                self.free += len as usize;
            }
        }
    }

    fn tell(&mut self) -> bool {
        let Some(Update { message, place }) = self.stream.as_mut().and_then(Stream::update) else {
            return false;
        };
        let mut list = Vec::with_capacity(2);
        if let Some((offset, len, at)) = place {
            let addr = self.ring.remote(offset).to;
            let is_big_endian = self.stream.as_ref().is_some_and(Stream::is_peer_big_endian);
            let octets = Place { addr, key: self.ring.stag().0, len }.encode(is_big_endian);
            list.push(SendWr::write_inline(UPDATE, &octets, remote(at)).unsignaled());
        }
        list.push(SendWr::send_inline(UPDATE, &message.encode()));
        if self.qp.post_sends(&list).is_err() {
            self.fail(Errno::ECONNRESET);
        }
        true
    }

    /// Returns how many octets can be sent at once.
    pub(super) fn sendable(&mut self) -> usize {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.is_writable()) else { return 0 };
        if !stream.has_credit() || self.slots == 0 {
            return 0;
        }
        if let Some(index) = stream.wanted_place() {
            let mut octets = [0; Place::LEN];
            let at = index * Place::LEN;
            if self.places.read_into(at, &mut octets).is_err() {
                return 0;
            }
            let place = Place::decode(&octets);
            if place.len == 0 || self.places.write(at, &[0; Place::LEN]).is_err() {
                return 0;
            }
            stream.set_target(place);
        }
        stream.room().min(self.free).min(self.outbox.len() - self.next).min(MOST)
    }

    /// Sends as much of `octets` as can be. Returns how much that is.
    pub(super) fn send(&mut self, octets: &[u8]) -> Outcome<usize> {
        if !self.tell_mappings()? {
            return Ok(0);
        }
        let len = self.sendable().min(octets.len());
        let Some(stream) = self.stream.as_mut().filter(|_| len > 0) else { return Ok(0) };
        self.outbox.write(self.next, &octets[..len]).map_err(|_| Errno::EIO)?;
        let at = remote(stream.send(len));
        let sge = self.outbox.sge(self.next..self.next + len);
        let message = Message::Data(len as u32).encode();
        let list = [SendWr::write(0, sge, at).unsignaled(), SendWr::send_inline(len as u64, &message)];
        self.next = (self.next + len) % self.outbox.len();
        self.free -= len;
        self.slots -= 1;
        if self.qp.post_sends(&list).is_err() {
            self.fail(Errno::ECONNRESET);
            return Err(Errno::ECONNRESET);
        }
        Ok(len)
    }

    /// Copies what has come into `out`, and takes it unless it is only to be looked at.
    pub(super) fn receive(&mut self, out: &mut [u8], only_look: bool) -> Outcome<usize> {
        let Some(stream) = self.stream.as_mut() else { return Ok(0) };
        let mut copied = 0;
        for (offset, len) in stream.peek(out.len()) {
            self.ring.read_into(offset, &mut out[copied..copied + len]).map_err(|_| Errno::EIO)?;
            copied += len;
        }
        if !only_look {
            stream.consume(copied);
            self.tell();
        }
        Ok(copied)
    }

    /// Ends directions, and tells the peer.
    pub(super) fn shut(&mut self, reading: bool, writing: bool) {
        let Some(message) = self.stream.as_mut().and_then(|stream| stream.shut(reading, writing)) else {
            return;
        };
        self.controls += 1;
        if self.qp.post_send(&SendWr::send_inline(CONTROL_SENT, &message.encode())).is_err() {
            self.fail(Errno::ECONNRESET);
        }
    }

    /// Returns whether all that was posted is sent, or never will be.
    pub(super) fn is_sent(&self) -> bool {
        let is_gone = self.stream.as_ref().is_none_or(Stream::is_gone);
        is_gone || (self.free == self.outbox.len() && self.controls == 0)
    }
}

pub(super) fn remote(place: Place) -> Remote {
    Remote { stag: Stag(place.key), to: place.addr }
}
