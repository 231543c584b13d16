//! The rules of a process, with what they have counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use rddp_policy::{CallEffect, Count, Fault, FaultOperation, FaultRule, Moment, RequestEffect};

/// Rules at work.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    rules: Vec<Armed>,
    /// A rule has had the device fail: it makes nothing any more.
    has_failed: AtomicBool,
}

/// A rule at work.
#[derive(Debug)]
struct Armed {
    rule: FaultRule,
    /// The calls, requests or octets that it has seen.
    seen: AtomicU64,
    fired: AtomicU64,
}

impl Plan {
    pub(crate) fn new(rules: &[FaultRule]) -> Self {
        let (seen, fired) = (|| AtomicU64::new(0), || AtomicU64::new(0));
        let armed = |rule: &FaultRule| Armed { rule: rule.clone(), seen: seen(), fired: fired() };
        Plan { rules: rules.iter().map(armed).collect(), has_failed: AtomicBool::new(false) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Counts a call. Returns the error with which it fails, and sleeps before, as rules say.
    pub(crate) fn call(&self, function: &str) -> Option<Errno> {
        let mut failed =
            (self.has_failed.load(Ordering::Relaxed) && needs_device(function)).then_some(Errno::EIO);
        for armed in self.rules.iter().filter(|armed| is_of_call(&armed.rule, function)) {
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

    /// Counts a request of the queue pair in this place; `None`: of a shared queue. Returns what
    /// happens to it: of several rules, what the first says.
    pub(crate) fn request(&self, operation: FaultOperation, place: Option<u32>) -> Option<RequestEffect> {
        let mut found = None;
        for armed in &self.rules {
            if let Fault::Request { operation: of, qp, count, effect } = armed.rule.fault()
                && *of == operation
                && (qp.is_none() || *qp == place)
                && armed.fires(*count, "request")
            {
                found = found.or(Some(*effect));
            }
        }
        found
    }

    /// Counts octets that were posted to the queue pair in this place. Returns whether its
    /// connection ends now.
    pub(crate) fn octets(&self, place: u32, octets: u64) -> bool {
        let mut ends = false;
        for armed in &self.rules {
            if let Fault::Connection { qp, moment: Moment::After(limit) } = armed.rule.fault()
                && *qp == place
            {
                let before = armed.seen.fetch_add(octets, Ordering::Relaxed);
                if before < *limit && before + octets >= *limit {
                    armed.tell(&format!("{} octets", before + octets));
                    ends = true;
                }
            }
        }
        ends
    }

    /// Returns the rules of a queue pair's age, or, without a place, of the device's, each with its
    /// time.
    pub(crate) fn timed(&self, place: Option<u32>) -> Vec<(Duration, usize)> {
        let time_of = |armed: &Armed| match (armed.rule.fault(), place) {
            (Fault::Connection { qp, moment: Moment::At(at) }, Some(place)) if *qp == place => Some(*at),
            (Fault::Port { at, .. } | Fault::Device { at }, None) => Some(*at),
            _ => None,
        };
        self.rules.iter().enumerate().filter_map(|(rule, armed)| Some((time_of(armed)?, rule))).collect()
    }

    /// Returns the fault of a rule of [`timed`](Self::timed), whose time has come.
    pub(crate) fn due(&self, rule: usize) -> &Fault {
        let armed = &self.rules[rule];
        armed.tell("its time has come");
        let fault = armed.rule.fault();
        if matches!(fault, Fault::Device { .. }) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        fault
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

/// Returns whether a function makes or changes an object: a device that has failed refuses that,
/// and lets objects be destroyed.
fn needs_device(function: &str) -> bool {
    let kinds = ["create_", "alloc_", "reg_", "rereg_", "modify_", "resize_", "open_", "bind_"];
    let of_manager = ["rdma_create_qp", "rdma_create_qp_ex", "rdma_create_srq"];
    let is_of = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
    function.strip_prefix("ibv_").is_some_and(is_of) || of_manager.contains(&function)
}

/// Returns whether a rule is of calls of this function, also by the name that the program has
/// written: where a compiler does not know the rights, headers make of a registration another.
fn is_of_call(rule: &FaultRule, function: &str) -> bool {
    let written: &[&str] =
        if function == "ibv_reg_mr_iova2" { &["ibv_reg_mr", "ibv_reg_mr_iova"] } else { &[] };
    rule.is_of_call(function) || written.iter().any(|name| rule.is_of_call(name))
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
    let name = match name {
        "EWOULDBLOCK" => "EAGAIN",
        "EDEADLOCK" => "EDEADLK",
        "ENOTSUP" => "EOPNOTSUPP",
        name => name,
    };
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
        let fired = plan.rules.iter().map(|armed| armed.fired.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(fired, [1, 2, 1]);
    }

    #[test]
    fn a_registration_has_the_name_that_the_program_has_written() {
        let plan = plan("call=ibv_reg_mr nth=2 errno=ENOMEM; call=*iova2 nth=2 errno=EIO");
        let failed = ["ibv_reg_mr_iova2", "ibv_reg_mr", "ibv_reg_mr_iova2"].map(|name| plan.call(name));
        assert_eq!(failed, [None, Some(Errno::ENOMEM), Some(Errno::EIO)]);
    }

    #[test]
    fn requests_are_counted_by_operation_and_queue_pair() {
        let plan =
            plan("op=send nth=2 drop; op=write qp=2 every=1 delay=1s; op=recv nth=1 status=LOC_LEN_ERR");
        let (send, write) = (FaultOperation::Send, FaultOperation::Write);
        assert_eq!([1, 2].map(|place| plan.request(send, Some(place))), [None, Some(RequestEffect::Drop)]);
        let delay = Some(RequestEffect::Delay(Duration::from_secs(1)));
        assert_eq!([1, 2, 2].map(|place| plan.request(write, Some(place))), [None, delay, delay]);
        assert!(plan.request(FaultOperation::Recv, None).is_some(), "of a shared queue");
    }

    #[test]
    fn octets_and_time_are_those_of_a_queue_pair() {
        let plan = plan("qp=1 after=10 reset; qp=2 at=3s reset; port at=1s gid; device at=2s fatal");
        let counted = [(2, 99), (1, 9), (1, 1), (1, 99)].map(|(place, octets)| plan.octets(place, octets));
        assert_eq!(counted, [false, false, true, false]);
        let seconds = Duration::from_secs;
        assert_eq!((plan.timed(Some(1)), plan.timed(Some(2))), (vec![], vec![(seconds(3), 1)]));
        assert_eq!(plan.timed(None), [(seconds(1), 2), (seconds(2), 3)]);
        assert!(matches!(plan.due(3), Fault::Device { .. }));
    }

    #[test]
    fn a_device_that_has_failed_makes_nothing() {
        let plan = plan("device at=0s fatal; call=ibv_alloc_pd nth=2 errno=ENOMEM");
        assert_eq!(plan.call("ibv_alloc_pd"), None);
        plan.due(0);
        for function in
            ["ibv_alloc_pd", "ibv_create_qp_ex", "ibv_reg_mr_iova2", "rdma_create_qp", "ibv_modify_qp"]
        {
            assert_eq!(plan.call(function), Some(Errno::EIO), "{function}");
        }
        for function in
            ["ibv_destroy_qp", "ibv_dealloc_pd", "ibv_dereg_mr", "ibv_poll_cq", "rdma_create_event_channel"]
        {
            assert_eq!(plan.call(function), None, "{function}");
        }
    }

    #[test]
    fn what_there_is_not_is_told() {
        let told = |text: &str| check(&FaultRule::parse(text).unwrap()).unwrap().0;
        assert!(told("call=ibv_nothing nth=1 errno=EIO").contains("\"ibv_nothing\""));
        assert!(told("call=ibv_wc_status_str nth=1 errno=EIO").contains("may fail"));
        assert!(told("call=* nth=1 errno=ENOSUCH").contains("ENOSUCH"));
        assert_eq!(errno("ENOTSUP"), Some(Errno::EOPNOTSUPP));
        for function in ["ibv_reg_mr", "ibv_query_gid_ex", "ibv_post_send", "rdma_connect", "rsend"] {
            let rule = FaultRule::parse(&format!("call={function} nth=1 errno=EOPNOTSUPP")).unwrap();
            assert_eq!(check(&rule), None);
        }
    }
}
