//! One thing that was looked at.

use serde::Serialize;

use crate::out::say;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) topic: Topic,
    pub(super) subject: String,
    pub(super) value: String,
    pub(super) level: Level,
    /// What to change.
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
    Device,
    RdmaDevices,
    Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Could be better.
    Warn,
    /// In the way.
    Bad,
}

impl Finding {
    pub(super) fn ok(topic: Topic, subject: impl Into<String>, value: impl Into<String>) -> Self {
        Finding { topic, subject: subject.into(), value: value.into(), level: Level::Ok, advice: None }
    }

    /// Something other than it should be, or worth knowing.
    pub(super) fn but(mut self, level: Level, advice: impl Into<String>) -> Self {
        (self.level, self.advice) = (level, Some(advice.into()));
        self
    }

    /// Something other than it should be, if `so`.
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
            Topic::Device => "rddp's device",
            Topic::RdmaDevices => "RDMA devices of the kernel (rddp uses none of them)",
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
