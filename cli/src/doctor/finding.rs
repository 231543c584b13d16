//! A finding: one fact about the host, with advice if it should be changed.

use rddp_command::out::say;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) topic: Topic,
    pub(super) subject: String,
    pub(super) value: String,
    pub(super) level: Level,
    /// The change to make.
    pub(super) advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Topic {
    Interfaces,
    Tcp,
    Limits,
    Processor,
    Sockets,
    Verbs,
    Device,
    RdmaDevices,
    Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The fact is as it should be.
    Ok,
    /// The fact is worth knowing.
    Note,
    /// The fact could be improved.
    Warn,
    /// The fact prevents rddp from working.
    Bad,
}

impl Finding {
    pub(super) fn ok(topic: Topic, subject: impl Into<String>, value: impl Into<String>) -> Self {
        Finding { topic, subject: subject.into(), value: value.into(), level: Level::Ok, advice: None }
    }

    /// Sets level and advice of a finding that is not as it should be, or is worth knowing.
    pub(super) fn but(mut self, level: Level, advice: impl Into<String>) -> Self {
        (self.level, self.advice) = (level, Some(advice.into()));
        self
    }

    /// Does what [`but`](Self::but) does if `so`, and otherwise nothing.
    pub(super) fn but_if(self, so: bool, level: Level, advice: impl Into<String>) -> Self {
        if so { self.but(level, advice) } else { self }
    }
}

impl Topic {
    fn title(self) -> &'static str {
        match self {
            Topic::Interfaces => "Interfaces",
            Topic::Tcp => "TCP",
            Topic::Limits => "Limits",
            Topic::Processor => "Kernel and processor",
            Topic::Sockets => "Extended sockets",
            Topic::Verbs => "RDMA programs (rddp run --verbs, --roce)",
            Topic::Device => "Limits of the library rddp-rnic, for programs in Rust",
            Topic::RdmaDevices => "RDMA devices of the kernel (rddp uses those that --device names, if any)",
            Topic::Peer => "The other host",
        }
    }
}

pub(super) fn print(findings: &[Finding]) {
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    let mut last = None;
    for finding in findings {
        if last.replace(finding.topic) != Some(finding.topic) {
            say!("{}", finding.topic.title());
        }
        let mark = match finding.level {
            Level::Ok | Level::Note => ' ',
            Level::Warn => '*',
            Level::Bad => '!',
        };
        say!("{mark} {:<width$}  {}", finding.subject, finding.value);
        if let Some(advice) = &finding.advice {
            say!("  {:<width$}  -> {advice}", "");
        }
    }
}
