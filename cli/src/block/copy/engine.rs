//! The copy itself: reads, writes and zeroes, many under way.

use std::collections::HashMap;

use rddp_block::export::{Command, Extent};
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
        let zeroes = (!of_to.zeroes).then(|| vec![0; longest(of_to).max(block) as usize]);
        Engine {
            desk,
            from,
            to,
            plan,
            buffers: Buffers::new(desk.pd.clone(), 4 * most * REQUEST as usize),
            under_way: HashMap::new(),
            next_id: 0,
            most,
            zeroes,
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

    /// Has a hole read as zeroes: by the disk itself, or by writing them.
    fn zero(&mut self, piece: Piece) -> Result<(), Failure> {
        let Some(zeroes) = &self.zeroes else {
            let Piece { offset, len, .. } = piece;
            let command = Command::Zero { offset, len, fua: false, may_trim: true };
            return self.begin(Work::Zero(piece), command, None);
        };
        // Few pieces are holes here, and each is many writes: they may be more than `most`.
        let each = zeroes.len() as u32;
        let mut at = 0;
        while at < piece.len {
            let part =
                Piece { offset: piece.offset + u64::from(at), len: each.min(piece.len - at), hole: true };
            at += part.len;
            self.write_zeroes(part)?;
        }
        Ok(())
    }

    fn write_zeroes(&mut self, part: Piece) -> Result<(), Failure> {
        let mut done = Vec::new();
        while self.under_way.len() >= self.most {
            self.turn(&mut done)?;
        }
        let buffer = self.buffer(part.len)?;
        let zeroes = self.zeroes.as_deref().and_then(|zeroes| zeroes.get(..part.len as usize)).unwrap_or(&[]);
        buffer.filled(zeroes)?;
        let command = Command::Write { offset: part.offset, len: part.len, fua: false };
        self.begin(Work::Zero(part), command, Some(buffer))
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
        let answer = done.result.map_err(|error| self.end(work).failure(&command, error))?;
        match work {
            Work::Ask => self.learn(&answer)?,
            Work::Read(piece) => {
                let Piece { offset, len, .. } = piece;
                let command = Command::Write { offset, len, fua: false };
                return self.begin(Work::Write(piece), command, done.buffer);
            }
            Work::Write(piece) => self.copied.data += u64::from(piece.len),
            Work::Zero(piece) => self.copied.holes += u64::from(piece.len),
            Work::Flush => {}
        }
        done.buffer.into_iter().for_each(|buffer| self.buffers.give_back(buffer));
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
