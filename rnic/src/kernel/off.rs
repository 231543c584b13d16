//! Stands in for [`on`](super) where the feature `kernel` is off: there are no values of these
//! types, so all that takes one is gone from the build.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rddp_ddp::Stag;
use rddp_rdma::{RecvWr, Sge};

use super::{Checked, Front, KernelCounts, KernelPlacement, LeftToUser, Run};
use crate::conn::socket::DeviceSocket;
use crate::mem::{Access, Grant, PdId, QpNum};
use crate::queues::attributes::QpAttributes;

#[derive(Debug)]
pub(crate) enum Kernel {}

#[derive(Debug)]
pub(crate) enum KernelMemory {}

#[derive(Debug)]
pub(crate) enum Guided {}

impl Kernel {
    pub(crate) fn load(_: &KernelPlacement) -> io::Result<Arc<Self>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this build places at user level only: build with the feature `kernel` (it needs clang), or ask \
             for user level",
        ))
    }

    pub(crate) fn allocate(self: &Arc<Self>, _len: usize) -> io::Result<KernelMemory> {
        match **self {}
    }

    pub(crate) fn open(
        &self,
        _: Stag,
        _octets: Range<u64>,
        _base: u64,
        _of: (PdId, Option<QpNum>),
        _: Access,
    ) {
        match *self {}
    }

    pub(crate) fn close(&self, _: Stag) {
        match *self {}
    }

    pub(crate) fn count_left(&self) {
        match *self {}
    }

    pub(crate) fn left(&self) -> LeftToUser {
        match *self {}
    }

    pub(crate) fn guide(self: &Arc<Self>, _: &DeviceSocket, _: &QpAttributes, _crc: bool) -> Option<Guided> {
        match **self {}
    }
}

impl KernelMemory {
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        match *self {}
    }
}

impl Guided {
    pub(crate) fn note_read(&mut self, _count: usize) {
        match *self {}
    }

    pub(crate) fn room(&mut self, _have: usize, _room: usize) -> usize {
        match *self {}
    }

    pub(crate) fn is_next_placed(&mut self) -> bool {
        match *self {}
    }

    pub(crate) fn enter_run(&mut self, _there: usize) -> Run {
        match *self {}
    }

    pub(crate) fn front(&self, _ahead: usize) -> Option<Front> {
        match *self {}
    }

    pub(crate) fn confirm(&mut self, _ahead: usize, _: &Grant, _: Option<Stag>) -> Option<Checked> {
        match *self {}
    }

    pub(crate) fn sum_ahead(&mut self) -> (bool, bool) {
        match *self {}
    }

    pub(crate) fn confirm_by_look(
        &mut self,
        _ahead: usize,
        _fpdu: (&[u8], usize),
        _: &Grant,
    ) -> Option<Checked> {
        match *self {}
    }

    pub(crate) fn store(&mut self, _: &Grant, _store: impl FnOnce() -> bool) -> bool {
        match *self {}
    }

    pub(crate) fn tell_receives<'a>(
        &mut self,
        _posted: impl ExactSizeIterator<Item = &'a RecvWr>,
        _taken: u32,
    ) {
        match *self {}
    }

    pub(crate) fn end_receive(&mut self) {
        match *self {}
    }

    pub(crate) fn tell_sink(&mut self, _id: u64, _: &Sge) {
        match *self {}
    }

    pub(crate) fn end_sink(&mut self, _id: u64) {
        match *self {}
    }

    pub(crate) fn stop(&mut self) {
        match *self {}
    }

    pub(crate) fn counts(&self) -> KernelCounts {
        match *self {}
    }
}
