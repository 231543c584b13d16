//! The rules of a process, with what they have counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::errno::Errno;
use rddp_policy::{CallEffect, Count, Fault, FaultRule};

/// Rules at work.
#[derive(Debug, Default)]
pub(crate) struct Plan(Vec<Armed>);

/// A rule at work.
#[derive(Debug)]
struct Armed {
    rule: FaultRule,
    /// The calls or requests that it has seen.
    seen: AtomicU64,
    fired: AtomicU64,
}

impl Plan {
    pub(crate) fn new(rules: &[FaultRule]) -> Self {
        let (seen, fired) = (|| AtomicU64::new(0), || AtomicU64::new(0));
        Plan(rules.iter().map(|rule| Armed { rule: rule.clone(), seen: seen(), fired: fired() }).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a call. Returns the error with which it fails, and sleeps before, as rules say.
    pub(crate) fn call(&self, function: &str) -> Option<Errno> {
        let mut failed = None;
        for armed in self.0.iter().filter(|armed| armed.rule.is_of_call(function)) {
            let Fault::Call { count, effect, .. } = armed.rule.fault() else { continue };
            if !armed.fires(*count, function) {
                continue;
            }
            match effect {
                CallEffect::Error(name) => failed = failed.or(errno(name)),
                CallEffect::Delay(delay) => thread::sleep(*delay),
            }
        }
        failed
    }
}

impl Armed {
    /// Counts, and returns whether the fault happens now, which is told.
    fn fires(&self, count: Count, what: &str) -> bool {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let fires = count.holds(number);
        if fires {
            self.tell(&format!("{what}, number {number}"));
        }
        fires
    }

    fn tell(&self, what: &str) {
        let fired = self.fired.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::info!("fault {fired} of \"{}\": {what}", self.rule);
    }
}

/// Returns what is wrong with a rule that was parsed, and the remedy: it is about a function or an
/// error that there is not.
pub(crate) fn check(rule: &FaultRule) -> Option<(String, &'static str)> {
    let Fault::Call { functions, effect, .. } = rule.fault() else { return None };
    if !FALLIBLE.iter().chain(INLINE).any(|function| rule.is_of_call(function)) {
        let remedy = "a function that fails on these devices, as ibv_reg_mr, or a pattern, as rdma_*";
        return Some((format!("no function that may fail is called {functions:?}"), remedy));
    }
    match effect {
        CallEffect::Error(name) if errno(name).is_none() => {
            Some((format!("there is no error {name}"), "a name of errno.h, for example ENOMEM"))
        }
        _ => None,
    }
}

/// Returns the error with a name of `errno.h`.
fn errno(name: &str) -> Option<Errno> {
    let numbered = (1..=LAST_ERRNO).map(Errno::from_raw);
    numbered.filter(|error| *error != Errno::UnknownErrno).find(|error| format!("{error:?}") == name)
}

/// The greatest number of an error that the kernel has.
const LAST_ERRNO: i32 = 133;

/// Exported functions that may fail.
const FALLIBLE: &[&str] = &include!(concat!(env!("OUT_DIR"), "/fallible.rs"));

/// Functions that may fail, and that headers call by pointers.
const INLINE: &[&str] = &[
    "ibv_alloc_mw",
    "ibv_bind_mw",
    "ibv_create_cq_ex",
    "ibv_create_qp_ex",
    "ibv_dealloc_mw",
    "ibv_poll_cq",
    "ibv_post_recv",
    "ibv_post_send",
    "ibv_post_srq_recv",
    "ibv_query_device_ex",
    "ibv_query_port",
    "ibv_req_notify_cq",
    "ibv_wr_complete",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        let (rules, bad) = FaultRule::list(text);
        assert_eq!(bad, []);
        assert!(rules.iter().all(|rule| check(rule).is_none()), "{text}");
        Plan::new(&rules)
    }

    #[test]
    fn each_rule_counts_for_itself() {
        let plan = plan(
            "call=ibv_reg_mr nth=2 errno=ENOMEM; call=ibv_* nth=3..4 errno=EIO; call=rdma_* nth=1 delay=1us",
        );
        let calls = ["ibv_reg_mr", "ibv_reg_mr", "rdma_listen", "ibv_alloc_pd", "ibv_poll_cq", "ibv_reg_mr"];
        let failed = calls.map(|function| plan.call(function));
        assert_eq!(failed, [None, Some(Errno::ENOMEM), None, Some(Errno::EIO), Some(Errno::EIO), None]);
        let fired = plan.0.iter().map(|armed| armed.fired.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(fired, [1, 2, 1]);
    }

    #[test]
    fn what_there_is_not_is_told() {
        let told = |text: &str| check(&FaultRule::parse(text).unwrap()).unwrap().0;
        assert!(told("call=ibv_nothing nth=1 errno=EIO").contains("\"ibv_nothing\""));
        assert!(told("call=ibv_wc_status_str nth=1 errno=EIO").contains("may fail"));
        assert!(told("call=* nth=1 errno=ENOSUCH").contains("ENOSUCH"));
        for function in ["ibv_reg_mr", "ibv_query_gid_ex", "ibv_post_send", "rdma_connect", "rsend"] {
            let rule = FaultRule::parse(&format!("call={function} nth=1 errno=EOPNOTSUPP")).unwrap();
            assert_eq!(check(&rule), None);
        }
    }
}
