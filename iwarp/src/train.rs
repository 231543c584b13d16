//! One FPDU into a train, and what TCP took of it (RFC 5044 §4, §5.1).
//!
//! A train is the contents of one write: whole FPDUs, each of octets of its own (length
//! field, header, pad, CRC; short payloads, too) and of payload where it lies. A [`Gather`]
//! stores both and knows how they reach TCP; it may be a vector, or arrays on the stack of a
//! call that must not allocate.
//!
//! FPDUs that TCP did not begin to take are dropped and built anew. One that it did begin must be
//! completed: its rest is **owed**, and copied out at once, since it must not depend on memory that
//! may be deregistered. For each FPDU the sender notes in a [`Record`] the state from which it
//! would go on behind that FPDU, and [`taken`] tells which of these counts.

use std::ops::Range;

use rddp_ddp::Header;
use rddp_mpa::{Framer, LENGTH_LEN, crc32c, fpdu_len};

/// The place where a train is gathered.
pub trait Gather {
    /// A position in the train.
    type Mark: Copy;

    /// Returns the position that the train has reached, for [`cut_back`](Self::cut_back).
    fn mark(&self) -> Self::Mark;

    /// Removes everything behind `mark`.
    fn cut_back(&mut self, mark: Self::Mark);

    /// Appends `len` octets of the train's own, filled in by `write`, which may find any contents
    /// there. Returns the result of `write`; `None`, without calling it, if there is no room.
    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R>;
}

/// A vector grows with each FPDU, and always has room.
impl Gather for Vec<u8> {
    type Mark = usize;

    fn mark(&self) -> usize {
        self.len()
    }

    fn cut_back(&mut self, mark: usize) {
        self.truncate(mark);
    }

    fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let from = self.len();
        self.resize(from + len, 0);
        Some(write(&mut self[from..]))
    }
}

/// Adds an FPDU whose payload is copied next to its header. `fill(offset, dst)` writes pieces of
/// it, in order. Returns whether there was room; if not, the train and `framer` are as before.
///
/// # Errors
/// Octets of the payload cannot be had. The train and `framer` are as before.
///
/// # Panics
/// The header and the payload are longer than a ULPDU may be, 65,535 octets.
#[inline]
pub fn push_copied<G: Gather, E>(
    train: &mut G,
    framer: &mut Framer,
    header: &Header,
    payload_len: usize,
    mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let (mark, before) = (train.mark(), framer.clone());
    let write = |out: &mut [u8]| {
        let mut filled = Ok(());
        let fill = |offset: usize, dst: &mut [u8]| {
            if filled.is_ok() {
                filled = fill(offset, dst);
            }
        };
        framer.emit_into(&header.octets(), payload_len, fill, out);
        filled
    };
    let len = before.fpdu_len(header.len() + payload_len);
    match train.own(len, write) {
        Some(Ok(())) => Ok(true),
        Some(Err(error)) => {
            train.cut_back(mark);
            *framer = before;
            Err(error)
        }
        None => Ok(false),
    }
}

/// Adds an FPDU whose payload is sent from where it lies. `lend(train, crc)` appends its pieces and
/// returns `crc` continued over their octets, or `None` if there is no room for them; with CRCs off
/// the value does not matter. Without markers only. Returns whether there was room; if not, the
/// train and `framer` are as before.
///
/// # Errors
/// Octets of the payload cannot be had. The train and `framer` are as before.
///
/// # Panics
/// If the ULPDU has more than 65535 octets, which its length field cannot say.
#[inline]
pub fn push_gathered<G: Gather, E>(
    train: &mut G,
    framer: &mut Framer,
    header: &Header,
    payload_len: usize,
    lend: impl FnOnce(&mut G, u32) -> Result<Option<u32>, E>,
) -> Result<bool, E> {
    let mark = train.mark();
    let pushed = gather(train, framer, header, payload_len, lend);
    if !matches!(pushed, Ok(true)) {
        train.cut_back(mark);
    }
    pushed
}

