//! The messages that each end was told to send, as JSON for `check.py`.

use serde_json::{Value, json};

/// One RDMAP message.
pub struct Message {
    opcode: u8,
    kind: BufferModel,
    total: usize,
    /// Fields of RDMAP's own headers, by the dissector's names.
    control: Value,
}

enum BufferModel {
    Tagged { stag: u32, to: u64 },
    Untagged { qn: u32, invalidate: Option<u32> },
}

impl Message {
    pub fn tagged(opcode: u8, stag: u32, to: u64, total: usize) -> Self {
        Message { opcode, kind: BufferModel::Tagged { stag, to }, total, control: json!({}) }
    }

    pub fn untagged(opcode: u8, qn: u32, total: usize) -> Self {
        Message { opcode, kind: BufferModel::Untagged { qn, invalidate: None }, total, control: json!({}) }
    }

    pub fn invalidating(self, stag: u32) -> Self {
        match self.kind {
            BufferModel::Untagged { qn, .. } => {
                Message { kind: BufferModel::Untagged { qn, invalidate: Some(stag) }, ..self }
            }
            BufferModel::Tagged { .. } => self,
        }
    }

    /// Returns the message's DDP header as a single segment, in hex.
    pub fn header(&self, msn: u32) -> String {
        let opcode = 0x40 | self.opcode;
        match self.kind {
            BufferModel::Tagged { stag, to } => format!("c1{opcode:02x}{stag:08x}{to:016x}"),
            BufferModel::Untagged { qn, invalidate } => {
                format!("41{opcode:02x}{:08x}{qn:08x}{msn:08x}00000000", invalidate.unwrap_or(0))
            }
        }
    }

    pub fn with(self, control: Value) -> Self {
        Message { control, ..self }
    }
}

/// The messages of one side, and how much of them has been seen.
#[derive(Default)]
pub struct Expected {
    messages: std::collections::VecDeque<Message>,
    sent: usize,
    msn: [u32; 4],
}

impl Expected {
    pub fn push(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// The MSN that the next message on this queue gets, once all that were pushed before have been
    /// sent.
    pub fn next_msn(&self, qn: u32) -> u32 {
        let pending =
            |message: &&Message| matches!(message.kind, BufferModel::Untagged { qn: on, .. } if on == qn);
        self.msn[qn as usize] + 1 + self.messages.iter().filter(pending).count() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The fields that an FPDU with this `ULPDU_Length` has to have. Only its length is taken from
    /// what was sent.
    pub fn fpdu(&mut self, ulpdu_len: usize) -> Result<Value, String> {
        let message = self.messages.front().ok_or("an FPDU that nobody asked for")?;
        let header = if matches!(message.kind, BufferModel::Tagged { .. }) { 14 } else { 18 };
        let payload = ulpdu_len.checked_sub(header).ok_or("an FPDU too short for its header")?;
        let last = self.sent + payload == message.total;
        if self.sent + payload > message.total || (payload == 0 && message.total > 0) {
            return Err(format!("{payload} octets of payload where {} are left", message.total - self.sent));
        }
        let mut fields = json!({"opcode": message.opcode, "last": u8::from(last)});
        match message.kind {
            BufferModel::Tagged { stag, to } => {
                fields["tagged"] = json!(1);
                fields["stag"] = json!(stag);
                fields["to"] = json!(to + self.sent as u64);
            }
            BufferModel::Untagged { qn, invalidate } => {
                fields["tagged"] = json!(0);
                fields["qn"] = json!(qn);
                fields["msn"] = json!(self.msn[qn as usize] + 1);
                fields["mo"] = json!(self.sent);
                if let Some(stag) = invalidate {
                    fields["inval_stag"] = json!(stag);
                }
                self.msn[qn as usize] += u32::from(last);
            }
        }
        if let (Some(fields), Some(control)) = (fields.as_object_mut(), message.control.as_object()) {
            fields.extend(control.clone());
        }
        self.sent += payload;
        if last {
            self.messages.pop_front();
            self.sent = 0;
        }
        Ok(fields)
    }
}
