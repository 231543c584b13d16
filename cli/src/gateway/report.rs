//! Lines of a gateway, for people and as JSON.

use std::collections::HashMap;
use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rddp_command::addr;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out;
use rddp_command::seldom::Seldom;
use rddp_command::units;
use rddp_gateway::{Counts, Ends, Event, Options, Reason, Route};
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
    #[serde(flatten)]
    ends: BothEnds<'a>,
}

#[derive(Serialize)]
struct Moved<'a> {
    moved: &'a str,
    to: &'a str,
    #[serde(flatten)]
    ends: BothEnds<'a>,
    #[serde(flatten)]
    numbers: Numbers,
}

#[derive(Serialize)]
struct Ended<'a> {
    ended: &'a str,
    to: &'a str,
    #[serde(flatten)]
    ends: BothEnds<'a>,
    #[serde(flatten)]
    numbers: Numbers,
    reason: String,
    /// Code of the Terminate that the plain host got, or has sent.
    terminate: Option<String>,
}

/// Both legs, each by this host's address and the other end's.
#[derive(Serialize)]
struct BothEnds<'a> {
    tcp: [Option<SocketAddr>; 2],
    device: &'a str,
    device_leg: [Option<SocketAddr>; 2],
}

impl<'a> From<&'a Ends> for BothEnds<'a> {
    fn from(ends: &'a Ends) -> Self {
        let plain = |leg: [Option<SocketAddr>; 2]| leg.map(|end| end.map(addr::plain));
        let (tcp, device_leg) = (plain(ends.tcp), plain(ends.device));
        BothEnds { tcp, device: &ends.device_name, device_leg }
    }
}

#[derive(Serialize)]
struct Numbers {
    /// Operations of the plain host.
    writes: u64,
    reads: u64,
    atomics: u64,
    sends: u64,
    /// Sends of the device's host.
    receives: u64,
    octets_in: u64,
    octets_out: u64,
}

impl From<Counts> for Numbers {
    fn from(counts: Counts) -> Self {
        let Counts { writes, reads, atomics, sends, receives, octets_in, octets_out } = counts;
        Numbers { writes, reads, atomics, sends, receives, octets_in, octets_out }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { writes, reads, atomics, sends, receives, octets_in, octets_out } = self;
        let (octets_in, octets_out) = (units::octets(*octets_in), units::octets(*octets_out));
        write!(f, "{writes} writes, {reads} reads, {atomics} atomics, {sends} sends, ")?;
        write!(f, "{receives} received; {octets_in} in, {octets_out} out")
    }
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
            Event::Opened { peer, to, ends } => self.opened(&name(peer), to, ends),
            Event::Moved { peer, to, ends, counts } => self.moved(&name(peer), to, ends, counts.into()),
            Event::Ended { peer, to, ends, counts, reason } => {
                self.ended(&name(peer), to, ends, counts.into(), &reason);
            }
            Event::Refused { peer, to, reason } => self.refused(&name(peer), to, &reason),
            Event::CannotAccept { reason } => {
                let Some(more) = self.due(&reason) else { return };
                out::server_warns(format_args!("taking connections: {reason}{more}"));
            }
        }
    }

    fn opened(&self, peer: &str, to: &str, ends: &Ends) {
        if self.json {
            out::json_event(&Opened { opened: peer, to, ends: ends.into() });
        } else {
            out::event(format_args!("{peer}: connected to {to}"));
        }
    }

    fn moved(&self, peer: &str, to: &str, ends: &Ends, numbers: Numbers) {
        if self.json {
            out::json_event(&Moved { moved: peer, to, ends: ends.into(), numbers });
        } else {
            out::event(format_args!("{peer}: {numbers}"));
        }
    }

    fn ended(&self, peer: &str, to: &str, ends: &Ends, numbers: Numbers, reason: &Reason) {
        if self.json {
            let terminate = reason.terminate().map(|code| format!("{:#06x}", code.0));
            let (ends, reason) = (ends.into(), reason.to_string());
            out::json_event(&Ended { ended: peer, to, ends, numbers, reason, terminate });
            return;
        }
        if reason.is_orderly() {
            out::event(format_args!("{peer}: {reason} ({numbers})"));
            return;
        }
        let code = reason.terminate().map_or_else(String::new, |code| format!("; Terminate {code}"));
        out::client_failed(peer, &failure(reason, |cause| format!("{cause}{code} ({numbers})")));
    }

    fn refused(&self, peer: &str, to: &str, reason: &Reason) {
        let Some(more) = self.due(reason) else { return };
        out::client_failed(peer, &failure(reason, |cause| format!("not connected to {to}: {cause}{more}")));
    }

    /// Returns the end of a line, unless one like it was printed just now.
    fn due(&self, reason: &Reason) -> Option<String> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.entry(discriminant(reason)).or_default().due(Instant::now())
    }
}

/// Returns the failure of a connection. What this host lacks is no fault of either peer.
fn failure(reason: &Reason, text: impl FnOnce(String) -> String) -> Failure {
    let kind = if reason.is_of_this_host() { FailureKind::Failed } else { FailureKind::Peer };
    let failure = Failure::new(kind, text(reason.cause()));
    match reason.remedy() {
        Some(remedy) => failure.remedy(remedy),
        None => failure,
    }
}

fn name(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "a peer".to_owned(), |peer| addr::plain(peer).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connections_numbers_are_told_with_both_ends() {
        let address = |text: &str| text.parse().ok();
        let ends = Ends {
            tcp: [address("[::ffff:192.0.2.1]:7471"), address("[::ffff:192.0.2.9]:4000")],
            device: [address("198.51.100.1:9"), None],
            device_name: "mlx5_0".to_owned(),
        };
        let numbers = Counts { writes: 3, octets_in: 5, ..Counts::default() }.into();
        let moved = Moved { moved: "192.0.2.9:4000", to: "server:1", ends: (&ends).into(), numbers };
        let json = serde_json::to_value(&moved).unwrap();
        assert_eq!(json["tcp"], serde_json::json!(["192.0.2.1:7471", "192.0.2.9:4000"]));
        assert_eq!(json["device_leg"], serde_json::json!(["198.51.100.1:9", null]));
        assert_eq!(
            (&json["device"], &json["writes"], &json["octets_in"]),
            (&"mlx5_0".into(), &3.into(), &5.into())
        );
    }

    #[test]
    fn of_each_kind_of_refusal_one_line_stands_for_all_of_its_time() {
        let report = Report::new(false);
        let refusals = [Reason::TooLong("a"), Reason::TooLong("b"), Reason::Stopped, Reason::TooLong("c")];
        let due = refusals.map(|reason| report.due(&reason).is_some());
        assert_eq!(due, [true, false, true, false]);
    }
}