/// Does what [`push_gathered`] does, but may leave pieces of an FPDU that was not completed.
#[inline]
fn gather<G: Gather, E>(
    train: &mut G,
    framer: &mut Framer,
    header: &Header,
    payload_len: usize,
    lend: impl FnOnce(&mut G, u32) -> Result<Option<u32>, E>,
) -> Result<bool, E> {
    let ulpdu_len = header.len() + payload_len;
    let length = u16::try_from(ulpdu_len).expect("a ULPDU has at most 65535 octets").to_be_bytes();
    let with_crc = framer.framing().crc;
    let begin = |out: &mut [u8]| {
        let (front, behind) = out.split_at_mut(LENGTH_LEN);
        front.copy_from_slice(&length);
        behind.copy_from_slice(&header.octets());
        if with_crc { crc32c(out) } else { 0 }
    };
    let Some(crc) = train.own(LENGTH_LEN + header.len(), begin) else { return Ok(false) };
    let Some(crc) = lend(train, crc)? else { return Ok(false) };
    let mut after = framer.clone();
    let trailer = after.trailer(ulpdu_len, crc);
    let len = fpdu_len(ulpdu_len) - LENGTH_LEN - ulpdu_len;
    if train.own(len, |out| out.copy_from_slice(trailer.as_ref())).is_none() {
        return Ok(false);
    }
    *framer = after;
    Ok(true)
}

/// The end of an FPDU in a train, and the state from which its sender goes on behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record<S> {
    /// Octets of the train up to the FPDU's end.
    pub end: usize,
    /// The sender's state there.
    pub after: S,
}

/// The part of a train that TCP took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<'r, S> {
    /// Record of the last FPDU that TCP took whole.
    pub whole: Option<&'r Record<S>>,
    /// Record of the FPDU that it has begun to take.
    pub begun: Option<&'r Record<S>>,
    /// FPDUs taken or begun.
    pub fpdus: usize,
    octets: usize,
}

impl<'r, S> Taken<'r, S> {
    /// Returns the record from which the sender goes on; `None` if it goes on from where it was.
    #[inline]
    #[must_use]
    pub fn last(&self) -> Option<&'r Record<S>> {
        self.begun.or(self.whole)
    }

    /// Returns the number of octets of the train up to the end of the last FPDU that TCP has taken
    /// or begun.
    #[inline]
    #[must_use]
    pub fn end(&self) -> usize {
        self.last().map_or(0, |record| record.end)
    }

    /// Returns the range of the train that is owed: the rest of the FPDU that TCP has begun.
    #[inline]
    #[must_use]
    pub fn owed(&self) -> Range<usize> {
        self.begun.map_or(0..0, |record| self.octets..record.end)
    }
}

