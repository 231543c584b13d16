//! Actions of an end, each done if it can be at this moment.

use rddp_sdp::machine::{Abort, Half, SourceState};
use rddp_sdp::wire::Mode;

use crate::world::{Item, Offer, Piece, Span, World, base};

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Action {
    /// The next item arrives.
    Deliver,
    /// The next control message goes.
    Control,
    /// The program sends by copy.
    Send {
        len: u32,
        urgent: bool,
    },
    /// The program sends by an advert, `inline` octets of it at once where the mode has that.
    Offer {
        len: u32,
        inline: u32,
    },
    /// The program's octets are written into the peer's advert.
    Write {
        len: u32,
    },
    /// The octets written are reported.
    Complete,
    /// Octets of an advert that came back go again, written where there is room for that.
    Resend {
        len: u32,
        write: bool,
    },
    /// The program receives.
    Recv {
        len: u32,
    },
    /// A Read of the peer's advert begins.
    Read {
        len: u32,
    },
    /// The peer's Read is served.
    Serve,
    Refuse,
    /// The program receives into an advert.
    Advertise {
        len: u32,
    },
    CancelSources,
    CancelSinks,
    /// Calls that send are interrupted: copies take the place of their memory.
    Spill,
    /// The program sends, and its octets are copied behind adverts whose calls have returned.
    Queue {
        len: u32,
    },
    /// The newest such call, whose advert came back, returns short.
    GiveUp,
    /// Calls that receive are interrupted: a room takes the place of their memory.
    Withdraw,
    Mode {
        half: Half,
        to: Mode,
    },
    Announce,
    Resize {
        by: u32,
    },
    AnswerResize {
        by: u32,
    },
    WaitForCredits,
    /// Places of adverts that are over are released.
    Release,
    Close,
    Abort,
}

const NOTHING: Span = Span { start: 0, len: 0 };

impl World {
    /// Does it, and returns whether it could be done.
    pub(crate) fn act(&mut self, at: usize, action: Action) -> bool {
        match action {
            Action::Deliver => self.deliver(at),
            Action::Control => self.control(at),
            Action::Send { len, urgent } => self.copy(at, len, urgent),
            Action::Offer { len, inline } => self.offer(at, len, inline),
            Action::Write { len } => self.write(at, len),
            Action::Complete => self.complete(at),
            Action::Resend { len, write } => self.resend(at, len, write),
            Action::Recv { len } => self.ends[at].recv(len),
            Action::Read { len } => self.read(at, len),
            Action::Serve => self.serve(at),
            Action::Refuse => self.ends[at].machine().refuse_source().is_ok(),
            Action::Advertise { len } => self.advertise(at, len),
            Action::CancelSources => self.ends[at].machine().cancel_sources().is_ok(),
            Action::CancelSinks => self.ends[at].machine().cancel_sinks().is_ok(),
            Action::Spill => self.spill(at),
            Action::Queue { len } => self.queue(at, len),
            Action::GiveUp => self.give_up(at),
            Action::Withdraw => self.withdraw(at),
            Action::Mode { half, to } => self.mode(at, half, to),
            Action::Announce => {
                self.ends[at].machine().announce_urgent();
                true
            }
            Action::Resize { by } => {
                let size = self.ends[at].core.peer_buf_size() + by;
                self.ends[at].machine().request_buffer_size(size).is_ok()
            }
            Action::AnswerResize { by } => self.answer_resize(at, by),
            Action::WaitForCredits => {
                self.ends[at].machine().wait_for_credits();
                true
            }
            Action::Release => self.release(at),
            Action::Close => self.close(at),
            Action::Abort => self.abort(at),
        }
    }

    fn control(&mut self, at: usize) -> bool {
        let front = self.ends[at].machine().next_control();
        front.is_some_and(|front| {
            self.send(at, &front, NOTHING);
            true
        })
    }

    fn copy(&mut self, at: usize, len: u32, urgent: bool) -> bool {
        let end = &mut self.ends[at];
        let Ok(room) = end.machine().data_room() else { return false };
        let len = if urgent { 1 } else { len.min(room as u32) };
        let front = end.machine().data(len as usize, urgent).unwrap();
        let span = Span { start: end.next, len };
        end.next += u64::from(len);
        if urgent {
            end.urgent.push_back(end.next - 1);
        }
        self.send(at, &front, span);
        true
    }

    fn offer(&mut self, at: usize, len: u32, inline: u32) -> bool {
        let end = &mut self.ends[at];
        let Ok(room) = end.machine().source_room() else { return false };
        let inline = inline.min(room as u32).min(len - 1);
        if room > 0 && inline == 0 {
            return false;
        }
        let stag = end.stags;
        let (id, front) = end.machine().advertise_source(len, inline as usize, stag, base(stag)).unwrap();
        let span = Span { start: end.next, len };
        end.stags += 1;
        end.next += u64::from(len);
        end.offers.push(Offer { id, stag, span, in_call: true });
        self.send(at, &front, Span { len: inline, ..span });
        true
    }

