//! Trains of FPDUs with octets of a program.

use rddp_ddp::{Header, Msn, Stag, UntaggedRepr, cut};
use rddp_iwarp::{Gather, Record, push_copied, push_gathered};
use rddp_mpa::{Framer, crc32c_append};
use rddp_rdmap::{Opcode, untagged_header};

/// Octets of a program, front to back, for trains of the kind `G`.
///
/// ```
/// use rddp_iwarp::Gather;
/// use rddp_octets::Payload;
///
/// /// So many times the same octet.
/// #[derive(Clone)]
/// struct Same(u8, usize);
///
/// impl<G: Gather> Payload<G> for Same {
///     type Error = std::convert::Infallible;
///
///     fn left(&self) -> usize {
///         self.1
///     }
///
///     fn copy(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
///         out.fill(self.0);
///         self.1 -= out.len();
///         Ok(())
///     }
/// }
/// ```
pub trait Payload<G: Gather>: Clone {
    /// Reason why octets cannot be had.
    type Error;

    /// Returns how many octets are left.
    fn left(&self) -> usize;

    /// Copies the next octets to `out`, which they fill.
    ///
    /// # Errors
    /// Some of them cannot be had.
    fn copy(&mut self, out: &mut [u8]) -> Result<(), Self::Error>;

    /// Returns whether the next `count` octets are copied next to their header, and not
    /// [lent](Self::lend).
    #[inline(always)]
    fn copies(&self, _train: &G, _count: usize) -> bool {
        true
    }

    /// Adds the next `count` octets to the train where they lie, and continues `crc` over them if
    /// there is one. `false`: there is no room for so many pieces.
    ///
    /// # Errors
    /// Some of them cannot be had.
    #[inline(always)]
    fn lend(&mut self, _train: &mut G, _count: usize, _crc: Option<&mut u32>) -> Result<bool, Self::Error> {
        Ok(false)
    }
}

/// A slice shrinks to what is left of it.
impl<G: Gather> Payload<G> for &[u8] {
    type Error = std::convert::Infallible;

    #[inline]
    fn left(&self) -> usize {
        self.len()
    }

    #[inline]
    fn copy(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
        let (now, later) = self.split_at(out.len());
        out.copy_from_slice(now);
        *self = later;
        Ok(())
    }
}

/// Limits of a train's messages.
/// ```
/// use rddp_mpa::mulpdu;
/// use rddp_octets::{Limits, Outgoing, Record};
///
/// // FPDUs that fit Ethernet's segments, and as few Sends as there can be.
/// let limits = Limits { mulpdu: mulpdu(1448, false), max_send: u32::MAX };
/// let (mut train, mut records) = (Vec::new(), [Record::default(); 4]);
/// let mut load = Outgoing::FIRST.load(1 << 16, &mut records);
/// load.write(&mut train, limits, &mut &[7; 3000][..], None)?;
/// let ends: Vec<_> = load.records().iter().map(|record| record.end).collect();
/// assert_eq!(ends, [1448, 2896, 3072]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of the longest ULPDU, as [`rddp_mpa::mulpdu`] returns them: never more than
    /// [`rddp_mpa::MAX_ULPDU`].
    pub mulpdu: usize,
    /// Octets of the longest Send.
    pub max_send: u32,
}

/// The Send that is being cut into segments.
/// ```
/// use rddp_octets::{Limits, Outgoing, Record};
///
/// let (limits, octets) = (Limits { mulpdu: 118, max_send: 1 << 20 }, [7; 1000]);
/// let (mut outgoing, mut train) = (Outgoing::FIRST, Vec::new());
/// let mut records = [Record::default(); 2];
/// let mut load = outgoing.load(1 << 16, &mut records);
/// load.write(&mut train, limits, &mut &octets[..], None)?;
/// // TCP takes both FPDUs, and the program's next octets may never come: the Send ends early.
/// let after = outgoing.took(load.records(), train.len()).last().unwrap().after;
/// let message = after.message.expect("it is open");
/// assert_eq!((after.payload, message.left()), (200, 800));
/// let mut last = [0; 32];
/// assert_eq!((outgoing.end(message, b"", &mut last), outgoing.msn), (Some(24), 2));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(crate) msn: Msn,
    pub(crate) mo: u32,
    pub(crate) total: u32,
}

