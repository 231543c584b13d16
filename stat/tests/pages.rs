//! Pages of counters: what is written is read, and octets of others do no harm.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rddp_stat::layout::{COUNTS, HEADER, SLOT, WORD, header, slot};
use rddp_stat::{
    Connection, ConnectionKind, Counter, Counts, Identity, Page, PageError, Phase, TerminateCount,
};

fn counts() -> impl Strategy<Value = Counts> {
    vec(any::<u64>(), COUNTS).prop_map(Counts::of_words)
}

/// An address without flow information, which a page does not have.
fn address() -> impl Strategy<Value = SocketAddr> {
    any::<SocketAddr>().prop_map(|address| match address {
        SocketAddr::V6(mut v6) => {
            v6.set_flowinfo(0);
            v6.into()
        }
        v4 @ SocketAddr::V4(_) => v4,
    })
}

prop_compose! {
    fn identity()(
        kind in prop_oneof![Just(ConnectionKind::Qp), Just(ConnectionKind::Stream), Just(ConnectionKind::Sdp), Just(ConnectionKind::Tcp)],
        (active, number, cookie, since) in any::<(bool, u32, u64, u64)>(),
        local in option::of(address()),
        peer in option::of(address()),
    ) -> Identity {
        Identity { kind, active, number, cookie, local, peer, since }
    }
}

prop_compose! {
    fn connection(slot: usize)(
        identity in identity(),
        phase in 1..10_u8,
        (generation, terminate_sent, terminate_received) in any::<(u32, Option<u16>, Option<u16>)>(),
        counts in counts(),
    ) -> Connection {
        let (generation, phase) = (u64::from(generation) * 2, Phase::of(phase));
        Connection { slot, generation, identity, phase, terminate_sent, terminate_received, counts }
    }
}

prop_compose! {
    fn terminates()(
        counts in vec(any::<(u16, u64, u64)>(), 0..header::TERMINATES),
    ) -> Vec<TerminateCount> {
        counts.into_iter().map(|(code, sent, received)| TerminateCount { code, sent, received }).collect()
    }
}

fn page() -> impl Strategy<Value = Page> {
    let slots = proptest::sample::subsequence((0..12_usize).collect::<Vec<_>>(), 0..12);
    let connections = slots.prop_flat_map(|slots| slots.into_iter().map(connection).collect::<Vec<_>>());
    (any::<u32>(), counts(), terminates(), connections)
        .prop_map(|(pid, ended, terminates, connections)| Page { pid, ended, terminates, connections })
}

/// A page whose header makes sense, so that what is behind it is looked at.
fn with_good_header(octets: &mut [u8]) {
    let good = Page::default().emit();
    let head = (header::SLOTS * WORD).min(octets.len());
    octets[..head].copy_from_slice(&good[..head]);
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(page in page()) {
        prop_assert_eq!(Page::parse(&page.emit()).unwrap(), page);
    }

    #[test]
    fn any_octets_are_parsed_or_refused(mut octets in vec(any::<u8>(), 0..(HEADER + 5 * SLOT) * WORD)) {
        let _ = Page::parse(&octets);
        with_good_header(&mut octets);
        if let Ok(mut page) = Page::parse(&octets) {
            prop_assert!(page.connections.len() <= 5);
            page.keep_unchanged(&octets[..octets.len() / 2]);
            let _ = page.total();
        }
    }

    #[test]
    fn a_page_cut_short_loses_slots_and_no_more(page in page(), cut in 0..2 * SLOT * WORD) {
        let octets = page.emit();
        let len = octets.len().saturating_sub(cut);
        match Page::parse(&octets[..len]) {
            Ok(short) => {
                let there = (len / WORD - HEADER) / SLOT;
                let left = page.connections.iter().filter(|connection| connection.slot < there);
                prop_assert_eq!(short.connections, left.copied().collect::<Vec<_>>());
                prop_assert_eq!(short.ended, page.ended);
            }
            Err(error) => prop_assert_eq!(error, PageError::Short { len }),
        }
    }
}

fn set_word(octets: &mut [u8], at: usize, value: u64) {
    octets[at * WORD..][..WORD].copy_from_slice(&value.to_ne_bytes());
}

fn of_one() -> Page {
    let mut connection = Connection { generation: 4, phase: Phase::ReadyToSend, ..Connection::default() };
    connection.counts.set(Counter::OctetsSent, 5);
    Page { pid: 1, connections: vec![connection], ..Page::default() }
}

#[test]
fn files_of_others_and_of_other_versions_are_refused_by_name() {
    let good = of_one().emit();
    let broken = |at: usize, value: u64| {
        let mut octets = good.clone();
        set_word(&mut octets, at, value);
        Page::parse(&octets).unwrap_err()
    };
    assert_eq!(broken(header::MAGIC, 7), PageError::Magic);
    assert_eq!(broken(header::VERSION, 2), PageError::Version { found: 2 });
    assert!(matches!(broken(header::LEN, 0), PageError::Damaged(_)));
    assert!(matches!(broken(header::SLOT_LEN, u64::MAX), PageError::Damaged(_)));
    assert_eq!(Page::parse(b"").unwrap_err(), PageError::Short { len: 0 });
}

#[test]
fn a_slot_that_changes_is_passed_over() {
    let page = of_one();
    let mut octets = page.emit();
    set_word(&mut octets, HEADER + slot::GENERATION, 5);
    assert!(Page::parse(&octets).unwrap().connections.is_empty());
}

#[test]
fn a_connection_whose_slot_went_to_another_meanwhile_is_dropped() {
    let mut page = of_one();
    let octets = page.emit();
    page.keep_unchanged(&octets);
    assert_eq!(page, of_one());
    let mut later = octets;
    set_word(&mut later, HEADER + slot::GENERATION, 6);
    page.keep_unchanged(&later);
    assert!(page.connections.is_empty());
}

#[test]
fn more_slots_than_the_file_has_are_none() {
    let mut octets = of_one().emit();
    set_word(&mut octets, header::SLOTS, u64::MAX);
    assert_eq!(Page::parse(&octets).unwrap(), of_one());
}

#[test]
fn totals_are_of_those_that_have_ended_too() {
    let mut page = of_one();
    page.ended.set(Counter::OctetsSent, u64::MAX);
    page.ended.set(Counter::Lost, 2);
    let total = page.total();
    assert_eq!((total.of(Counter::OctetsSent), total.of(Counter::Lost)), (4, 2));
    assert_eq!(total.since(&page.ended).of(Counter::Lost), 0);
}

#[test]
fn names_of_counters_are_different_and_fit_for_openmetrics() {
    for (at, counter) in Counter::ALL.iter().enumerate() {
        assert_eq!(*counter as usize, at);
        let name = counter.name();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit()), "{name}");
        assert!(Counter::ALL[at + 1..].iter().all(|other| other.name() != counter.name()));
    }
}
