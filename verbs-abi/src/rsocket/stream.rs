//! A connection: credits, the ring for what comes, and the ends of both directions.

use std::collections::VecDeque;

use super::{Hello, Mapping, Message, Place, Violation};

/// The state of a connection, with no memory of its own: the ring and the list of places are the
/// caller's, and are named by offsets.
///
/// The ring has two halves. A peer is told of one at a time, and of the next one when as many
/// octets have been read as a half has.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Messages sent with data, and the number up to which they may be.
    sent: u16,
    allowed: u16,
    /// The rest of the peer's place for data, and the index of the next one in our list.
    target: Place,
    next_target: usize,
    /// The peer's list of places, and the index of the next one to be written.
    list: Place,
    next_place: u32,
    /// The peer's table of mappings, `len` of them, and the number that ours has room for.
    table: Place,
    mappings: u16,
    is_peer_big_endian: bool,
    /// Updates that are not completed.
    updates: usize,
    ring: usize,
    /// Offsets of the next octets to be read, and of the next half that the peer is told of.
    read: usize,
    free: usize,
    /// Octets read, or never given, that the peer has not been told of.
    unused: usize,
    /// Octets that the peer may still write.
    given: usize,
    /// Messages that tell of octets in the ring, by what is left of them.
    messages: VecDeque<usize>,
    /// Messages read, or without data, and the number at which the peer is told of it.
    taken: u16,
    tell_at: u16,
    receives: u16,
    readable: bool,
    writable: bool,
    gone: bool,
}

/// A report to the peer of what has been read: a message, and a place that is written before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) message: Message,
    /// Offset and length in the ring of the new place, and where in the peer's memory it is told.
    pub(crate) place: Option<(usize, u32, Place)>,
}

impl Stream {
    /// Places in a list.
    pub(crate) const PLACES: usize = 2;
    /// Updates at a time that are not completed.
    pub(crate) const UPDATES: usize = 2;

    /// Begins with what the peer has told. The peer was told of the first half of the ring, and of
    /// a table with room for so many mappings.
    pub(crate) fn new(hello: &Hello, ring: usize, receives: u16, mappings: u16) -> Stream {
        let behind = u64::from(hello.list.len) * Place::LEN as u64;
        Stream {
            sent: 0,
            allowed: hello.credits,
            target: hello.data,
            next_target: 1,
            list: hello.list,
            next_place: 1 % hello.list.len,
            table: Place {
                addr: hello.list.addr.wrapping_add(behind),
                len: hello.mappings.into(),
                ..hello.list
            },
            mappings,
            is_peer_big_endian: hello.is_big_endian,
            updates: 0,
            ring,
            read: 0,
            free: ring / 2,
            unused: ring / 2,
            given: ring / 2,
            messages: VecDeque::new(),
            taken: 0,
            tell_at: receives / 2,
            receives,
            readable: true,
            writable: true,
            gone: false,
        }
    }

    pub(crate) fn is_peer_big_endian(&self) -> bool {
        self.is_peer_big_endian
    }

