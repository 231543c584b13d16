//! The ways in which a server gives a file.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use rddp_test_support::random_octets;
use serde_json::Value;

use crate::program::{Ended, Server, command, interrupt, run, until};
use crate::site::{Site, assert_holes, len, write_holes};

pub(crate) const STRATEGIES: [&str; 6] = ["auto", "naive", "slots", "pipelined", "region", "map"];

/// Returns the strategy by which a file without holes is given.
fn meant(strategy: &str) -> &str {
    if strategy == "auto" { "region" } else { strategy }
}

fn site(strategy: &str, more: &[&str]) -> Site {
    let promised: &[&str] = if strategy == "map" { &["--immutable"] } else { &[] };
    Site::new(&[&["--strategy", strategy], promised, more].concat())
}

/// Returns what the server says of the last transfer.
fn told(site: &mut Site) -> Value {
    serde_json::from_str(&site.server.as_mut().unwrap().line()).unwrap()
}

/// Gets a file anew, and compares it. Returns what the server says.
#[track_caller]
fn get(site: &mut Site, name: &str, more: &[&str]) -> Value {
    let (remote, here) = (site.remote(name), site.here(name));
    run(&[&["get", "-I", &remote, here.to_str().unwrap()], more].concat()).ok();
    assert!(fs::read(site.served(name)).unwrap() == fs::read(here).unwrap(), "{name} {more:?}");
    told(site)
}

#[test]
fn each_strategy_gives_files_of_all_sizes() {
    let mut site_of =
        STRATEGIES.map(|strategy| (strategy, site(strategy, &["--chunk", "64K", "--depth", "3"])));
    for (strategy, site) in &mut site_of {
        for size in [SHORT as u64 + 1, 65_536, 65_537, 4 << 20, (5 << 20) + 1] {
            fs::write(site.served("file"), random_octets(size, size as usize)).unwrap();
            let said = get(site, "file", &[]);
            assert_eq!(said["strategy"], meant(strategy), "{said}");
            assert_eq!(said["octets"], size, "{said}");
        }
    }
}

/// Octets of the longest file that comes in the answer.
const SHORT: usize = 16 << 10;

/// The rest of a longer file does, too.
#[test]
fn a_short_file_comes_in_the_answer() {
    for strategy in STRATEGIES {
        let mut site = site(strategy, &[]);
        for size in [0, 1, SHORT] {
            fs::write(site.served("file"), random_octets(1, size)).unwrap();
            for check in ["crc32c", "sha256", "none"] {
                let said = get(&mut site, "file", &["--checksum", check]);
                assert_eq!(
                    (&said["strategy"], said["octets"].as_u64().unwrap()),
                    (&"answer".into(), size as u64)
                );
                assert_eq!(said["sha256"].as_str().is_some(), check == "sha256", "{said}");
            }
        }
        run(&["get", &site.remote("file"), site.here("file").to_str().unwrap()]).ok();
        assert_eq!(told(&mut site)["unchanged"], 1);
        let piped = command(&["get", &site.remote("file"), "-"]).output().unwrap();
        assert!(piped.stdout == random_octets(1, SHORT), "{:?}", piped.status);
        assert_eq!(told(&mut site)["strategy"], "answer");
        fs::write(site.served("file"), random_octets(2, 1 << 20)).unwrap();
        fs::write(site.here("file.rddp.part"), random_octets(2, (1 << 20) - SHORT)).unwrap();
        let said = get(&mut site, "file", &[]);
        assert_eq!(
            (&said["strategy"], &said["resumed_from"]),
            (&"answer".into(), &((1 << 20) - SHORT).into())
        );
    }
}

/// SHA-256 needs each octet in its order.
#[test]
fn what_a_strategy_cannot_do_is_done_by_slots() {
    for strategy in STRATEGIES {
        let mut site = site(strategy, &[]);
        fs::write(site.served("file"), random_octets(1, 1 << 20)).unwrap();
        let said = get(&mut site, "file", &["--checksum", "sha256"]);
        assert_eq!((&said["strategy"], said["sha256"].as_str().unwrap().len()), (&"slots".into(), 64));
        let said = get(&mut site, "file", &["--checksum", "none"]);
        assert_eq!(said["strategy"], meant(strategy), "{said}");
    }
}

/// Returns how many octets the server has sent to all its clients.
fn sent(site: &Site) -> u64 {
    let found = run(&["stat", "--json", &site.server.as_ref().unwrap().id().to_string()]).ok().json();
    found["processes"][0]["total"]["octets_sent"].as_u64().unwrap()
}

