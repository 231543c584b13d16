//! Ends that are not in order: of the gateway itself, and of its plain hosts.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rddp_gateway::{Event, Options, QUEUES, Route, RunError};
use rddp_verbs_device::Listener;

use crate::devices::{Host, Kind, host};
use crate::world::PATIENCE;

fn route(host: &Host) -> Route {
    let listener = Listener::open(&host.device, host.address(1, 0), QUEUES, 8).unwrap();
    Route::FromDevice { listener, to: "127.0.0.1:1".to_owned() }
}

#[test]
fn a_gateway_ends_when_the_device_of_its_last_listener_is_removed() {
    let (first, second) = (host("gw_gone1", Kind::Rxe, 0), host("gw_gone2", Kind::Rxe, 0));
    let routes = [route(&first), route(&second)];
    let (until, has_told, has_gone) = (Instant::now() + PATIENCE, AtomicBool::new(false), Cell::new(false));
    first.remove();
    let tell = |event: Event<'_>| {
        assert!(matches!(event, Event::CannotAccept { .. }), "{event:?}");
        assert!(!has_told.swap(true, Ordering::Relaxed), "told twice");
    };
    let is_stopped = || {
        // The second device goes when the gateway has gone on without the first.
        if has_told.load(Ordering::Relaxed) && !has_gone.replace(true) {
            second.remove();
        }
        Instant::now() > until
    };
    let ended = rddp_gateway::run(&routes, &Options::default(), |_| Ok(()), tell, is_stopped);
    let Err(RunError::NoListener(reason)) = ended else { panic!("{ended:?}") };
    assert!(reason.to_string().contains("gw_gone2 was removed"), "{reason}");
}
