//! Counts in the text format of OpenMetrics, which Prometheus and its collectors read.

use std::fmt::Write;

use rddp_command::out::say;
use rddp_rnic::TerminateCode;
use rddp_stat::Counter;

use super::irdma;
use super::process::Process;
use super::sample::{Joined, Sample};

pub(super) fn print(sample: &Sample) {
    text(sample).lines().for_each(|line| say!("{line}"));
}

/// Returns the whole exposition: families of processes, families of connections, the end.
fn text(sample: &Sample) -> String {
    let mut out = Exposition(String::new());
    out.family("rddp_connections", "gauge", "Connections that there are");
    for (process, joined) in &sample.processes {
        out.sample("rddp_connections", &of_process(process), joined.len() as u64);
    }
    for counter in Counter::ALL {
        let name = format!("rddp_{}", counter.name());
        out.family(&name, "counter", counter.help());
        for (process, _) in sample.processes.iter().filter(|(process, _)| process.counts(*counter)) {
            out.sample(&format!("{name}_total"), &of_process(process), process.total().of(*counter));
        }
    }
    terminates(sample, &mut out);
    for counter in Counter::ALL {
        let name = format!("rddp_connection_{}", counter.name());
        out.family(&name, "counter", counter.help());
        for (process, joined) in
            sample.connections().filter(|(_, one)| one.rddp.identity.kind.counts(*counter))
        {
            let value = joined.rddp.counts.of(*counter);
            out.sample(&format!("{name}_total"), &of_connection(process, joined), value);
        }
    }
    aliases(sample, &mut out);
    out.0.push_str("# EOF\n");
    out.0
}

fn terminates(sample: &Sample, out: &mut Exposition) {
    let name = "rddp_terminates_by_code";
    out.family(name, "counter", "Terminates by code, with their names in the RFCs");
    for (process, _) in &sample.processes {
        for count in &process.terminates {
            for (direction, value) in [("sent", count.sent), ("received", count.received)] {
                let mut labels = of_process(process);
                labels.push(("code", format!("{:#06x}", count.code)));
                labels.push(("name", TerminateCode(count.code).to_string()));
                labels.push(("direction", direction.to_owned()));
                out.sample(&format!("{name}_total"), &labels, value);
            }
        }
    }
}

/// Writes the counters of connections under irdma's names.
fn aliases(sample: &Sample, out: &mut Exposition) {
    let all: Vec<_> = sample
        .connections()
        .map(|(process, joined)| {
            (of_connection(process, joined), irdma::aliases(&joined.rddp, joined.tcp.as_ref()))
        })
        .collect();
    let mut names: Vec<_> =
        all.iter().flat_map(|(_, aliases)| aliases.iter().map(|(name, _)| *name)).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let family = format!("irdma_{name}");
        out.family(
            &family,
            "counter",
            "A counter of a connection by the name that the irdma driver has for it",
        );
        for (labels, aliases) in &all {
            if let Some((_, value)) = aliases.iter().find(|(other, _)| *other == name) {
                out.sample(&format!("{family}_total"), labels, *value);
            }
        }
    }
}

type Labels = Vec<(&'static str, String)>;

fn of_process(process: &Process) -> Labels {
    vec![("pid", process.pid.to_string()), ("command", process.command.clone())]
}

fn of_connection(process: &Process, joined: &Joined) -> Labels {
    let identity = &joined.rddp.identity;
    let address =
        |address: Option<std::net::SocketAddr>| address.map_or_else(String::new, |at| at.to_string());
    let mut labels = of_process(process);
    labels.push(("kind", identity.kind.name().to_owned()));
    labels.push(("number", identity.number.to_string()));
    labels.push(("cookie", format!("{:x}", identity.cookie)));
    labels.push(("local", address(identity.local)));
    labels.push(("peer", address(identity.peer)));
    labels
}

struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: u64) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(self.0, "{name}{{{}}} {value}", labels.join(","));
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use rddp_stat::{Connection, TerminateCount};

    use super::*;

    #[test]
    fn an_exposition_has_a_type_for_each_name_and_an_end() {
        let mut rddp = Connection::default();
        rddp.counts.set(Counter::ReadsReceived, 5);
        let process = Process {
            pid: 7,
            command: "a \"b\"\\".into(),
            connections: vec![rddp],
            terminates: vec![TerminateCount { code: 0x0101, sent: 2, received: 0 }],
            ..Process::default()
        };
        let processes = vec![(process, vec![Joined { rddp, tcp: None }])];
        let text = text(&Sample::of(processes));
        assert!(text.ends_with("# EOF\n"));
        assert!(
            text.contains("rddp_reads_received_total{pid=\"7\",command=\"a \\\"b\\\"\\\\\"} 5\n"),
            "{text}"
        );
        assert!(text.contains("base or bounds violation)\",direction=\"sent\"} 2\n"), "{text}");
        assert!(text.contains("irdma_iwInRdmaReads_total{") && !text.contains("tcpInSegs"));
        let mut known = "";
        for line in text.lines().filter(|line| *line != "# EOF") {
            match line.strip_prefix("# TYPE ") {
                Some(family) => known = family.split(' ').next().unwrap(),
                None => assert!(line.strip_prefix("# HELP ").unwrap_or(line).starts_with(known), "{line}"),
            }
        }
    }
}
