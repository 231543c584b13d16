//! Faults that are made on demand, for tests of RDMA programs: the rules.
//!
//! A rule says where, when and what, in words in any order:
//!
//! ```text
//! call=NAME    COUNT  errno=NAME | delay=TIME
//! op=OPERATION [qp=K] COUNT  status=NAME | delay=TIME | drop
//! qp=K         after=SIZE | at=TIME  reset
//! port         at=TIME  down=TIME | gid
//! device       at=TIME  fatal
//!
//! COUNT        nth=N | nth=N..M | every=N | rate=1/N [seed=S]
//! ```
//!
//! NAME of a call is a shell pattern for a function of libibverbs or librdmacm. OPERATION is
//! `send`, `write`, `read`, `atomic` or `recv`, and K the place of a queue pair among those that
//! were made, from 1 on. TIME is a number with `us`, `ms` or `s` behind it, SIZE a number of octets
//! with or without `K`, `M` or `G`. What a rule counts is counted for it alone.

mod bad_rule;
mod parse;

#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;

use super::glob;

pub use bad_rule::BadRule;

/// A rule, with the words in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    text: String,
    fault: Fault,
}

/// A fault: where, when and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Calls of functions fail, or take long.
    Call {
        /// A shell pattern for the functions' names.
        functions: String,
        /// The calls that it happens to.
        count: Count,
        /// The effect.
        effect: CallEffect,
    },
    /// Requests fail, complete late, or never.
    Request {
        /// The kind of requests.
        operation: FaultOperation,
        /// The place of the queue pair; `None`: all of them, whose requests are counted together.
        qp: Option<u32>,
        /// The requests that it happens to.
        count: Count,
        /// The effect.
        effect: RequestEffect,
    },
    /// A connection is reset.
    Connection {
        /// The place of the queue pair.
        qp: u32,
        /// The moment.
        moment: Moment,
    },
    /// Something happens to the port, so long after a program has opened the device.
    Port {
        /// The moment.
        at: Duration,
        /// The effect.
        effect: PortEffect,
    },
    /// The device fails, so long after a program has opened it.
    Device {
        /// The moment.
        at: Duration,
    },
}

/// The calls or requests that a fault happens to, by their number from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Calls or requests from the first number to the last.
    Nth(u64, u64),
    /// Each whose number this divides.
    Every(u64),
    /// On average one of so many: which, the seed decides.
    Rate {
        /// The number of which it is one.
        of: u64,
        /// The seed.
        seed: u64,
    },
}

/// An effect on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// The call does nothing, and fails with the error of this name in `errno.h`.
    Error(String),
    /// The call begins so much later.
    Delay(Duration),
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOperation {
    /// Sends of all kinds.
    Send,
    /// RDMA Writes, with and without a value.
    Write,
    /// RDMA Reads.
    Read,
    /// Atomic operations.
    Atomic,
    /// Receives, of queue pairs and shared ones.
    Recv,
}

/// An effect on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEffect {
    /// The request completes with this status, and its connection ends.
    Status(FaultStatus),
    /// The request begins so much later, and so do those behind it on its queue pair.
    Delay(Duration),
    /// The request is carried out, and never completes.
    Drop,
}

/// Statuses that a request can be given, of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultStatus {
    /// `LOC_LEN_ERR`
    LocalLength,
    /// `LOC_QP_OP_ERR`
    LocalOperation,
    /// `LOC_PROT_ERR`
    LocalProtection,
    /// `REM_INV_REQ_ERR`
    RemoteInvalidRequest,
    /// `REM_ACCESS_ERR`
    RemoteAccess,
    /// `REM_OP_ERR`
    RemoteOperation,
    /// `RETRY_EXC_ERR`
    RetryExceeded,
    /// `RNR_RETRY_EXC_ERR`
    RnrRetryExceeded,
}

/// A moment in the life of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// With the request that makes the octets posted at least so many.
    After(u64),
    /// The time since it was made.
    At(Duration),
}

/// An effect on the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEffect {
    /// The port is down for so long.
    Down(Duration),
    /// The GID is said to have changed.
    Gid,
}

impl FaultRule {
    /// The variable of the environment that has rules, with `;` between them.
    pub const VARIABLE: &str = "RDDP_VERBS_FAULTS";

    /// Parses a rule.
    ///
    /// ```
    /// use rddp_policy::{CallEffect, Count, Fault, FaultRule};
    /// let rule = FaultRule::parse("call=ibv_reg_mr nth=3 errno=ENOMEM")?;
    /// let (functions, effect) = ("ibv_reg_mr".into(), CallEffect::Error("ENOMEM".into()));
    /// assert_eq!(*rule.fault(), Fault::Call { functions, count: Count::Nth(3, 3), effect });
    /// # Ok::<(), rddp_policy::BadRule>(())
    /// ```
    ///
    /// # Errors
    /// The words make no rule, or one that cannot be.
    pub fn parse(text: &str) -> Result<FaultRule, BadRule> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let fault = parse::fault(&words)?;
        Ok(FaultRule { text: words.join(" "), fault })
    }

    /// Parses rules with `;` between them. Returns them, and an error for each that is left out.
    pub fn list(text: &str) -> (Vec<FaultRule>, Vec<BadRule>) {
        let (mut rules, mut bad) = (Vec::new(), Vec::new());
        for text in text.split(';').filter(|text| !text.trim_ascii().is_empty()) {
            match FaultRule::parse(text) {
                Ok(rule) => rules.push(rule),
                Err(error) => bad.push(error),
            }
        }
        (rules, bad)
    }

    /// Returns the fault.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Returns whether the rule is one of calls, and of this function's among them.
    pub fn is_of_call(&self, function: &str) -> bool {
        match &self.fault {
            Fault::Call { functions, .. } => glob::matches(functions.as_bytes(), function.as_bytes()),
            _ => false,
        }
    }
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Count {
    /// Returns whether the fault happens to the call or request with this number, from 1 on. The
    /// same number has the same answer at all times.
    pub fn holds(self, number: u64) -> bool {
        match self {
            Count::Nth(first, last) => (first..=last).contains(&number),
            Count::Every(n) => number.is_multiple_of(n),
            Count::Rate { of, seed } => mixed(seed ^ mixed(number)).is_multiple_of(of),
        }
    }
}

/// Returns a number each bit of which depends on all bits of another (a step of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A `fault` line: a rule for some programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FaultLine {
    pub(super) program: Vec<u8>,
    pub(super) rule: FaultRule,
}
