//! FPDUs of both directions of a connection, without a socket (RFC 5044 §4).

use rddp_mpa::{Deframer, Framer, Framing, Negotiated, Step};

/// One end's framing: makes FPDUs of ULPDUs, and finds ULPDUs in the octets that have arrived.
#[derive(Debug)]
pub struct Fpdus {
    /// State from which the next FPDU is made, its place in the stream included; a test may set
    /// another.
    pub framer: Framer,
    deframer: Deframer,
    /// Octets that arrived and are no whole FPDU yet.
    staging: Vec<u8>,
}

impl Fpdus {
    /// Begins both streams: `tx` is the framing of what this end sends, `rx` of what it receives.
    #[must_use]
    pub fn new(tx: Framing, rx: Framing) -> Self {
        Fpdus { framer: Framer::new(tx), deframer: Deframer::new(rx), staging: Vec::new() }
    }

    /// Begins both streams with the framing that a startup has agreed on.
    #[must_use]
    pub fn negotiated(negotiated: &Negotiated) -> Self {
        Self::new(negotiated.tx(), negotiated.rx())
    }

    /// Returns the octets of the next FPDU to send.
    pub fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let fill = |at: usize, out: &mut [u8]| out.copy_from_slice(&ulpdu[at..at + out.len()]);
        self.framer.emit(b"", ulpdu.len(), fill, &mut out);
        out
    }

    /// Takes octets that have arrived.
    pub fn take(&mut self, octets: &[u8]) {
        self.staging.extend_from_slice(octets);
    }

    /// Returns the next ULPDU if all of its FPDU has arrived.
    ///
    /// # Panics
    ///
    /// When the other end made a bad FPDU.
    pub fn next_ulpdu(&mut self) -> Option<Vec<u8>> {
        match self.deframer.step(&mut self.staging).expect("the other end makes good FPDUs") {
            Step::Fpdu { ulpdu, used } => {
                let ulpdu = self.staging[ulpdu].to_vec();
                self.staging.drain(..used);
                Some(ulpdu)
            }
            Step::Need { .. } => None,
        }
    }

    /// Returns whether no octet has arrived beyond the ULPDUs that were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.staging.is_empty()
    }
}
