//! The copy itself: reads, writes and zeroes, many under way.

use std::collections::HashMap;

use rddp_block::export::{Command, DiskError, Extent};
use rddp_command::failure::Failure;

use super::plan::{Piece, Plan};
use crate::block::buffers::{Buffer, Buffers};
use crate::block::desk::Desk;
use crate::block::disk::{Answer, Done, Job};
use crate::block::end::{End, Limits};

/// Octets of a request.
const REQUEST: u32 = 256 * 1024;

/// Requests under way, those of both ends together.
const MOST: usize = 64;

/// A copy under way.
pub(super) struct Engine<'a> {
    desk: &'a Desk,
    from: &'a mut dyn End,
    to: &'a mut dyn End,
    plan: Plan,
    buffers: Buffers,
    /// Requests by their numbers.
    under_way: HashMap<u64, (Work, Command)>,
    next_id: u64,
    most: usize,
    /// Zeroes that stand for those that the disk cannot make by itself.
    zeroes: Option<Vec<u8>>,
    /// Octets that the disk zeroes at a time where it can, and those of a write.
    longest_zero: u32,
    longest_write: usize,
    /// The disk reads as zeroes where it is not written.
    is_fresh: bool,
    pub(super) copied: Copied,
}

/// Octets that have been copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copied {
    pub(super) data: u64,
    pub(super) holes: u64,
}

/// The use of a request.
#[derive(Clone, Copy)]
enum Work {
    Ask,
    Read(Piece),
    /// The writing of data.
    Write(Piece),
    /// A part of a hole.
    Zero(Piece),
    Flush,
}

impl<'a> Engine<'a> {
    pub(super) fn new(desk: &'a Desk, from: &'a mut dyn End, to: &'a mut dyn End, is_fresh: bool) -> Self {
        let (of_from, of_to) = (from.limits(), to.limits());
        let longest = |limits: Limits| limits.longest.min(REQUEST);
        let block = of_from.block.max(of_to.block);
        let plan = Plan::new(from.export().size, longest(of_from).min(longest(of_to)).max(block), block);
        let most = MOST.min(of_from.jobs).min(of_to.jobs).max(1);
        let longest_write = longest(of_to).max(block) as usize;
        let zeroes = of_to.zeroes.is_none().then(|| vec![0; longest_write]);
        Engine {
            desk,
            from,
            to,
            plan,
            buffers: desk.buffers(4 * most * REQUEST as usize),
            under_way: HashMap::new(),
            next_id: 0,
            most,
            zeroes,
            longest_zero: of_to.zeroes.unwrap_or(0),
            longest_write,
            is_fresh,
            copied: Copied::default(),
        }
    }

    /// Copies all, and has it on the disk. Tells now and then how many octets are done.
    pub(super) fn run(&mut self, tell: &mut dyn FnMut(u64)) -> Result<(), Failure> {
        let mut done = Vec::new();
        while !(self.plan.is_over() && self.under_way.is_empty()) {
            self.begin_more()?;
            self.turn(&mut done)?;
            tell(self.copied.data + self.copied.holes);
        }
        self.begin(Work::Flush, Command::Flush, None)?;
        while !self.under_way.is_empty() {
            self.turn(&mut done)?;
        }
        Ok(())
    }

    /// Begins what there is room for.
    fn begin_more(&mut self) -> Result<(), Failure> {
        if let Some((offset, len)) = self.plan.question() {
            self.begin(Work::Ask, Command::Status { offset, len, one: false }, None)?;
        }
        while self.under_way.len() < self.most {
            let Some(piece) = self.plan.next() else { break };
            match piece.hole {
                false => self.read(piece)?,
                true if self.is_fresh => self.copied.holes += u64::from(piece.len),
                true => self.zero(piece)?,
            }
        }
        Ok(())
    }

    fn read(&mut self, piece: Piece) -> Result<(), Failure> {
        let buffer = self.buffer(piece.len)?;
        let Piece { offset, len, .. } = piece;
        self.begin(Work::Read(piece), Command::Read { offset, len }, Some(buffer))
    }

    /// Has a hole read as zeroes, in as many parts as the disk takes.
    fn zero(&mut self, piece: Piece) -> Result<(), Failure> {
        // Few pieces are holes, and each may be many requests: they may be more than `most`.
        let each = self.zeroes.as_ref().map_or(self.longest_zero, |zeroes| zeroes.len() as u32);
        let mut at = 0;
        while at < piece.len {
            let offset = piece.offset + u64::from(at);
            let part = Piece { offset, len: each.min(piece.len - at), hole: true };
            at += part.len;
            self.zero_part(part)?;
        }
        Ok(())
    }