/// The state behind an FPDU of a train.
/// ```
/// use rddp_octets::{Outgoing, Record};
///
/// let (mut train, mut records) = (Vec::new(), [Record::default(); 2]);
/// let mut load = Outgoing::FIRST.load(1 << 16, &mut records);
/// load.send(&mut train, b"a header", &mut &b"octets"[..], 6)?;
/// let [Record { end, after }] = load.records() else { panic!("one FPDU") };
/// assert_eq!((*end, after.payload, after.message), (train.len(), 6, None));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// The program's octets in the train up to there.
    pub payload: usize,
    pub(crate) octets: u64,
    pub(crate) msn: Msn,
    /// The Send that is open.
    pub message: Option<Message>,
}

impl Message {
    pub(crate) fn header(&self, last: bool) -> Header {
        untagged_header(Opcode::Send, Stag(0), self.msn, self.mo, last)
    }

    /// Returns the octets of the message that are not sent yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.total.saturating_sub(self.mo) as usize
    }
}

/// A train that is being filled, and the state behind each of its FPDUs: see
/// [`Outgoing::load`](crate::Outgoing::load).
/// ```
/// use rddp_octets::{Outgoing, Record};
///
/// let (mut train, mut records) = (Vec::new(), [Record::default(); 2]);
/// let mut load = Outgoing::FIRST.load(1 << 16, &mut records);
/// for part in [&b"one"[..], b"two", b"three"] {
///     if load.has_room() {
///         load.send(&mut train, b"", &mut { part }, part.len())?;
///     }
/// }
/// assert!(!load.has_room(), "there are two records");
/// assert_eq!(load.records()[1].end, train.len());
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[derive(Debug)]
pub struct Load<'r> {
    framer: Framer,
    /// Position of the train's first octet.
    from: u64,
    /// Octets at which it is full.
    most: usize,
    msn: Msn,
    /// Octets of the program so far.
    payload: usize,
    records: &'r mut [Record<After>],
    count: usize,
}

impl<'r> Load<'r> {
    #[inline(always)]
    pub(crate) fn new(framer: Framer, msn: Msn, most: usize, records: &'r mut [Record<After>]) -> Self {
        let from = framer.position();
        Self { framer, from, most, msn, payload: 0, records, count: 0 }
    }

    /// Returns the octets of the train so far.
    #[inline(always)]
    fn len(&self) -> usize {
        self.framer.position().wrapping_sub(self.from) as usize
    }

