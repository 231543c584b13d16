//! Ports that go down and devices that fail, on demand.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rddp_policy::{Fault, PortEffect};

use super::abi::event;
use super::demanded::after;
use super::gate::plan;

static PORT_IS_DOWN: AtomicBool = AtomicBool::new(false);

/// The contexts that the program has open, where there are rules: the address of each, and what
/// takes its events of the port and the device.
static CONTEXTS: Mutex<Vec<(usize, Report)>> = Mutex::new(Vec::new());

type Report = Box<dyn Fn(u32) + Send>;

pub(super) fn is_port_down() -> bool {
    PORT_IS_DOWN.load(Ordering::Relaxed)
}

/// Has happen to the device of a program what rules say: their time counts from its first context.
/// A context, which has this address, is told by `report` until [`forget`]; `fail` ends all that
/// the program has on its devices.
pub(super) fn begin(context: usize, report: impl Fn(u32) + Send + 'static, fail: fn()) {
    static BEGUN: Once = Once::new();
    let Some(plan) = plan() else { return };
    CONTEXTS.lock().push((context, Box::new(report)));
    BEGUN.call_once(|| {
        for (delay, rule) in plan.timed(None) {
            after(delay, move || happen(plan.due(rule), fail));
        }
    });
}

/// Tells a context no more, which is closed.
pub(super) fn forget(context: usize) {
    CONTEXTS.lock().retain(|(open, _)| *open != context);
}

fn happen(fault: &Fault, fail: fn()) {
    match fault {
        Fault::Port { effect: PortEffect::Down(time), .. } => down(*time),
        Fault::Port { effect: PortEffect::Gid, .. } => report(event::GID_CHANGE),
        Fault::Device { .. } => {
            report(event::DEVICE_FATAL);
            fail();
        }
        _ => {}
    }
}

fn down(time: Duration) {
    PORT_IS_DOWN.store(true, Ordering::Relaxed);
    report(event::PORT_ERR);
    thread::sleep(time);
    PORT_IS_DOWN.store(false, Ordering::Relaxed);
    report(event::PORT_ACTIVE);
}

fn report(kind: u32) {
    CONTEXTS.lock().iter().for_each(|(_, report)| report(kind));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_context_that_is_closed_is_told_nothing() {
        static TOLD: AtomicU32 = AtomicU32::new(0);
        for context in [1, 2] {
            let report: Report = Box::new(|kind| {
                TOLD.fetch_add(kind, Ordering::Relaxed);
            });
            CONTEXTS.lock().push((context, report));
        }
        forget(1);
        report(event::PORT_ERR);
        assert_eq!(TOLD.load(Ordering::Relaxed), event::PORT_ERR);
    }
}