    /// Has a part read as zeroes: by the disk itself, or by writing them.
    fn zero_part(&mut self, part: Piece) -> Result<(), Failure> {
        let mut done = Vec::new();
        while self.under_way.len() >= self.most {
            self.turn(&mut done)?;
        }
        let Piece { offset, len, .. } = part;
        if self.zeroes.is_none() {
            let command = Command::Zero { offset, len, fua: false, may_trim: true };
            return self.begin(Work::Zero(part), command, None);
        }
        let buffer = self.buffer(len)?;
        let zeroes = self.zeroes.as_deref().and_then(|zeroes| zeroes.get(..len as usize)).unwrap_or(&[]);
        buffer.filled(zeroes)?;
        self.begin(Work::Zero(part), Command::Write { offset, len, fua: false }, Some(buffer))
    }

    /// Writes zeroes: a disk may take none, though its server says so (Linux's NVMe target on
    /// tmpfs).
    fn write_zeroes_from_now_on(&mut self, part: Piece) -> Result<(), Failure> {
        let len = self.longest_write;
        self.zeroes.get_or_insert_with(|| vec![0; len]);
        self.zero(part)
    }

    fn buffer(&mut self, len: u32) -> Result<Buffer, Failure> {
        let taken = self.buffers.take(len as usize);
        taken.ok_or_else(|| Failure::failed("no memory for what is under way"))
    }

    fn begin(&mut self, work: Work, command: Command, buffer: Option<Buffer>) -> Result<(), Failure> {
        let id = self.next_id;
        self.next_id += 1;
        self.under_way.insert(id, (work, command));
        self.end(work).begin(Job { owner: 0, id, command, buffer })
    }

    /// Returns the end of which a request is.
    fn end(&mut self, work: Work) -> &mut dyn End {
        match work {
            Work::Ask | Work::Read(_) => self.from,
            _ => self.to,
        }
    }

    /// Acts on what has come and what is done, or waits for more.
    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), Failure> {
        self.desk.turn(&mut [&mut *self.from, &mut *self.to], done)?;
        done.drain(..).try_for_each(|done| self.finish(done))
    }

    /// Goes on behind a request that is done.
    fn finish(&mut self, done: Done) -> Result<(), Failure> {
        let Some((work, command)) = self.under_way.remove(&done.id) else { return Ok(()) };
        if let (Work::Zero(part), Command::Zero { .. }, Err(DiskError::NotSup)) =
            (work, command, &done.result)
        {
            return self.write_zeroes_from_now_on(part);
        }
        let answer = done.result.map_err(|error| self.end(work).failure(&command, error))?;
        match work {
            Work::Ask => self.learn(&answer)?,
            Work::Read(piece) => return self.write(piece, done.buffer),
            Work::Write(piece) => self.copied.data += u64::from(piece.len),
            Work::Zero(piece) => self.copied.holes += u64::from(piece.len),
            Work::Flush => {}
        }
        done.buffer.into_iter().for_each(|buffer| self.buffers.give_back(buffer));
        Ok(())
    }

    /// Writes what was read. Zeroes are a hole: a disk may not tell its holes, as NVMe's do not.
    fn write(&mut self, piece: Piece, buffer: Option<Buffer>) -> Result<(), Failure> {
        let Piece { offset, len, .. } = piece;
        let Some(buffer) = buffer else { return Ok(()) };
        let work = if buffer.is_zero(len)? { Work::Zero(piece) } else { Work::Write(piece) };
        match work {
            Work::Zero(_) if self.is_fresh => self.copied.holes += u64::from(len),
            Work::Zero(_) if self.zeroes.is_none() && len <= self.longest_zero => {
                self.begin(work, Command::Zero { offset, len, fua: false, may_trim: true }, None)?;
            }
            _ => return self.begin(work, Command::Write { offset, len, fua: false }, Some(buffer)),
        }
        self.buffers.give_back(buffer);
        Ok(())
    }

    fn learn(&mut self, answer: &Answer) -> Result<(), Failure> {
        let extents: &[Extent] = match answer {
            Answer::Extents(extents) => extents,
            Answer::Done => &[],
        };
        if self.plan.told(extents) {
            return Ok(());
        }
        Err(Failure::peer(format!("{}: asked for its holes, it tells nothing", self.from.export().name)))
    }
}
