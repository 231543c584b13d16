//! Messages for which there is no receive yet, where requests are acknowledged.
//!
//! The message and the peer's requests behind it are held until a receive is posted, and the peer
//! is told, which then sends no further ones and counts the time (InfiniBand's "receiver not
//! ready"). What else comes is taken at once: acknowledgements and Responses, on which the program
//! may wait before it posts. The ULPDU that waits is `parked`, those behind it are held here.

use rddp_iwarp::{Acknowledgement, Target, Value};
use rddp_mpa::Step;
use rddp_rdmap::{Fault, Opcode};

use super::acknowledge::{COST, Held};
use super::deliver::refused;
use super::link::Link;
use crate::queues::context::Context;
use crate::wire::WireEvent;
use crate::wire::staging::Staging;

/// Octets of one connection behind which it reads nothing more: TCP's buffers have fewer, in which
/// a peer that stops when it is told has sent what it had.
const MAX_HELD: usize = 16 << 20;

impl Link {
    /// Returns whether the socket is read although a message waits for a receive.
    pub(crate) fn reads_on(&self) -> bool {
        self.held().is_some_and(|held| held.octets() < MAX_HELD)
    }

    pub(super) fn held(&self) -> Option<&Held> {
        self.acknowledging.as_ref()?.held.as_ref()
    }

    fn held_mut(&mut self) -> Option<&mut Held> {
        self.acknowledging.as_mut()?.held.as_mut()
    }

    /// Handles the whole FPDUs of a connection that has acknowledgements.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_acknowledged(
        &mut self,
        cx: &mut Context<'_>,
        staging: &mut Staging,
        used: &mut usize,
    ) -> Result<(), WireEvent> {
        loop {
            if self.held().is_some() || self.has_value() {
                let rest = &mut staging.octets[*used..staging.have];
                let stepped = self.deframer.step(rest).map_err(|error| Fault::mpa(error.code()))?;
                let Step::Fpdu { ulpdu, used: octets } = stepped else { return Ok(()) };
                *used += octets;
                self.receiving(cx).1.note_good_fpdu();
                self.take(cx, &rest[ulpdu])?;
            } else {
                self.handle_all(cx, &mut staging.octets[..staging.have], used)?;
                let Some(ulpdu) = self.parked.take() else { return Ok(()) };
                cx.attrs.device.partial.release(ulpdu.len());
                self.take(cx, &ulpdu)?;
            }
        }
    }

    /// Takes a ULPDU: what the peer requests waits behind a message that has no receive.
    fn take(&mut self, cx: &mut Context<'_>, ulpdu: &[u8]) -> Result<(), WireEvent> {
        if self.held().is_some() && is_request(ulpdu) {
            self.hold(cx, ulpdu);
            return Ok(());
        }
        if let Some(value) = Value::parse(ulpdu) {
            self.note_value(value);
            return Ok(());
        }
        if opcode_of(ulpdu) == Some(Acknowledgement::OPCODE) {
            return self.take_acknowledgement(cx, ulpdu);
        }
        let (mut receiver, mut target) = self.receiving(cx);
        match receiver.segment(ulpdu, &mut target) {
            Ok(Some(delivered)) => self.deliver(cx, delivered),
            Ok(None) => self.begin_to_hold(cx, ulpdu.to_vec()),
            Err(trouble) => Err(refused(cx, trouble)),
        }
    }

    fn hold(&mut self, cx: &Context<'_>, ulpdu: &[u8]) {
        if let Some(held) = self.held_mut() {
            held.add(ulpdu);
            cx.attrs.device.partial.charge(ulpdu.len() + COST);
        }
    }

    /// Begins to hold a message that has found no receive.
    fn begin_to_hold(&mut self, cx: &mut Context<'_>, ulpdu: Vec<u8>) -> Result<(), WireEvent> {
        self.park_held(cx, ulpdu);
        if let Some(acknowledging) = &mut self.acknowledging {
            acknowledging.held = Some(Held::default());
        }
        // One may have been posted meanwhile, to a shared queue.
        self.resume_held(cx)
    }

    fn park_held(&mut self, cx: &Context<'_>, ulpdu: Vec<u8>) {
        cx.attrs.device.partial.charge(ulpdu.len());
        self.parked = Some(ulpdu);
    }

    /// Goes on with what is held, as far as there are receives.
    #[cold]
    pub(super) fn resume_held(&mut self, cx: &mut Context<'_>) -> Result<(), WireEvent> {
        while has_receive(cx) {
            loop {
                let Some(ulpdu) = self.parked.take() else {
                    self.forget_held();
                    return Ok(());
                };
                cx.attrs.device.partial.release(ulpdu.len());
                if let Some(value) = Value::parse(&ulpdu) {
                    self.note_value(value);
                    self.next_held(cx);
                    continue;
                }
                let (mut receiver, mut target) = self.receiving(cx);
                match receiver.segment(&ulpdu, &mut target) {
                    Ok(Some(delivered)) => self.deliver(cx, delivered)?,
                    Ok(None) => {
                        self.park_held(cx, ulpdu);
                        break;
                    }
                    Err(trouble) => return Err(refused(cx, trouble)),
                }
                self.next_held(cx);
            }
        }
        Ok(())
    }

    /// Has the next ULPDU that is held wait in place of one that has been taken.
    fn next_held(&mut self, cx: &Context<'_>) {
        let Some(ulpdu) = self.held_mut().and_then(Held::take) else { return };
        cx.attrs.device.partial.release(ulpdu.len() + COST);
        self.park_held(cx, ulpdu);
    }

    /// Forgets what is held, which the device's budget no longer counts.
    pub(super) fn forget_held(&mut self) {
        if let Some(acknowledging) = &mut self.acknowledging {
            acknowledging.held = None;
        }
    }
}

/// Returns whether there is a receive now; if not, a shared queue tells of the next one.
fn has_receive(cx: &Context<'_>) -> bool {
    cx.rq.srq().map_or_else(|| !cx.rq.is_empty(), |srq| !srq.await_receive(cx.attrs.num))
}

/// Returns the opcode of a ULPDU (RFC 5040 §4.1).
fn opcode_of(ulpdu: &[u8]) -> Option<u8> {
    ulpdu.get(1).map(|control| control & 0xf)
}

/// Returns whether a ULPDU is of a request, or the value of one, which is executed in its turn.
fn is_request(ulpdu: &[u8]) -> bool {
    let answers = [Opcode::ReadResponse, Opcode::AtomicResponse, Opcode::Terminate];
    match opcode_of(ulpdu) {
        Some(Acknowledgement::OPCODE) => Value::parse(ulpdu).is_some(),
        Some(opcode) => answers.iter().all(|answer| opcode != *answer as u8),
        None => false,
    }
}
