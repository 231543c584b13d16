//! Waiting, which all examples do.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use rddp_rnic::{Completion, CompletionQueue, ConnectOptions, ConnectRequest, Listener, Rnic};

/// The result of most functions here.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Time that an end waits for the other.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the next completion, which is that of a success.
///
/// # Errors
/// A request has failed, or nothing completes in time.
pub fn next(cq: &CompletionQueue) -> Outcome<Completion> {
    Ok(next_of_any_status(cq)?.ok()?)
}

/// Returns the next completion.
///
/// # Errors
/// Nothing completes in time.
pub fn next_of_any_status(cq: &CompletionQueue) -> Outcome<Completion> {
    loop {
        if let Some(completion) = cq.poll_one() {
            return Ok(completion);
        }
        if !cq.wait(Some(PATIENCE))? {
            return Err("nothing has completed for a while".into());
        }
    }
}

/// Listens, and says where.
///
/// # Errors
/// The address is none, or none to listen on.
pub fn listen(rnic: &Rnic, addr: &str) -> Outcome<Listener> {
    let listener = rnic.listen(addr.parse::<SocketAddr>()?, &ConnectOptions::default())?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}

/// Sleeps until somebody asks to be connected.
///
/// # Errors
/// The listener has failed.
pub fn asked(listener: &Listener) -> Outcome<ConnectRequest> {
    loop {
        if let Some(request) = listener.accept(None)? {
            return Ok(request);
        }
    }
}
