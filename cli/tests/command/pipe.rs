//! `put -`: standard input, whose size is known at its end.

use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use rddp_test_support::random_octets;

use crate::program::{Ended, command, run, until};
use crate::site::{Site, len};

#[test]
fn what_comes_in_pieces_and_from_a_file_arrives() {
    let site = Site::new(&[]);
    let content = random_octets(1, 5_000_001);
    for check in ["crc32c", "sha256", "none"] {
        let args = ["put", "-", &site.remote("piped"), "--json", "--checksum", check];
        let mut put = command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = put.stdin.take().unwrap();
        for piece in content.chunks(700_000) {
            input.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(input);
        let said = Ended::from(put.wait_with_output().unwrap()).ok().json();
        assert_eq!((&said["octets"], &said["file"]), (&5_000_001.into(), &"piped".into()), "{said}");
        let rate = said["bytes_per_s"].as_f64().unwrap() * said["seconds"].as_f64().unwrap();
        assert!((rate - 5e6).abs() < 1e4, "{said}");
        assert!(fs::read(site.served("piped")).unwrap() == content);
    }
    fs::write(site.here("file"), &content[..1000]).unwrap();
    for (name, octets) in [("file", 1000), ("/dev/null", 0)] {
        let input = File::open(site.here(name)).unwrap();
        let put = command(&["put", "-", &site.remote("sub/new"), "--json"]).stdin(input).output();
        assert_eq!(Ended::from(put.unwrap()).ok().json()["octets"], octets);
        assert!(fs::read(site.served("sub/new")).unwrap() == content[..octets]);
    }
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 2);
}

#[test]
fn input_that_ends_by_a_signal_leaves_nothing() {
    let site = Site::new(&["--idle", "2"]);
    let args = ["put", "-", &site.remote("piped")];
    let mut put = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = put.stdin.take().unwrap();
    input.write_all(&random_octets(1, 2_000_000)).unwrap();
    until("part of it is there", || len(&site.served("piped.rddp.part")) > 0);
    put.kill().unwrap();
    put.wait().unwrap();
    until("it is gone", || fs::read_dir(site.served("")).unwrap().count() == 1);
}

/// The client waits for its input, and still hears what the server says.
#[test]
fn a_refusal_is_told_while_the_input_is_silent() {
    let mut site = Site::new(&[]);
    let args = ["put", "-", &site.remote("piped")];
    let mut put = command(&args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = put.stdin.take().unwrap();
    input.write_all(b"octets").unwrap();
    until("part of it is there", || len(&site.served("piped.rddp.part")) > 0);
    assert_eq!(site.server.take().unwrap().stop(), 0);
    let code = crate::program::wait(&mut put);
    let said = std::io::read_to_string(put.stderr.take().unwrap()).unwrap();
    assert!(code == 5 && said.contains("it is being stopped"), "{code}: {said}");
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 1);
    drop(input);
}

#[test]
fn input_for_a_place_that_does_not_exist_is_refused() {
    let site = Site::new(&[]);
    run(&["put", "-", &site.remote("none/piped")]).failed(5, &["directory does not exist"]);
}

#[test]
fn input_without_a_name_or_beside_others_is_refused() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    run(&["put", "-", &site.remote("sub/")]).failed(2, &["names no file"]);
    let file = site.here("file");
    run(&["put", "-", file.to_str().unwrap(), &site.remote("sub")]).failed(2, &["goes alone"]);
    run(&["put", "-r", "-", &site.remote("sub")]).failed(2, &["goes alone"]);
    assert_eq!(fs::read_dir(site.served("sub")).unwrap().count(), 0);
}
