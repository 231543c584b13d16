//! Phases: how far a connection is.

use core::fmt;

macro_rules! phases {
    ($($(#[$doc:meta])* $ident:ident = $value:literal, $name:literal;)*) => {
        /// The state of a QP (draft-hilland-rddp-verbs §6.2) or of a stream.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Phase {
            $($(#[$doc])* $ident = $value,)*
            /// A number of another version's.
            #[default]
            Unknown = 255,
        }

        impl Phase {
            /// Returns the phase of a number.
            #[must_use]
            pub const fn of(number: u8) -> Self {
                match number { $($value => Phase::$ident,)* _ => Phase::Unknown }
            }

            /// Returns the name, as it is printed.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Phase::$ident => $name,)* Phase::Unknown => "unknown" }
            }
        }
    };
}

phases! {
    /// A QP that has no connection any more.
    Idle = 1, "idle";
    /// A QP with a connection.
    ReadyToSend = 2, "RTS";
    /// A QP that closes in order.
    Closing = 3, "closing";
    /// A QP whose connection ends with a Terminate.
    Terminate = 4, "terminate";
    /// A QP whose connection has ended with an error, or by force.
    Error = 5, "error";
    /// A stream during MPA's startup.
    Starting = 6, "starting";
    /// A stream of FPDUs.
    Framed = 7, "framed";
    /// A stream that stays plain TCP, because the peer does not speak MPA.
    Plain = 8, "plain";
    /// A stream that is over.
    Ended = 9, "ended";
}

impl Phase {
    /// Returns whether octets may still go either way.
    #[must_use]
    pub fn is_alive(self) -> bool {
        !matches!(self, Phase::Idle | Phase::Error | Phase::Ended)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
