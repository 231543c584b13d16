//! Lines of a gateway, for people and as JSON.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rddp_command::addr;
use rddp_command::failure::Failure;
use rddp_command::out;
use rddp_command::seldom::Seldom;
use rddp_command::units;
use rddp_gateway::{Counts, Event, Options, Reason, Route};
use serde::Serialize;

#[derive(Serialize)]
struct Listening<'a> {
    listening: SocketAddr,
    /// The device that listens; TCP where there is none.
    device: Option<&'a str>,
    to: &'a str,
}

#[derive(Serialize)]
struct Opened<'a> {
    opened: &'a str,
    to: &'a str,
}

#[derive(Serialize)]
struct Ended<'a> {
    ended: &'a str,
    to: &'a str,
    /// Operations of the plain host.
    writes: u64,
    reads: u64,
    atomics: u64,
    sends: u64,
    /// Sends of the device's host.
    receives: u64,
    octets_in: u64,
    octets_out: u64,
    reason: String,
    /// Code of the Terminate that the plain host got, or has sent.
    terminate: Option<String>,
}

/// The output of a gateway.
pub(super) struct Report {
    json: bool,
    /// Refusals may come in crowds: of each kind, one line stands for all of its time.
    refusals: Mutex<HashMap<Discriminant<Reason>, Seldom>>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Report { json, refusals: Mutex::default() }
    }

    pub(super) fn listening(&self, route: &Route) {
        let (device, listening) = match route {
            Route::FromPlain { listener, .. } => (None, listener.local_addr().ok()),
            Route::FromDevice { listener, .. } => (listener.device().name().into(), Some(listener.address())),
        };
        let Some(listening) = listening.map(addr::plain) else { return };
        let to = route.to();
        if self.json {
            out::json_event(&Listening { listening, device, to });
            return;
        }
        let by = device.map_or_else(|| "TCP".to_owned(), str::to_owned);
        let over = match route {
            Route::FromPlain { device, .. } => device.name(),
            Route::FromDevice { .. } => "TCP",
        };
        out::event(format_args!("listening on {listening} ({by}) for {to} ({over})"));
    }

    pub(super) fn begins(&self, pairs: usize, options: &Options) {
        if !self.json {
            let memory = units::octets(options.memory() as u64);
            out::event(format_args!("at most {pairs} connections, with {memory} of registered memory each"));
            out::event(format_args!("a Send of the device's host completes when the gateway has it"));
        }
    }

    /// Prints an event of a connection.
    pub(super) fn tell(&self, event: Event<'_>) {
        match event {
            Event::Opened { peer, to } => self.opened(&name(peer), to),
            Event::Ended { peer, to, counts, reason } => self.ended(&name(peer), to, counts, &reason),
            Event::Refused { peer, reason, .. } => self.refused(&name(peer), &reason),
            Event::CannotAccept { reason } => {
                let Some(more) = self.due(&reason) else { return };
                out::server_warns(format_args!("taking connections: {reason}{more}"));
            }
        }
    }

    fn opened(&self, peer: &str, to: &str) {
        if self.json {
            out::json_event(&Opened { opened: peer, to });
        } else {
            out::event(format_args!("{peer}: connected to {to}"));
        }
    }

    fn ended(&self, peer: &str, to: &str, counts: Counts, reason: &Reason) {
        let Counts { writes, reads, atomics, sends, receives, octets_in, octets_out } = counts;
        if self.json {
            let terminate = reason.terminate().map(|code| format!("{:#06x}", code.0));
            let (ended, reason) = (peer, reason.to_string());
            out::json_event(&Ended {
                ended,
                to,
                writes,
                reads,
                atomics,
                sends,
                receives,
                octets_in,
                octets_out,
                reason,
                terminate,
            });
            return;
        }
        let did = format!(
            "{writes} writes, {reads} reads, {atomics} atomics, {sends} sends, {receives} received; {} in, {} out",
            units::octets(octets_in),
            units::octets(octets_out)
        );
        if reason.is_orderly() {
            out::event(format_args!("{peer}: {reason} ({did})"));
            return;
        }
        let code = reason.terminate().map_or_else(String::new, |code| format!("; Terminate {code}"));
        out::client_failed(peer, &Failure::peer(format!("{reason}{code} ({did})")));
    }

    fn refused(&self, peer: &str, reason: &Reason) {
        let Some(more) = self.due(reason) else { return };
        out::client_failed(peer, &Failure::peer(format!("refused: {reason}{more}")));
    }

    /// Returns the end of a line, unless one like it was printed just now.
    fn due(&self, reason: &Reason) -> Option<String> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.entry(discriminant(reason)).or_default().due(Instant::now())
    }
}

fn name(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "a peer".to_owned(), |peer| addr::plain(peer).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_of_refusal_one_line_stands_for_all_of_its_time() {
        let report = Report::new(false);
        let refusals = [Reason::TooLong("a"), Reason::TooLong("b"), Reason::Stopped, Reason::TooLong("c")];
        let due = refusals.map(|reason| report.due(&reason).is_some());
        assert_eq!(due, [true, false, true, false]);
    }
}