#[test]
fn holes_are_not_sent_by_any_strategy_and_stay_holes() {
    for strategy in STRATEGIES {
        let mut site = site(strategy, &[]);
        write_holes(&site.served("holes"));
        let here = site.here("holes");
        // They take no time of the limit.
        run(&["get", &site.remote("holes"), here.to_str().unwrap(), "--limit", "1M"]).ok();
        assert_holes(&here);
        // Of 3 GiB, whole holes are too many for `naive`.
        assert_eq!(told(&mut site)["strategy"], if strategy == "naive" { "slots" } else { meant(strategy) });
        // More extents than are named at a time, and a hole at the end.
        let many = File::create(site.served("many")).unwrap();
        many.set_len(301 * 8192).unwrap();
        for at in 0..300 {
            many.write_all_at(&random_octets(at, 4096), at * 8192).unwrap();
        }
        let here = site.here("many");
        fs::write(site.here("many.rddp.part"), &fs::read(site.served("many")).unwrap()[..5000]).unwrap();
        let said = get(&mut site, "many", &[]);
        assert_eq!((&said["strategy"], &said["resumed_from"]), (&meant(strategy).into(), &5000.into()));
        assert!(here.metadata().unwrap().blocks() * 512 < 301 * 8192);
        assert!(sent(&site) < 3 << 20, "{strategy}: {}", sent(&site));
    }
}

#[test]
fn an_interrupted_get_goes_on_by_each_strategy() {
    for strategy in STRATEGIES {
        let mut site = site(strategy, &[]);
        fs::write(site.served("file"), random_octets(1, 3 << 20)).unwrap();
        fs::write(site.here("file.rddp.part"), random_octets(1, 1_000_001)).unwrap();
        assert_eq!(get(&mut site, "file", &[])["resumed_from"], 1_000_001, "{strategy}");
    }
}

/// A mapping needs the promise, and is taken from 1 MiB on where the server may choose.
#[test]
fn files_are_mapped_where_the_owner_promises_that_they_do_not_change() {
    run(&["serve", ".", "--strategy", "map"]).failed(2, &["--immutable"]);
    let mut site = site("auto", &["--immutable"]);
    for (size, by) in [((1 << 20) - 1, "region"), (1 << 20, "map"), (3 << 20, "map")] {
        fs::write(site.served("file"), random_octets(size, size as usize)).unwrap();
        // The second time from the mapping that is kept.
        for _ in 0..2 {
            assert_eq!(get(&mut site, "file", &[])["strategy"], by);
        }
    }
    let of_it = |site: &Site| {
        let id = site.server.as_ref().unwrap().id();
        fs::read_to_string(format!("/proc/{id}/maps")).unwrap().matches("served/file").count()
    };
    assert_eq!(of_it(&site), 1);
    // A file that takes the name of another takes its mapping's place.
    fs::write(site.served("new"), random_octets(9, 2 << 20)).unwrap();
    fs::rename(site.served("new"), site.served("file")).unwrap();
    assert_eq!(get(&mut site, "file", &[])["strategy"], "map");
    assert_eq!(of_it(&site), 1);
}