    /// Returns whether there is room for another FPDU: a train may be longer than its limit by
    /// one.
    #[inline(always)]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.count < self.records.len() && self.len() < self.most
    }

    /// Returns the records of the train's FPDUs.
    #[inline(always)]
    #[must_use]
    pub fn records(self) -> &'r [Record<After>] {
        &self.records[..self.count]
    }

    /// Adds octets as Sends, as many as there is room for. `open` is the Send that goes on with the
    /// first of them.
    ///
    /// # Errors
    /// Octets cannot be had: the train must not be sent.
    ///
    /// # Panics
    /// If the longest ULPDU has no room for a header and an octet, or the octets make one of more
    /// than 65535.
    #[inline(always)]
    pub fn write<G: Gather, P: Payload<G>>(
        &mut self,
        train: &mut G,
        limits: Limits,
        octets: &mut P,
        mut open: Option<Message>,
    ) -> Result<(), P::Error> {
        while octets.left() > 0 && self.has_room() {
            let (msn, left) = (self.msn, octets.left());
            let mut message = open.unwrap_or_else(|| Message { msn, mo: 0, total: send_len(left, limits) });
            message.total = message.total.min(message.mo.saturating_add(left.try_into().unwrap_or(u32::MAX)));
            let cut = cut(message.total.into(), message.mo.into(), limits.mulpdu, UntaggedRepr::LEN);
            let header = message.header(cut.last);
            message.mo += cut.len as u32;
            open = (!cut.last).then_some(message);
            let next = if cut.last { msn.next() } else { msn };
            if !self.add(train, &header, &[], octets, cut.len, (next, open))? {
                break;
            }
        }
        Ok(())
    }

    /// Adds a Send of one FPDU, with the octets of `front`, a copy, and the next `count` of the
    /// program. The caller keeps the limit of [`MAX_ULPDU`](rddp_mpa::MAX_ULPDU) and asks whether
    /// it [has room](Self::has_room). `false`, and nothing has changed: the train is full.
    ///
    /// # Errors
    /// Octets cannot be had: the train must not be sent.
    ///
    /// # Panics
    /// If all records are used, the program has fewer octets, or the ULPDU has more than 65535.
    #[inline(always)]
    pub fn send<G: Gather, P: Payload<G>>(
        &mut self,
        train: &mut G,
        front: &[u8],
        octets: &mut P,
        count: usize,
    ) -> Result<bool, P::Error> {
        let header = untagged_header(Opcode::Send, Stag(0), self.msn, 0, true);
        self.add(train, &header, front, octets, count, (self.msn.next(), None))
    }

    /// Adds a segment of a tagged message, in the same way.
    ///
    /// # Errors
    /// Octets cannot be had: the train must not be sent.
    ///
    /// # Panics
    /// As [`send`](Self::send) does.
    #[inline(always)]
    pub fn tagged<G: Gather, P: Payload<G>>(
        &mut self,
        train: &mut G,
        header: &Header,
        octets: &mut P,
        count: usize,
    ) -> Result<bool, P::Error> {
        self.add(train, header, &[], octets, count, (self.msn, None))
    }

    /// Adds an FPDU, and notes the state behind it: the MSN of the next Send, and the one that is
    /// open.
    #[inline(always)]
    fn add<G: Gather, P: Payload<G>>(
        &mut self,
        train: &mut G,
        header: &Header,
        front: &[u8],
        octets: &mut P,
        count: usize,
        (msn, message): (Msn, Option<Message>),
    ) -> Result<bool, P::Error> {
        if !push(train, &mut self.framer, header, front, octets, count)? {
            return Ok(false);
        }
        (self.msn, self.payload) = (msn, self.payload + count);
        let after = After { payload: self.payload, octets: self.framer.position(), msn, message };
        self.records[self.count] = Record { end: self.len(), after };
        self.count += 1;
        Ok(true)
    }
}

/// Adds an FPDU with the octets of `front`, a copy, and the next `count` octets of `payload`, which
/// moves on. `false`, and nothing has changed: there is no room.
#[inline(always)]
fn push<G: Gather, P: Payload<G>>(
    train: &mut G,
    framer: &mut Framer,
    header: &Header,
    front: &[u8],
    payload: &mut P,
    count: usize,
) -> Result<bool, P::Error> {
    let (framing, mut ahead) = (framer.framing(), payload.clone());
    let pushed = if framing.markers || payload.copies(train, count) {
        push_copied(train, framer, header, front.len() + count, |at, dst| {
            if at >= front.len() {
                return ahead.copy(dst);
            }
            let (now, dst) = dst.split_at_mut((front.len() - at).min(dst.len()));
            now.copy_from_slice(&front[at..at + now.len()]);
            ahead.copy(dst)
        })?
    } else {
        push_gathered(train, framer, header, front.len() + count, |train, mut crc| {
            if !front.is_empty() {
                if train.own(front.len(), |out| out.copy_from_slice(front)).is_none() {
                    return Ok(None);
                }
                crc = if framing.crc { crc32c_append(crc, front) } else { crc };
            }
            let lent = ahead.lend(train, count, framing.crc.then_some(&mut crc))?;
            Ok(lent.then_some(crc))
        })?
    };
    if pushed {
        *payload = ahead;
    }
    Ok(pushed)
}

/// Returns how many of a write's last `left` octets become one Send: all, or, if they are too many,
/// as many as fill their segments. On loopback a segment has a little less room than a Send of 64
/// KiB, whose rest would be another FPDU for each.
#[inline]
fn send_len(left: usize, limits: Limits) -> u32 {
    let (left, max_send) = (u32::try_from(left).unwrap_or(u32::MAX), limits.max_send.max(1));
    let full = u32::try_from(limits.mulpdu.saturating_sub(UntaggedRepr::LEN)).unwrap_or(u32::MAX).max(1);
    if left <= max_send || max_send < full { left.min(max_send) } else { max_send - max_send % full }
}
