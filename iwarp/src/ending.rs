//! The end of a connection: the Terminate that the peer is owed, and the result of a failed startup
//! (RFC 5040 §5.4, §7.1, RFC 5044 §7.1.2, §8, RFC 6581 §9).

use rddp_mpa::{Framing, StartupError};
use rddp_rdmap::{Fault, Offending, TerminateRepr, terminate_for};

/// The way in which this end ends its sending direction after a fault. Both go behind the rest of
/// an FPDU that TCP has begun to take; if that rest cannot be had, TCP is reset instead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Termination {
    /// Send this Terminate, then FIN.
    Terminate(TerminateRepr),
    /// Send FIN alone.
    Fin,
}

impl Termination {
    /// Returns how a connection ends because of `fault`. `offending` is the segment in which it was
    /// found; `may_send` tells whether this end may send FPDUs: an initiator always may, a
    /// responder once it has received a good FPDU (RFC 5044 §7.1.2).
    pub fn of(fault: &Fault, offending: Option<&Offending>, may_send: bool) -> Self {
        // RFC 5044 §7.1.2: before the first good FPDU a responder sends none, not even a Terminate.
        // RFC 5040 §7.1: a Terminate, however malformed, is not answered by one.
        if may_send && fault.is_answerable() {
            Self::Terminate(terminate_for(fault, offending))
        } else {
            Self::Fin
        }
    }

    /// Returns the Terminate, if there is one.
    #[must_use]
    pub fn terminate(self) -> Option<TerminateRepr> {
        match self {
            Self::Terminate(terminate) => Some(terminate),
            Self::Fin => None,
        }
    }
}

/// The result of a failed MPA startup for the TCP connection: it goes on, or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Refusal {
    /// The connection goes on without MPA: the octets received are no startup frame, and plain
    /// peers are served.
    Plain,
    /// The connection ends by a Terminate, the only FPDU that it carries, and FIN behind it.
    Terminate {
        /// Terminate with the code of the startup's error, and nothing else.
        terminate: TerminateRepr,
        /// Framing of the Terminate's FPDU.
        framing: Framing,
    },
    /// The connection is closed without an FPDU (RFC 5044 §7.1.2): by FIN if the socket is the
    /// caller's own, by a reset if its descriptor stays with a program.
    Close,
}

impl Refusal {
    /// Returns the result of `error`. `framing` is that of this end's direction if the
    /// two ends have agreed on it; `plain_peers` tells whether a peer that speaks no
    /// MPA is served without it.
    pub fn of(error: &StartupError, framing: Option<Framing>, plain_peers: bool) -> Self {
        if plain_peers && error.is_plain_client() {
            return Self::Plain;
        }
        match (error.terminate(), framing) {
            // RFC 6581 §9.1, §9.2: a Reply that this end cannot accept is answered by a Terminate.
            (Some(code), Some(framing)) => {
                Self::Terminate { terminate: terminate_for(&Fault::mpa(code), None), framing }
            }
            _ => Self::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use rddp_ddp::{Header, Msn, Stag};
    use rddp_mpa::MpaError;
    use rddp_rdmap::{Opcode, TerminateCode, TerminateFlaw, untagged_header};

    use super::*;

    fn offending() -> Offending {
        let header: Header = untagged_header(Opcode::Send, Stag(0), Msn(3), 0, true);
        Offending::new(header, 4)
    }

    #[test]
    fn a_fault_of_the_peers_becomes_the_terminate_that_names_the_segment() {
        // RFC 5040 §7.1
        let fault = Fault::Version { version: 2 };
        let Termination::Terminate(terminate) = Termination::of(&fault, Some(&offending()), true) else {
            panic!("it is answerable");
        };
        assert_eq!((terminate.code, terminate.segment_len), (TerminateCode::RDMAP_VERSION, Some(22)));
        assert_eq!(Termination::of(&fault, None, true).terminate().unwrap().header, None);
    }

    #[test]
    fn a_responder_without_leave_to_send_sends_no_terminate() {
        // RFC 5044 §7.1.2
        let fault = Fault::mpa(MpaError::Crc);
        assert_eq!(Termination::of(&fault, None, false), Termination::Fin);
        assert!(Termination::of(&fault, None, true).terminate().is_some());
    }

    #[test]
    fn no_terminate_answers_a_terminate() {
        // RFC 5040 §7.1
        let fault = Fault::Terminate(TerminateFlaw::NotLast);
        assert_eq!(Termination::of(&fault, Some(&offending()), true), Termination::Fin);
        assert_eq!(Termination::Fin.terminate(), None);
    }

    const FRAMING: Framing = Framing { crc: true, markers: false };
    const CLOSED: StartupError = StartupError::Closed { have: 3, total: 20, enhanced: true };

    #[test]
    fn a_peer_that_speaks_no_mpa_is_served_as_it_is_or_left() {
        // RFC 5044 §7.1.2
        for error in [StartupError::BadKey, CLOSED] {
            assert_eq!(Refusal::of(&error, None, true), Refusal::Plain);
            assert_eq!(Refusal::of(&error, Some(FRAMING), false), Refusal::Close);
        }
        assert_eq!(Refusal::of(&StartupError::WrongRole, None, true), Refusal::Close);
    }

    #[test]
    fn a_reply_that_makes_the_connection_impossible_is_answered_by_a_terminate() {
        // RFC 6581 §8, §9.1
        let error = StartupError::InsufficientIrd { ord: 9, max_ird: 4 };
        let code = Fault::mpa(MpaError::InsufficientIrd).code();
        let terminate = TerminateRepr::bare(code);
        let refusal = Refusal::of(&error, Some(FRAMING), true);
        assert_eq!(refusal, Refusal::Terminate { terminate, framing: FRAMING });
        assert_eq!(Refusal::of(&error, None, true), Refusal::Close, "nothing is agreed on");
    }
}
