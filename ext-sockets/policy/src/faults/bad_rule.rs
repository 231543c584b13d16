//! Errors in rules of faults, each with its remedy.

/// An error in a rule of a fault. The rule is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRule {
    /// The rule has no place.
    #[error("the rule does not say where")]
    NoPlace,
    /// A part is missing that the rule needs.
    #[error("the rule does not say {0}")]
    Missing(&'static str),
    /// A word is none of such a rule.
    #[error("{0:?} is no part of such a rule")]
    Word(String),
    /// A word stands twice.
    #[error("{0:?} stands twice")]
    Twice(String),
    /// Two parts exclude each other.
    #[error("{0} and {1} exclude each other")]
    Both(&'static str, &'static str),
    /// A word does not take this value.
    #[error("{value:?} is no value of {word}")]
    Value {
        /// The value.
        value: String,
        /// The word.
        word: &'static str,
        /// Values that the word takes.
        takes: &'static str,
    },
    /// A status that no such request can have.
    #[error("a {operation} never has the status {status}")]
    Status {
        /// The operation.
        operation: &'static str,
        /// The status.
        status: String,
    },
    /// Receives are late or lost by what the peer does.
    #[error("a receive is not late or lost by itself")]
    Receive,
}

impl BadRule {
    /// Returns what to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            BadRule::NoPlace => "begin with call=NAME, op=OPERATION, qp=K, port or device",
            BadRule::Missing("when") => "add nth=N, nth=N..M, every=N or rate=1/N seed=S",
            BadRule::Missing("what becomes of a call") => "add errno=NAME or delay=TIME",
            BadRule::Missing("what becomes of a request") => "add status=NAME, delay=TIME or drop",
            BadRule::Missing("when in the life of the queue pair") => "add after=SIZE or at=TIME",
            BadRule::Missing("what becomes of a connection") => "add reset",
            BadRule::Missing("what becomes of the port") => "add down=TIME or gid",
            BadRule::Missing("what becomes of the device") => "add fatal",
            BadRule::Missing("at which time") => "add at=TIME, counted from when the device is opened",
            BadRule::Missing(_) => "put the value behind a =, without blanks",
            BadRule::Word(_) => {
                "call= has errno= or delay=; op= has qp=, and status=, delay= or drop; both have nth=, every= or \
                 rate= seed=; qp= alone has after= or at=, and reset; port has at=, and down= or gid; \
                 device has at= and fatal"
            }
            BadRule::Twice(_) => "write it once; rules have a ; between them, or a line each",
            BadRule::Both(..) => "make two rules of it",
            BadRule::Value { takes, .. } => takes,
            BadRule::Status { operation, .. } => match *operation {
                "recv" => "a recv has LOC_LEN_ERR or LOC_PROT_ERR",
                "send" => {
                    "a send has LOC_PROT_ERR, LOC_QP_OP_ERR, REM_INV_REQ_ERR, REM_OP_ERR, RETRY_EXC_ERR or \
                     RNR_RETRY_EXC_ERR"
                }
                _ => {
                    "it has LOC_PROT_ERR, LOC_QP_OP_ERR, REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR or \
                     RETRY_EXC_ERR"
                }
            },
            BadRule::Receive => {
                "give the peer's request the delay=, or its port a down=; or give this a status="
            }
        }
    }
}
