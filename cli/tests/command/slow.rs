//! Files on a disk that is slow, or fails: a file system of this test's own, by FUSE, in a mount
//! namespace that the server has for itself.
//!
//! Without /dev/fuse, or without the right to mount, there is no such disk, and these tests say so
//! and are over.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rddp_test_support::random_octets;
use serde_json::Value;

use crate::disk::{Disk, LEN, SHORT};
use crate::program::{Ended, Server, command, on_processor, run};

/// Serves a disk. Returns nothing, and says so, where there can be none.
fn serve(dir: &Path, strategy: &str) -> Option<(Disk, Server)> {
    let promised: &[&str] = if strategy == "map" { &["--immutable"] } else { &[] };
    let fixed = ["serve", dir.to_str().unwrap(), "--port", "0", "--json", "--strategy", strategy];
    // With one processor it has one thread for all its clients.
    let server = on_processor(0, &command(&[&fixed[..], promised].concat()));
    let start = |mut server: Command| Server::by(&mut server);
    let served = Disk::mount(dir, || start(server));
    served.map_err(|error| writeln!(std::io::stderr(), "SKIPPED: no file system by FUSE: {error}")).ok()
}

fn get(server: &Server, name: &str, here: &Path) -> Command {
    let remote = format!("{}/{name}", server.host());
    // The name in messages is that at the server.
    let local = if name == "broken" { here.join("local") } else { here.join(name) };
    let mut get = command(&["get", "-I", &remote, local.to_str().unwrap()]);
    get.stdout(Stdio::null()).stderr(Stdio::piped());
    get
}

fn told(server: &mut Server) -> Value {
    serde_json::from_str(&server.line()).unwrap()
}

/// Returns how many chunks were begun while others were under way.
fn overlapping(said: &Value) -> u64 {
    said["under_way"].as_array().unwrap()[1..].iter().filter_map(Value::as_u64).sum()
}

/// Each read of the file takes its time. Reads of chunks overlap all the same.
#[test]
fn chunks_of_a_slow_file_are_under_way_together() {
    let tree = tempfile::tempdir().unwrap();
    for strategy in ["pipelined", "region"] {
        let Some((disk, mut server)) = serve(tree.path(), strategy) else { return };
        let here = tempfile::tempdir().unwrap();
        disk.release();
        Ended::from(get(&server, "slow", here.path()).output().unwrap()).ok();
        assert!(fs::read(here.path().join("slow")).unwrap() == random_octets(1, LEN));
        let said = told(&mut server);
        assert_eq!(said["strategy"], strategy, "{said}");
        assert!(overlapping(&said) > 0, "{said}");
        let found = run(&["stat", "--json", &server.id().to_string()]).ok().json();
        let by_pool = found["processes"][0]["total"]["file_reads_by_pool"].as_u64().unwrap();
        assert_eq!(by_pool > 0, strategy == "region", "{found}");
        drop(server);
    }
}

/// The disk answers no read of one file before another client has had its own.
#[test]
fn a_slow_file_keeps_no_other_client_waiting() {
    let tree = tempfile::tempdir().unwrap();
    for strategy in ["pipelined", "region"] {
        let Some((disk, mut server)) = serve(tree.path(), strategy) else { return };
        let here = tempfile::tempdir().unwrap();
        let slow = get(&server, "slow", here.path()).spawn().unwrap();
        disk.until_reads_wait();
        for _ in 0..10 {
            Ended::from(get(&server, "quick", here.path()).output().unwrap()).ok();
            assert_eq!(told(&mut server)["file"], "quick");
        }
        assert!(fs::read(here.path().join("quick")).unwrap() == random_octets(2, SHORT));
        disk.release();
        Ended::from(slow.wait_with_output().unwrap()).ok();
        assert_eq!(told(&mut server)["file"], "slow");
        assert!(fs::read(here.path().join("slow")).unwrap() == random_octets(1, LEN));
    }
}

#[test]
fn a_disk_that_fails_is_an_error_that_names_the_file() {
    let tree = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for strategy in crate::strategies::STRATEGIES {
            let dir = tree.path().join(strategy);
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                let Some((disk, mut server)) = serve(&dir, strategy) else { return };
                disk.release();
                let here = tempfile::tempdir().unwrap();
                let ended = Ended::from(get(&server, "broken", here.path()).output().unwrap());
                assert!([1, 3, 5].contains(&ended.code), "{strategy}: {ended:?}");
                assert!(ended.stderr.contains("broken: "), "{strategy}: {ended:?}");
                assert!(!here.path().join("local").exists());
                let mut complaint = server.complaint();
                if complaint.contains("a registered file cannot be read") {
                    complaint = server.complaint();
                }
                assert!(complaint.contains("broken: "), "{strategy}: {complaint}");
                // The server goes on.
                Ended::from(get(&server, "quick", here.path()).output().unwrap()).ok();
            });
        }
    });
}