    /// Takes a message of the peer's. Data beyond what it was given are a violation; so is a
    /// message of none, which a program would take for the end of the stream.
    pub(crate) fn take(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Data(len) => {
                let len = len as usize;
                if len == 0 || len > self.given || self.messages.len() >= usize::from(self.receives) {
                    return Err(Violation);
                }
                self.given -= len;
                self.messages.push_back(len);
            }
            Message::Credits(number) => self.allowed = number,
            Message::Disconnect => self.end(),
            Message::Shutdown if !self.writable => self.end(),
            Message::Shutdown => self.readable = false,
            // Only a peer that was told of a table writes to it. The message has cost it a credit.
            Message::Map(number) if number >= self.mappings => return Err(Violation),
            Message::Map(_) => self.taken = self.taken.wrapping_add(1),
            Message::KeepAlive => {}
        }
        Ok(())
    }

    /// Notes that the connection is over, for either reason.
    pub(crate) fn end(&mut self) {
        (self.readable, self.writable, self.gone) = (false, false, true);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether there are octets to be read.
    pub(crate) fn has_data(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Returns the ranges of the ring, as offset and length, that hold the next octets, at most
    /// `most` of them.
    pub(crate) fn peek(&self, most: usize) -> [(usize, usize); 2] {
        let len = self.messages.iter().sum::<usize>().min(most);
        let first = len.min(self.ring - self.read);
        [(self.read, first), (0, len - first)]
    }

    /// Notes that so many octets have been read, as [`peek`](Self::peek) has shown them.
    pub(crate) fn consume(&mut self, len: usize) {
        let mut left = len;
        while let Some(first) = self.messages.front_mut().filter(|_| left > 0) {
            let part = left.min(*first);
            *first -= part;
            left -= part;
            if *first == 0 {
                self.messages.pop_front();
                self.taken = self.taken.wrapping_add(1);
            }
        }
        self.read = (self.read + len) % self.ring;
        self.unused += len;
    }

    /// Returns what the peer is to be told, if it is time.
    pub(crate) fn update(&mut self) -> Option<Update> {
        let half = self.ring / 2;
        let is_due = self.unused >= half || self.taken.wrapping_sub(self.tell_at) as i16 >= 0;
        if !is_due || self.updates >= Self::UPDATES || self.gone {
            return None;
        }
        self.updates += 1;
        self.tell_at = self.taken.wrapping_add(self.receives / 2);
        let message = Message::Credits(self.taken.wrapping_add(self.receives));
        let place = (self.unused >= half).then(|| {
            let at = Place {
                addr: self.list.addr.wrapping_add(u64::from(self.next_place) * Place::LEN as u64),
                ..self.list
            };
            let offset = self.free;
            self.next_place = (self.next_place + 1) % self.list.len;
            self.free = (self.free + half) % self.ring;
            self.unused -= half;
            self.given += half;
            (offset, half as u32, at)
        });
        Some(Update { message, place })
    }

    /// Notes that an update is completed.
    pub(crate) fn updated(&mut self) {
        self.updates = self.updates.saturating_sub(1);
    }

    /// Returns whether the peer has receives for a message with data.
    pub(crate) fn has_credit(&self) -> bool {
        self.sent != self.allowed
    }

    /// Returns the index in our list of the place that is needed next, if one is.
    pub(crate) fn wanted_place(&self) -> Option<usize> {
        (self.target.len == 0).then_some(self.next_target)
    }

    /// Takes the place that the peer has written to our list.
    pub(crate) fn set_target(&mut self, place: Place) {
        self.target = place;
        self.next_target = (self.next_target + 1) % Self::PLACES;
    }

    /// Returns how many octets the peer's place still has.
    pub(crate) fn room(&self) -> usize {
        self.target.len as usize
    }

    /// Notes that `len` octets are sent, no more than there is room for. Returns where they go.
    pub(crate) fn send(&mut self, len: usize) -> Place {
        let at = Place { len: len as u32, ..self.target };
        self.sent = self.sent.wrapping_add(1);
        self.target.addr = self.target.addr.wrapping_add(len as u64);
        self.target.len -= len as u32;
        at
    }

    /// Returns how many mappings the peer's table has room for.
    pub(crate) fn table_len(&self) -> u16 {
        self.table.len as u16
    }

    /// Notes that the peer is told of a mapping, which costs a credit. Returns where it goes.
    pub(crate) fn send_mapping(&mut self, number: u16) -> Place {
        self.sent = self.sent.wrapping_add(1);
        let at = usize::from(number) * Mapping::LEN;
        Place { addr: self.table.addr.wrapping_add(at as u64), ..self.table }
    }

    /// Ends directions of our own. Returns the message that tells the peer, if there is one.
    pub(crate) fn shut(&mut self, reading: bool, writing: bool) -> Option<Message> {
        let was_open = self.readable || self.writable;
        let was_writable = self.writable;
        self.readable &= !reading;
        self.writable &= !writing;
        if self.gone || !was_open {
            return None;
        }
        match (self.readable, self.writable) {
            (false, false) => Some(Message::Disconnect),
            (true, false) if was_writable => Some(Message::Shutdown),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        let place = |addr, len| Place { addr, key: 1, len };
        let (list, data) = (place(0x1000, 2), place(0, 100));
        let hello = Hello { is_big_endian: false, credits: 4, list, data, mappings: 3 };
        Stream::new(&hello, 200, 4, 2)
    }

    #[test]
    fn the_second_half_is_told_at_once_and_places_alternate() {
        let mut stream = stream();
        let update = stream.update().unwrap();
        assert_eq!(update.message, Message::Credits(4));
        assert_eq!(update.place.map(|(offset, len, at)| (offset, len, at.addr)), Some((100, 100, 0x1010)));
        assert_eq!(stream.update(), None);
        stream.take(Message::Data(100)).unwrap();
        stream.consume(100);
        let (offset, _, at) = stream.update().unwrap().place.unwrap();
        assert_eq!((offset, at.addr), (0, 0x1000));
    }

    #[test]
    fn octets_come_across_the_end_of_the_ring() {
        let mut stream = stream();
        let _ = stream.update();
        stream.take(Message::Data(150)).unwrap();
        stream.consume(150);
        let _ = stream.update();
        stream.take(Message::Data(80)).unwrap();
        assert_eq!(stream.peek(70), [(150, 50), (0, 20)]);
        stream.consume(70);
        assert_eq!(stream.peek(70), [(20, 10), (0, 0)]);
    }

    #[test]
    fn more_octets_than_were_given_are_a_violation() {
        let mut stream = stream();
        assert_eq!(stream.take(Message::Data(101)), Err(Violation));
        stream.take(Message::Data(100)).unwrap();
        assert_eq!(stream.take(Message::Data(1)), Err(Violation));
    }

    #[test]
    fn a_message_of_no_octets_is_a_violation() {
        assert_eq!(stream().take(Message::Data(0)), Err(Violation));
    }

    #[test]
    fn more_messages_than_credits_are_a_violation() {
        let mut stream = stream();
        (0..4).for_each(|_| stream.take(Message::Data(1)).unwrap());
        assert_eq!(stream.take(Message::Data(1)), Err(Violation));
    }

    #[test]
    fn credits_run_out_and_come_back() {
        let mut stream = stream();
        (0..4).for_each(|_| assert!(stream.has_credit() && stream.send(25).len == 25));
        assert!(!stream.has_credit() && stream.wanted_place() == Some(1));
        stream.take(Message::Credits(6)).unwrap();
        stream.set_target(Place { addr: 9, key: 2, len: 5 });
        assert!(stream.has_credit() && stream.room() == 5 && stream.send(5).addr == 9);
        assert_eq!(stream.wanted_place(), Some(0));
    }

    /// The table of mappings stands behind the list of places.
    #[test]
    fn mappings_cost_credits_and_stay_in_their_tables() {
        let mut stream = stream();
        assert_eq!((stream.table_len(), stream.send_mapping(2).addr), (3, 0x1000 + 2 * 16 + 2 * 24));
        (0..3).for_each(|_| assert!(stream.has_credit() && stream.send(1).len == 1));
        assert!(!stream.has_credit());
        assert_eq!(stream.take(Message::Map(2)), Err(Violation));
        let _ = stream.update();
        (0..2).for_each(|number| stream.take(Message::Map(number)).unwrap());
        assert_eq!(stream.update().unwrap().message, Message::Credits(6));
    }

    #[test]
    fn directions_end_one_by_one() {
        let mut stream = stream();
        assert_eq!(stream.shut(false, true), Some(Message::Shutdown));
        assert_eq!(stream.shut(false, true), None);
        stream.take(Message::Shutdown).unwrap();
        assert!(stream.is_gone() && stream.shut(true, true).is_none());
    }
}