/// Returns which FPDUs of a train TCP took or began, given that it took `octets`.
#[inline]
#[must_use]
pub fn taken<S>(records: &[Record<S>], octets: usize) -> Taken<'_, S> {
    let count = records.partition_point(|record| record.end <= octets);
    let whole = count.checked_sub(1).map(|last| &records[last]);
    let begun = records.get(count).filter(|_| octets > whole.map_or(0, |record| record.end));
    Taken { whole, begun, fpdus: count + usize::from(begun.is_some()), octets }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rddp_ddp::{Msn, Stag};
    use rddp_mpa::{Deframer, Framing, Step, crc32c_append};
    use rddp_rdmap::{Opcode, untagged_header};

    use super::*;

    /// Arrays of fixed size, as a caller that must not allocate has them.
    struct Fixed {
        arena: [u8; 256],
        used: usize,
        /// Octets, of the arena or the payload.
        pieces: [(bool, usize, usize); 6],
        count: usize,
    }

    impl Fixed {
        fn new() -> Self {
            Self { arena: [0xee; 256], used: 0, pieces: [(false, 0, 0); 6], count: 0 }
        }

        fn add(&mut self, piece: (bool, usize, usize)) -> bool {
            let room = self.count < self.pieces.len();
            if room {
                self.pieces[self.count] = piece;
                self.count += 1;
            }
            room
        }

        fn octets(&self, payload: &[u8]) -> Vec<u8> {
            let pieces = self.pieces[..self.count].iter();
            pieces
                .flat_map(|&(own, from, to)| {
                    if own { &self.arena[from..to] } else { &payload[from..to] }.to_vec()
                })
                .collect()
        }
    }

    impl Gather for Fixed {
        type Mark = (usize, usize);

        fn mark(&self) -> Self::Mark {
            (self.used, self.count)
        }

        fn cut_back(&mut self, (used, count): Self::Mark) {
            (self.used, self.count) = (used, count);
        }

        fn own<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
            let (from, to) = (self.used, self.used + len);
            if to > self.arena.len() || !self.add((true, from, to)) {
                return None;
            }
            self.used = to;
            Some(write(&mut self.arena[from..to]))
        }
    }

    const FRAMING: Framing = Framing { crc: true, markers: false };

    fn send(mo: u32) -> Header {
        untagged_header(Opcode::Send, Stag(0), Msn(1), mo, false)
    }

    fn copied(train: &mut Fixed, framer: &mut Framer, payload: &[u8]) -> Result<bool, ()> {
        push_copied(train, framer, &send(0), payload.len(), |at, dst| {
            dst.copy_from_slice(&payload[at..at + dst.len()]);
            Ok(())
        })
    }

    /// Lends the payload in pieces of `piece` octets.
    fn gathered(train: &mut Fixed, framer: &mut Framer, payload: &[u8], piece: usize) -> Result<bool, ()> {
        push_gathered(train, framer, &send(0), payload.len(), |train, mut crc| {
            let mut at = 0;
            while at < payload.len() {
                let to = payload.len().min(at + piece);
                if !train.add((false, at, to)) {
                    return Ok(None);
                }
                crc = crc32c_append(crc, &payload[at..to]);
                at = to;
            }
            Ok(Some(crc))
        })
    }

    fn state(train: &Fixed, framer: &Framer) -> (usize, usize, u64) {
        (train.used, train.count, framer.position())
    }

    #[test]
    fn a_payload_where_it_lies_makes_the_octets_of_a_copied_one() {
        // RFC 5044 §4.4
        for crc in [false, true] {
            let framing = Framing { crc, markers: false };
            for len in [1, 2, 3, 4, 100] {
                let payload: Vec<u8> = (1..=len).collect();
                let (mut one, mut other) = (Fixed::new(), Fixed::new());
                let (mut first, mut second) = (Framer::new(framing), Framer::new(framing));
                assert_eq!(copied(&mut one, &mut first, &payload), Ok(true));
                assert_eq!(gathered(&mut other, &mut second, &payload, 40), Ok(true));
                assert_eq!(one.octets(&[]), other.octets(&payload));
                assert_eq!(first.position(), second.position());
            }
        }
    }

    #[test]
    fn marked_fpdus_are_copied() {
        // RFC 5044 §4.3
        let framing = Framing { markers: true, crc: true };
        let (mut train, mut framer) = (Fixed::new(), Framer::at(framing, 400));
        assert_eq!(copied(&mut train, &mut framer, &[5; 150]), Ok(true));
        let mut octets = train.octets(&[]);
        let step = Deframer::at(framing, 400).step(&mut octets);
        assert!(matches!(step, Ok(Step::Fpdu { used, .. }) if used as u64 == framer.position() - 400));
    }

    #[test]
    fn a_train_without_room_stays_as_it_is() {
        let (mut train, mut framer) = (Fixed::new(), Framer::new(FRAMING));
        assert_eq!(copied(&mut train, &mut framer, &[1; 180]), Ok(true));
        let before = state(&train, &framer);
        assert_eq!(copied(&mut train, &mut framer, &[1; 180]), Ok(false), "no room in the arena");
        assert_eq!(gathered(&mut train, &mut framer, &[1; 50], 10), Ok(false), "nor for so many pieces");
        assert_eq!(gathered(&mut train, &mut framer, &[1; 40], 10), Ok(false), "nor for the trailer");
        assert_eq!(state(&train, &framer), before);
        assert_eq!(gathered(&mut train, &mut framer, &[1; 30], 10), Ok(true));
        assert_eq!(train.octets(&[1; 30]).len() as u64, framer.position());
    }

    #[test]
    fn payload_that_cannot_be_had_leaves_the_train_as_it_is() {
        for markers in [false, true] {
            let (mut train, mut framer) = (Fixed::new(), Framer::new(Framing { markers, crc: true }));
            assert_eq!(copied(&mut train, &mut framer, b"good"), Ok(true));
            let before = state(&train, &framer);
            let mut calls = 0;
            let gone = push_copied(&mut train, &mut framer, &send(0), 20, |_, _| {
                calls += 1;
                Err("gone")
            });
            assert_eq!((gone, calls, state(&train, &framer)), (Err("gone"), 1, before));
        }
        let (mut train, mut framer) = (Fixed::new(), Framer::new(FRAMING));
        let before = state(&train, &framer);
        let gone = push_gathered(&mut train, &mut framer, &send(0), 20, |train, _| {
            train.add((false, 0, 10));
            Err("gone")
        });
        assert_eq!((gone, state(&train, &framer)), (Err("gone"), before));
    }

    #[test]
    fn a_vector_is_a_train_with_room_for_all() {
        let (mut train, mut framer) = (Vec::new(), Framer::new(FRAMING));
        let mut push = |payload: Result<u8, &'static str>, len| {
            let pushed = push_copied(&mut train, &mut framer, &send(0), len, |_, dst| {
                dst.fill(payload?);
                Ok(())
            });
            (pushed, train.clone(), framer.position())
        };
        let (_, first, _) = push(Ok(1), 70);
        assert_eq!(push(Err("gone"), 70), (Err("gone"), first.clone(), 96));
        let (pushed, both, position) = push(Ok(2), 60_000);
        assert_eq!((pushed, &both[..96], both.len() as u64), (Ok(true), &first[..], position));
        assert!(both[116..60_116].iter().all(|octet| *octet == 2));
    }

    #[test]
    fn what_tcp_took_decides_where_the_sender_goes_on() {
        let records = [100, 150, 300].map(|end| Record { end, after: end / 10 });
        let of = |octets| {
            let taken = taken(&records, octets);
            (taken.last().map(|record| record.after), taken.fpdus, taken.end(), taken.owed())
        };
        assert_eq!(of(0), (None, 0, 0, 0..0));
        assert_eq!(of(1), (Some(10), 1, 100, 1..100));
        assert_eq!(of(100), (Some(10), 1, 100, 0..0));
        assert_eq!(of(149), (Some(15), 2, 150, 149..150));
        assert_eq!(of(150), (Some(15), 2, 150, 0..0));
        assert_eq!(of(299), (Some(30), 3, 300, 299..300));
        assert_eq!(of(300), (Some(30), 3, 300, 0..0));
        assert_eq!(taken(&records, 151).whole, Some(&records[1]));
        assert_eq!(taken::<()>(&[], 0).last(), None);
    }

    proptest! {
        #[test]
        fn what_is_taken_and_what_is_owed_are_whole_fpdus(
            lens in prop::collection::vec(1..500_usize, 1..20),
            at: usize,
        ) {
            let mut end = 0;
            let records: Vec<_> = lens.iter().map(|len| { end += len; Record { end, after: () } }).collect();
            let octets = at % (end + 1);
            let taken = taken(&records, octets);
            prop_assert_eq!(octets + taken.owed().len(), taken.end());
            prop_assert_eq!(taken.fpdus, records.iter().filter(|record| record.end <= taken.end()).count());
            prop_assert!(taken.owed().len() < lens.iter().copied().max().unwrap());
        }
    }
}
