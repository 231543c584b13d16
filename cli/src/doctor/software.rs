//! The limits of the library `rddp-rnic`: what a Rust program may ask of its device. RDMA programs
//! in C see fewer (`verbs`).

use rddp_rnic::{Atomics, Capabilities, Error, Rnic};

use super::finding::{Finding, Level, Topic};

pub(super) fn inspect() -> Vec<Finding> {
    match Rnic::open() {
        Ok(rnic) => findings(&rnic.capabilities(), Topic::Device, ""),
        Err(error) => vec![cannot_open(&error)],
    }
}

fn cannot_open(error: &Error) -> Finding {
    let advice = match error {
        Error::Device(_) | Error::NamedDevice { .. } => {
            "without the variable RDDP_DEVICE, rddp moves the octets itself, over TCP"
        }
        _ => "nothing of rddp works without it: see the limits above",
    };
    Finding::ok(Topic::Device, "device", format!("cannot be opened: {error}")).but(Level::Bad, advice)
}

/// Returns what a device has, each subject behind `prefix`.
pub(super) fn findings(device: &Capabilities, topic: Topic, prefix: &str) -> Vec<Finding> {
    let Capabilities { max_message, max_sge, max_inline, max_ird, max_ord, max_cqes, max_stags, .. } = device;
    [
        ("requests", format!("up to {max_sge} elements, or {max_inline} octets inline")),
        ("messages", format!("up to {max_message} octets; {} of Immediate Data", device.immediate_len)),
        ("Reads and atomics", format!("{max_ird} in, {max_ord} out at a time; {}", atomics(device.atomics))),
        ("queue pairs", bounded(device.max_qps, "as many as there are descriptors and memory for")),
        (
            "queues",
            format!("requests: {}; completions: {max_cqes}", bounded(device.max_requests, "any number")),
        ),
        ("memory", format!("{max_stags} regions and windows")),
        ("operations", operations(device)),
        (
            "private data",
            format!(
                "{} octets to connect, {} to accept, {} to reject",
                device.max_request_data, device.max_reply_data, device.max_reject_data
            ),
        ),
    ]
    .map(|(subject, value)| Finding::ok(topic, format!("{prefix}{subject}"), value))
    .into()
}

fn operations(device: &Capabilities) -> String {
    let has = [
        ("memory windows", device.windows),
        ("Send with Invalidate", device.send_invalidate),
        ("shared receive queues", device.shared_receives),
        ("order within a Write", device.data_in_order),
    ];
    has.map(|(what, is_there)| format!("{}{what}", if is_there { "" } else { "no " })).join(", ")
}

fn atomics(kind: Atomics) -> &'static str {
    match kind {
        Atomics::None => "no atomics",
        Atomics::Plain => "atomics without masks",
        Atomics::Masked => "atomics with masks",
        _ => "atomics of another kind",
    }
}

fn bounded(limit: Option<usize>, otherwise: &str) -> String {
    limit.map_or_else(|| otherwise.to_owned(), |max| max.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_lacks_is_said() {
        let software = Rnic::open().unwrap().capabilities();
        let value = |device: &Capabilities, subject: &str| {
            findings(device, Topic::Device, "")
                .into_iter()
                .find(|finding| finding.subject == subject)
                .unwrap()
                .value
        };
        assert_eq!(value(&software, "Reads and atomics"), "1024 in, 1024 out at a time; atomics with masks");
        let lesser = Capabilities { max_qps: Some(7), atomics: Atomics::None, max_ord: 0, ..software };
        assert_eq!(value(&lesser, "Reads and atomics"), "1024 in, 0 out at a time; no atomics");
        assert_eq!(value(&lesser, "queue pairs"), "7");
        assert_eq!(value(&lesser, "queues"), "requests: any number; completions: 4194304");
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_in_the_way() {
        let found = cannot_open(&Error::Foreign("a descriptor"));
        assert_eq!((found.topic, found.level), (Topic::Device, Level::Bad));
    }
}