#[test]
fn a_file_for_which_there_is_no_memory_is_given_by_another_strategy() {
    for (strategy, file, by) in [("naive", "large", "slots"), ("map", "large", "slots")] {
        let mut site = Site::new(&[]);
        // Nearly all holes, of which none is sent.
        let large = File::create(site.served(file)).unwrap();
        large.write_all_at(b"octets", 5 << 20).unwrap();
        large.set_len(1 << 30).unwrap();
        let served = site.served("");
        let serve = command(&["serve", served.to_str().unwrap(), "--port", "0", "--json", "--immutable"]);
        let mut limited = std::process::Command::new("bash");
        // 900 MiB of addresses.
        limited.args(["-c", r#"ulimit -v 921600; exec "$0" "$@""#]).arg(serve.get_program());
        limited.args(serve.get_args()).args(["--strategy", strategy]).stdin(Stdio::null());
        site.server = Some(Server::by(&mut limited));
        let here = site.here(file);
        run(&["get", &site.remote(file), here.to_str().unwrap()]).ok();
        assert!(here.metadata().unwrap().blocks() * 512 < 1 << 20);
        let said = told(&mut site);
        assert_eq!((&said["strategy"], &said["instead_of"]), (&by.into(), &strategy.into()), "{said}");
        let complaint = site.server.as_mut().unwrap().complaint();
        assert!(complaint.contains(&format!("large: no memory for the strategy {strategy}")), "{complaint}");
    }
}

#[test]
fn octets_are_counted_by_strategy() {
    const SIZE: usize = 3 << 20;
    for strategy in STRATEGIES {
        let mut site = site(strategy, &[]);
        fs::write(site.served("file"), random_octets(1, SIZE)).unwrap();
        let said = get(&mut site, "file", &[]);
        let reads: u64 = said["under_way"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
        fs::write(site.served("file"), random_octets(1, SHORT)).unwrap();
        get(&mut site, "file", &[]);
        let id = site.server.as_ref().unwrap().id().to_string();
        let counts = run(&["stat", "--json", &id]).ok().json()["processes"][0]["total"].take();
        let of = |name: &str| counts[name].as_u64().unwrap();
        for other in ["naive", "slots", "pipelined", "region", "map"] {
            let octets = if other == meant(strategy) { SIZE as u64 } else { 0 };
            assert_eq!(of(&format!("octets_by_{other}")), octets, "{strategy} {counts}");
        }
        assert_eq!((of("octets_by_answer"), of("registrations")), (SHORT as u64, 1), "{counts}");
        let in_memory = of("file_reads_at_once") + of("file_reads_by_pool");
        assert_eq!(in_memory > 0, meant(strategy) == "region", "{counts}");
        // Segments of up to 2 KiB do not count.
        let is_copied = of("octets_copied") > SIZE as u64 * 9 / 10;
        assert_eq!(is_copied, !["region", "map"].contains(&meant(strategy)), "{counts}");
        let beside: u64 = (0..8).map(|others| of(&format!("reads_beside_{others}"))).sum();
        // 6 chunks, and the Read of the startup for each client.
        assert_eq!((beside, of("reads_received")), (of("reads_received"), 8), "{counts}");
        assert_eq!(reads, if ["slots", "pipelined"].contains(&strategy) { 6 } else { 7 }, "{said}");
        let text = run(&["stat", &id]).ok().stdout;
        assert!(text.contains(&format!("octets of files by {}: {SIZE}\n", meant(strategy))), "{text}");
    }
}

#[test]
fn several_chunks_are_under_way_at_a_time() {
    for strategy in ["slots", "pipelined"] {
        let mut site = site(strategy, &["--chunk", "16K", "--depth", "4"]);
        fs::write(site.served("file"), random_octets(1, 1 << 20)).unwrap();
        let said = get(&mut site, "file", &[]);
        let counts: Vec<u64> =
            said["under_way"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
        assert_eq!((counts.iter().sum::<u64>(), counts.len()), (64, 4), "{said}");
    }
}

/// A client that has the file goes while its octets are being read.
#[test]
fn clients_that_have_the_file_already_are_no_failures() {
    let mut site = site("pipelined", &[]);
    fs::write(site.served("file"), random_octets(1, 100_000)).unwrap();
    get(&mut site, "file", &[]);
    for _ in 0..100 {
        site.get("file", "file").ok();
    }
    let server = site.server.as_mut().unwrap();
    assert_eq!(interrupt(server.child()), 0);
    assert_eq!(server.complaint(), "");
}

#[test]
fn sizes_that_no_client_has_memory_for_are_refused() {
    for (option, value) in [("--chunk", "1M"), ("--chunk", "4095"), ("--depth", "0"), ("--depth", "9")] {
        run(&["serve", ".", option, value]).failed(2, &[option]);
    }
    run(&["serve", ".", "--strategy", "fast"]).failed(2, &["'fast'"]);
}

/// Ways to change a file.
const CHANGES: [fn(&Path); 4] = [
    |path| File::options().write(true).open(path).unwrap().write_all_at(b"other", 5 << 20).unwrap(),
    |path| File::options().write(true).open(path).unwrap().set_len(3 << 20).unwrap(),
    |path| fs::remove_file(path).unwrap(),
    |path| {
        let other = path.with_file_name("other");
        fs::write(&other, "other").unwrap();
        fs::rename(other, path).unwrap();
    },
];

#[test]
fn a_file_that_changes_meanwhile_gets_no_name_by_any_strategy() {
    let changed = |strategy, change: fn(&Path)| {
        let mut site = site(strategy, &[]);
        fs::write(site.served("file"), random_octets(1, 6 << 20)).unwrap();
        // By the name that it has at the server.
        let (here, remote) = (site.here("copy"), site.remote("file"));
        let mut get = command(&["get", &remote, here.to_str().unwrap(), "--limit", "2M"]);
        let get = get.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("part of it is here", || len(&site.here("copy.rddp.part")) > 0);
        change(&site.served("file"));
        let ended = Ended::from(get.wait_with_output().unwrap());
        ended.failed(1, &["file: it changed while it was being read", "repeat the command when nobody"]);
        assert!(!here.exists());
        let complaint = site.server.as_mut().unwrap().complaint();
        assert!(complaint.contains("file: it changed while it was being read"), "{complaint}");
        // The server goes on.
        fs::write(site.served("file"), "octets").unwrap();
        site.get("file", "copy").ok();
        assert_eq!(fs::read(here).unwrap(), b"octets");
    };
    thread::scope(|scope| {
        for strategy in STRATEGIES {
            for change in CHANGES {
                scope.spawn(move || changed(strategy, change));
            }
        }
    });
}