    fn write(&mut self, at: usize, len: u32) -> bool {
        let end = &mut self.ends[at];
        let Some(room) = end.machine().peer_sink() else { return false };
        let span = Span { start: end.next, len: len.min(room.left) };
        if end.machine().written(span.len).is_err() {
            return false;
        }
        end.next += u64::from(span.len);
        self.wires[at].push_back(Item::Write { stag: room.stag, to: room.to, span });
        true
    }

    fn complete(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let before = end.tables;
        end.machine().complete_peer_sink();
        end.tables != before
    }

    fn resend(&mut self, at: usize, len: u32, write: bool) -> bool {
        let end = &mut self.ends[at];
        let Some(id) = end.machine().returned() else { return false };
        let source = end.machine().source(id);
        let offer = end.offers.iter().find(|offer| offer.id == id).expect("its memory is gone");
        let len = len.min(source.len - source.done);
        let start = offer.span.start + u64::from(source.done);
        if write {
            let Some(room) = end.machine().peer_sink() else { return false };
            let span = Span { start, len: len.min(room.left) };
            end.machine().resend_written(id, span.len).unwrap();
            self.wires[at].push_back(Item::Write { stag: room.stag, to: room.to, span });
            return true;
        }
        let Ok(room) = end.machine().resend_room() else { return false };
        let span = Span { start, len: len.min(room as u32) };
        let front = end.machine().resend(id, span.len as usize).unwrap();
        self.send(at, &front, span);
        true
    }

    fn read(&mut self, at: usize, len: u32) -> bool {
        let end = &mut self.ends[at];
        let Some(source) = end.machine().next_read() else { return false };
        let len = len.min(source.left);
        end.machine().reading(len).unwrap();
        end.rooms.push_back(Piece::Reading { len });
        self.wires[at].push_back(Item::ReadRequest { stag: source.stag, to: source.to, len });
        true
    }

    fn advertise(&mut self, at: usize, len: u32) -> bool {
        let end = &mut self.ends[at];
        let len = end.machine().shortest_sink() + len;
        let stag = end.stags;
        let Ok((id, front)) = end.machine().advertise_sink(len, stag, base(stag)) else { return false };
        end.stags += 1;
        let piece = Piece::Sink { id, stag, len, first: 0, filled: 0, taken: 0, in_call: true };
        end.rooms.push_back(piece);
        self.send(at, &front, NOTHING);
        true
    }

    fn spill(&mut self, at: usize) -> bool {
        let offers = self.ends[at].offers.iter_mut().filter(|offer| offer.in_call);
        offers.map(|offer| offer.in_call = false).count() > 0
    }

    fn queue(&mut self, at: usize, len: u32) -> bool {
        let end = &mut self.ends[at];
        if end.offers.iter().any(|offer| offer.in_call) {
            return false;
        }
        let Ok(id) = end.machine().queue_behind(len) else { return false };
        let span = Span { start: end.next, len };
        end.next += u64::from(len);
        match end.offers.iter_mut().find(|offer| offer.id == id) {
            Some(offer) => offer.span.len += len,
            None => end.offers.push(Offer { id, stag: 0, span, in_call: false }),
        }
        true
    }

    fn give_up(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(Offer { id, span, in_call: true, .. }) = end.offers.last().cloned() else { return false };
        let source = end.machine().source(id);
        if source.state != SourceState::Returned || end.next != span.start + u64::from(span.len) {
            return false;
        }
        end.next = span.start + u64::from(source.done);
        end.machine().release_source(id).unwrap();
        end.offers.pop();
        true
    }

    fn withdraw(&mut self, at: usize) -> bool {
        let mut any = false;
        for piece in &mut self.ends[at].rooms {
            if let Piece::Sink { in_call, .. } = piece {
                any |= std::mem::replace(in_call, false);
            }
        }
        any
    }

    fn mode(&mut self, at: usize, half: Half, to: Mode) -> bool {
        let front = self.ends[at].machine().change_mode(half, to);
        front.is_ok_and(|front| {
            self.send(at, &front, NOTHING);
            true
        })
    }

    fn answer_resize(&mut self, at: usize, by: u32) -> bool {
        let end = &mut self.ends[at];
        if end.wanted_size.take().is_none() {
            return false;
        }
        // SinkAvails hold what a buffer does; a larger buffer waits until none is out.
        let free = end.machine().oldest_sink().is_none();
        let size = end.core.buf_size() + by;
        end.machine().answer_buffer_size(free.then_some(size));
        true
    }

    fn release(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let over: Vec<_> = end.offers.iter().map(|offer| offer.id).collect();
        let mut any = false;
        for id in over {
            if end.machine().source(id).state == SourceState::Done {
                end.machine().release_source(id).unwrap();
                end.offers.retain(|offer| offer.id != id);
                any = true;
            }
        }
        any
    }

    fn close(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        end.machine().close_sending();
        !std::mem::replace(&mut end.closed, true)
    }

    fn abort(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        if end.machine().abort() == Abort::Message {
            // Whatever waits for credits may keep it from going; then the transport goes down.
            self.control(at);
        }
        true
    }
}
