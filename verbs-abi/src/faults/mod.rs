//! Faults on demand, as `RDDP_VERBS_FAULTS` and `fault` lines of the policy file ask for them
//! (`rddp-policy` has the rules).
//!
//! A process reads its rules with its first call, and without one each call costs the test of one
//! flag. What a rule counts, it counts for itself; each firing is told at level `info`.

mod plan;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use plan::{Plan, check};

/// Rules are set, or nobody has looked yet.
static MAY_FIRE: AtomicBool = AtomicBool::new(true);
static PLAN: OnceLock<Plan> = OnceLock::new();

/// Returns the rules of this process, which `read` reads once; `None`, at the cost of the test of
/// one flag, where there are none.
#[inline]
pub(crate) fn plan(read: impl FnOnce() -> Plan) -> Option<&'static Plan> {
    if MAY_FIRE.load(Ordering::Relaxed) { begun(read) } else { None }
}

#[cold]
fn begun(read: impl FnOnce() -> Plan) -> Option<&'static Plan> {
    let plan = PLAN.get_or_init(read);
    if plan.is_empty() {
        MAY_FIRE.store(false, Ordering::Relaxed);
        return None;
    }
    Some(plan)
}
