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

/// Something that takes an event of the port or the device.
type Report = Box<dyn Fn(u32) + Send>;

/// The contexts that the program has opened, where there are rules.
static CONTEXTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

pub(super) fn is_port_down() -> bool {
    PORT_IS_DOWN.load(Ordering::Relaxed)
}

/// Has happen to the device of a program what rules say: their time counts from its first context.
/// Each context is told by `report`; `fail` ends all that the program has on its devices.
pub(super) fn begin(report: impl Fn(u32) + Send + 'static, fail: fn()) {
    static BEGUN: Once = Once::new();
    let Some(plan) = plan() else { return };
    CONTEXTS.lock().push(Box::new(report));
    BEGUN.call_once(|| {
        for (delay, rule) in plan.timed(None) {
            after(delay, move || happen(plan.due(rule), fail));
        }
    });
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
    CONTEXTS.lock().iter().for_each(|report| report(kind));
}
