//! The file of a device, read as another process reads it.

use std::fs::{File, read_dir, read_link};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rddp_stat::{ConnectionKind, Counter, Page, Phase};

use super::{StatFile, Tally};
use crate::conn::socket::DeviceSocket;
use crate::mem::QpNum;
use crate::queues::options::Transport;
use crate::queues::state::QpState;

/// Reads the file of these counts by way of `/proc`, found by the number of a QP in it.
fn page_with(qp: u32) -> Option<Page> {
    let own = read_dir("/proc/self/fd").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let named =
        own.filter(|path| read_link(path).is_ok_and(|to| to.starts_with("/memfd:rddp-stat (deleted)")));
    let pages = named.filter_map(|path| {
        let file = File::open(path).ok()?;
        let mut octets = vec![0; file.metadata().ok()?.len() as usize];
        file.read_exact_at(&mut octets, 0).ok()?;
        Page::parse(&octets).ok()
    });
    pages.into_iter().find(|page| page.connections.iter().any(|shown| shown.identity.number == qp))
}

fn socket() -> DeviceSocket {
    DeviceSocket::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into())
}

fn begun(file: &Arc<StatFile>, qp: u32) -> Tally {
    let tally = file.take();
    tally.begin(QpNum(qp), Transport::Iwarp, true, &socket());
    tally
}

#[test]
fn a_connection_is_shown_with_its_wire() {
    let file = Arc::<StatFile>::default();
    for (qp, transport, kind) in
        [(0x7005, Transport::Iwarp, ConnectionKind::Qp), (0x7006, Transport::Tcp, ConnectionKind::Tcp)]
    {
        let tally = file.take();
        tally.begin(QpNum(qp), transport, true, &socket());
        let page = page_with(qp).unwrap();
        let shown = page.connections.iter().find(|shown| shown.identity.number == qp).unwrap();
        assert_eq!(shown.identity.kind, kind);
    }
}

#[test]
fn counts_are_shown_while_a_qp_counts_and_summed_up_when_it_is_gone() {
    let file = Arc::<StatFile>::default();
    let (keeper, tally) = (begun(&file, 0x7001), begun(&file, 0x7002));
    tally.add(Counter::FpdusSent, 3);
    tally.add(Counter::FpdusSent, 4);
    tally.count_terminate(0x0101, true);
    tally.count_terminate(0x1200, false);
    tally.set_state(QpState::Terminate);
    let page = page_with(0x7002).unwrap();
    assert_eq!(page.pid, std::process::id());
    let shown = page.connections.iter().find(|shown| shown.identity.number == 0x7002).unwrap();
    assert_eq!((shown.counts.of(Counter::FpdusSent), shown.phase), (7, Phase::Terminate));
    assert_eq!((shown.terminate_sent, shown.terminate_received), (Some(0x0101), Some(0x1200)));
    assert!(shown.identity.cookie != 0 && shown.identity.local.is_some() && shown.identity.since > 0);
    assert_eq!(page.ended.of(Counter::FpdusSent), 0);
    assert_eq!(tally.counters().fpdus_sent, 7);
    drop(tally);
    let page = page_with(0x7001).unwrap();
    assert_eq!(page.connections.len(), 1);
    assert_eq!((page.ended.of(Counter::FpdusSent), page.ended.of(Counter::TerminatesSent)), (7, 1));
    let terminates: Vec<_> = page.terminates.iter().map(|of| (of.code, of.sent, of.received)).collect();
    assert_eq!(terminates, [(0x0101, 1, 0), (0x1200, 0, 1)]);
    let again = begun(&file, 0x7003);
    assert_eq!(again.of(Counter::FpdusSent), 0, "of the QP that had the slot before");
    drop(keeper);
}

#[test]
fn a_file_grows_with_the_number_of_qps_and_slots_are_given_again() {
    let file = Arc::<StatFile>::default();
    let many: Vec<_> = (0..1000).map(|nth| begun(&file, 0x8000 + nth)).collect();
    let page = page_with(0x8000).unwrap();
    let mut numbers: Vec<_> = page.connections.iter().map(|shown| shown.identity.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0x8000..0x8000 + 1000).collect::<Vec<_>>());
    many.iter().for_each(|tally| tally.add(Counter::SendsSent, 1));
    drop(many);
    let again = begun(&file, 0x7fff);
    let page = page_with(0x7fff).unwrap();
    assert_eq!(page.ended.of(Counter::SendsSent), 1000);
    assert!(page.connections.iter().all(|shown| shown.slot < 1024));
    drop(again);
}

#[test]
fn a_descriptor_that_has_become_another_file_is_left_alone() {
    let file = Arc::<StatFile>::default();
    let first = begun(&file, 0x9001);
    let link = format!("/proc/self/fd/{}", file.lose_descriptor());
    let len = || std::fs::metadata(&link).unwrap().len();
    let before = len();
    // More than the file has slots: it may not grow now.
    let more: Vec<_> = (0..20).map(|nth| begun(&file, 0x9100 + nth)).collect();
    more.iter().for_each(|tally| tally.add(Counter::FpdusSent, 1));
    assert!(more.iter().all(|tally| tally.counters().fpdus_sent == 1));
    assert_eq!(len(), before);
    drop((first, more, file));
    assert_eq!(len(), before, "closed though it may be the program's");
}
