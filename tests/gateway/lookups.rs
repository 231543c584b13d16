//! Names of hosts behind the gateway, which a resolver looks up: here one that a test directs.
#![allow(unsafe_code)] // a function that the standard library calls

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use rddp_gateway::Reason;
use rddp_rnic::{ConnectError, ConnectOptions};
use rddp_verbs_device::{ConnectFailed, Event, Offer};

use crate::devices::{self, Kind};
use crate::troubles::in_a_hurry;
use crate::world::{PATIENCE, Plain, gateway_to, reverse, world};

/// True when the resolver answers for [`SILENT`].
static ANSWERS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

const SILENT: &str = "silent.invalid:7";

/// The C library's function, in its place: it knows no name, and of one it does not say so yet.
///
/// # Safety
/// The name is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    _service: *const c_char,
    _hints: *const libc::addrinfo,
    _found: *mut *mut libc::addrinfo,
) -> c_int {
    // SAFETY: promised by the caller.
    if SILENT.starts_with(&*unsafe { CStr::from_ptr(name) }.to_string_lossy()) {
        let answers = ANSWERS.0.lock().unwrap();
        let _ = ANSWERS.1.wait_timeout_while(answers, PATIENCE, |answers| !*answers);
    }
    libc::EAI_NONAME
}

#[test]
fn a_name_that_no_resolver_answers_for_is_given_up_with_a_reason() {
    let world = world("gw_names", Kind::Rxe);
    let gateway = gateway_to(&world.host, &SILENT, in_a_hurry());
    let plain = Plain::new(&world.rnic);
    let connected = plain.qp.connect(gateway.address, &ConnectOptions::default());
    let Err(ConnectError::Rejected { private_data }) = connected else { panic!("{connected:?}") };
    assert_eq!(private_data, b"rddp gateway: looking up the host behind it took too long");
    assert!(matches!(gateway.refused(), Reason::TooLong(_)));
    let (back, host) = reverse("gw_names_back", Kind::Rxe, &SILENT, in_a_hurry());
    let mut end = host.ask(back.address, Offer::default());
    let Event::Failed(ConnectFailed::Rejected { private_data }) = devices::event(&mut end) else {
        panic!("no answer")
    };
    assert!(private_data.starts_with(b"rddp gateway: looking up the host behind it took too long"));
    // Both gateways end. The resolver has not answered, and two threads wait for that.
    let places = [gateway.places.clone(), back.places.clone()];
    drop((gateway, back));
    assert_eq!(places.each_ref().map(|places| places.load(Ordering::Relaxed)), [1, 1]);
    *ANSWERS.0.lock().unwrap() = true;
    ANSWERS.1.notify_all();
    let since = Instant::now();
    while places.iter().any(|places| places.load(Ordering::Relaxed) > 0) {
        assert!(since.elapsed() < PATIENCE, "a place is not free again");
        std::thread::yield_now();
    }
}

/// A stranger learns nothing of names behind the gateway.
#[test]
fn a_name_that_is_not_known_is_told_to_the_log_alone() {
    let world = world("gw_nameless", Kind::Rxe);
    let gateway = gateway_to(&world.host, &"nowhere.invalid:7", in_a_hurry());
    let plain = Plain::new(&world.rnic);
    let connected = plain.qp.connect(gateway.address, &ConnectOptions::default());
    let Err(ConnectError::Rejected { private_data }) = connected else { panic!("{connected:?}") };
    assert_eq!(private_data, b"rddp gateway: the host behind it is not reached");
    let reason = gateway.refused();
    assert!(reason.cause().starts_with("looking up nowhere.invalid:7: "), "{reason}");
    assert!(reason.remedy().is_some_and(|remedy| remedy.contains("getent hosts")));
}
