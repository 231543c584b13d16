//! The control connection: JSON, one message a line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::Outcome;
use crate::spec::ControlMessage;

pub(crate) struct Control {
    lines: BufReader<TcpStream>,
}

impl Control {
    pub(crate) fn new(stream: TcpStream) -> Outcome<Self> {
        stream.set_nodelay(true)?;
        Ok(Control { lines: BufReader::new(stream) })
    }

    pub(crate) fn tell(&mut self, message: &ControlMessage) -> Outcome<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        Ok(self.lines.get_mut().write_all(&line)?)
    }

    /// Returns the next message; `None` when the other end has gone.
    pub(crate) fn hear(&mut self) -> Outcome<Option<ControlMessage>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    pub(crate) fn ask(&mut self, message: &ControlMessage) -> Outcome<ControlMessage> {
        self.tell(message)?;
        self.expect()
    }

    pub(crate) fn expect(&mut self) -> Outcome<ControlMessage> {
        self.hear()?.ok_or_else(|| "the other end has gone".into())
    }

    /// Sends one octet between messages that means "go on", for which
    /// [`await_nod`](Self::await_nod) waits.
    pub(crate) fn nod(&mut self) -> Outcome<()> {
        Ok(self.lines.get_mut().write_all(b".")?)
    }

    pub(crate) fn await_nod(&mut self) -> Outcome<()> {
        Ok(self.lines.read_exact(&mut [0])?)
    }
}
