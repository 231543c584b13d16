//! What was meant: the messages that each side was told to send, as JSON for `check.py`.

use serde_json::{Value, json};

/// One RDMAP message.
pub struct Message {
    opcode: u8,
    kind: Kind,
    total: usize,
    /// Fields of RDMAP's own headers, by the dissector's names.
    control: Value,
}

enum Kind {
    Tagged { stag: u32, to: u64 },
    Untagged { qn: u32, invalidate: Option<u32> },
}

impl Message {
    pub fn tagged(opcode: u8, stag: u32, to: u64, total: usize) -> Self {
        Message { opcode, kind: Kind::Tagged { stag, to }, total, control: json!({}) }
    }

    pub fn untagged(opcode: u8, qn: u32, total: usize) -> Self {
        Message { opcode, kind: Kind::Untagged { qn, invalidate: None }, total, control: json!({}) }
    }

    pub fn invalidating(self, stag: u32) -> Self {
        match self.kind {
            Kind::Untagged { qn, .. } => {
                Message { kind: Kind::Untagged { qn, invalidate: Some(stag) }, ..self }
            }
            Kind::Tagged { .. } => self,
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

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The fields that an FPDU with this `ULPDU_Length` has to have. Only its length is taken from what was sent.
    pub fn fpdu(&mut self, ulpdu_len: usize) -> Result<Value, String> {
        let message = self.messages.front().ok_or("an FPDU that nobody asked for")?;
        let header = if matches!(message.kind, Kind::Tagged { .. }) { 14 } else { 18 };
        let payload = ulpdu_len.checked_sub(header).ok_or("an FPDU too short for its header")?;
        let last = self.sent + payload == message.total;
        if self.sent + payload > message.total || (payload == 0 && message.total > 0) {
            return Err(format!("{payload} octets of payload where {} are left", message.total - self.sent));
        }
        let mut fields = json!({"opcode": message.opcode, "last": u8::from(last), "ulpdu_length": ulpdu_len});
        match message.kind {
            Kind::Tagged { stag, to } => {
                fields["tagged"] = json!(1);
                fields["stag"] = json!(stag);
                fields["to"] = json!(to + self.sent as u64);
            }
            Kind::Untagged { qn, invalidate } => {
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
        fields["control"] = message.control.clone();
        self.sent += payload;
        if last {
            self.messages.pop_front();
            self.sent = 0;
        }
        Ok(fields)
    }
}
