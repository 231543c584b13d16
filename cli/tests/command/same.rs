//! Files that are not sent again, or only in part: those that are the same at both ends, trees that
//! were interrupted, holes; and the choice of checksums, times, several connections.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rddp_test_support::random_octets;
use serde_json::Value;

use crate::program::{Ended, command, run, until};
use crate::site::{Site, assert_holes, len, write_holes};

fn put(site: &Site, more: &[&str], name: &str, path: &str) -> Ended {
    let (local, remote) = (site.here(name), site.remote(path));
    run(&[&["put", local.to_str().unwrap(), &remote, "--json"], more].concat())
}

fn get(site: &Site, more: &[&str], path: &str, name: &str) -> Ended {
    let (local, remote) = (site.here(name), site.remote(path));
    run(&[&["get", &remote, local.to_str().unwrap(), "--json"], more].concat())
}

/// Sets the time of the last change, far from now.
fn age(path: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Returns how many files were sent, and how many were not.
fn moved(ended: Ended) -> (u64, u64) {
    let said = ended.ok().json();
    (said["files"].as_u64().unwrap(), said["unchanged"].as_u64().unwrap())
}

#[test]
fn files_of_a_tree_that_are_the_same_are_not_sent() {
    let site = Site::new(&[]);
    fs::create_dir_all(site.here("tree/sub")).unwrap();
    for count in 0..2500 {
        fs::write(site.here(&format!("tree/sub/{count}")), count.to_string()).unwrap();
    }
    assert_eq!(moved(put(&site, &["-r"], "tree", "")), (2500, 0));
    assert_eq!(moved(put(&site, &["-r"], "tree", "")), (0, 2500));
    // One is longer, one is as long but of another time, one has other permissions only.
    fs::write(site.here("tree/sub/7"), "longer").unwrap();
    fs::write(site.here("tree/sub/1000"), "0001").unwrap();
    fs::set_permissions(site.here("tree/sub/2001"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(moved(put(&site, &["-r"], "tree", "")), (2, 2498));
    assert_eq!(fs::read(site.served("tree/sub/7")).unwrap(), b"longer");
    assert_eq!(fs::read(site.served("tree/sub/1000")).unwrap(), b"0001");
    assert_eq!(fs::metadata(site.served("tree/sub/2001")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(moved(put(&site, &["-r", "-I"], "tree", "")), (2500, 0));
    assert_eq!(moved(get(&site, &["-r"], "tree", "back")), (2500, 0));
    fs::remove_file(site.here("back/tree/sub/8")).unwrap();
    assert_eq!(moved(get(&site, &["-r"], "tree", "back")), (1, 2499));
    assert_eq!(moved(get(&site, &["-r", "--ignore-times"], "tree", "back")), (2500, 0));
}

#[test]
fn one_file_that_is_the_same_is_not_sent() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    age(&site.here("file"));
    let unchanged = |ended: Ended| ended.ok().json()["unchanged"].clone();
    assert_eq!(unchanged(put(&site, &[], "file", "file")), false);
    assert_eq!(unchanged(put(&site, &[], "file", "file")), true);
    assert_eq!(unchanged(put(&site, &["-I"], "file", "file")), false);
    assert_eq!(unchanged(get(&site, &[], "file", "back")), false);
    fs::set_permissions(site.served("file"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(unchanged(get(&site, &[], "file", "back")), true);
    assert_eq!(fs::metadata(site.here("back")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(unchanged(get(&site, &["-I"], "file", "back")), false);
    // The same time, and another size.
    fs::write(site.here("back"), "more octets").unwrap();
    age(&site.here("back"));
    assert_eq!(unchanged(get(&site, &[], "file", "back")), false);
    assert_eq!(fs::read(site.here("back")).unwrap(), b"octets");
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(site.here("")).unwrap().count(), 2);
}

/// Programs that write files at the same moment give them the same time.
#[test]
fn a_file_that_was_written_here_is_not_taken_for_the_other_ends() {
    let site = Site::new(&[]);
    let file = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    until("both have the same time", || {
        fs::write(site.here("file"), "new").unwrap();
        fs::write(site.served("file"), "old").unwrap();
        file(&site.here("file")) == file(&site.served("file"))
    });
    assert_eq!(put(&site, &[], "file", "file").ok().json()["unchanged"], false);
    assert_eq!(fs::read(site.served("file")).unwrap(), b"new");
}

#[test]
fn options_may_stand_between_names() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    run(&["put", site.here("file").to_str().unwrap(), "-I", &site.remote("file")]).ok();
    run(&["get", &site.remote("file"), "-I", site.here("back").to_str().unwrap()]).ok();
    run(&["put", site.here("file").to_str().unwrap()]).failed(2, &["put needs a file and a destination"]);
}

#[test]
fn one_file_keeps_its_time_and_permissions() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    fs::set_permissions(site.here("file"), Permissions::from_mode(0o750)).unwrap();
    age(&site.here("file"));
    put(&site, &[], "file", "stored").ok();
    get(&site, &[], "stored", "back").ok();
    let meant = fs::metadata(site.here("file")).unwrap();
    for path in [site.served("stored"), site.here("back")] {
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.modified().unwrap(), meant.modified().unwrap(), "{path:?}");
        assert_eq!(found.mode(), meant.mode(), "{path:?}");
    }
}

/// Returns the octets that went at the rate of a result.
fn carried(result: &Value) -> f64 {
    result["bytes_per_s"].as_f64().unwrap() * result["seconds"].as_f64().unwrap()
}

#[test]
fn the_holes_of_one_file_stay_holes() {
    let site = Site::new(&[]);
    write_holes(&site.here("sparse"));
    for ended in [put(&site, &[], "sparse", "stored"), get(&site, &[], "stored", "back")] {
        // Nor do they count in the rate.
        let carried = carried(&ended.ok().json());
        assert!(carried < 1e6, "{carried}");
    }
    for path in [site.served("stored"), site.here("back")] {
        assert_holes(&path);
    }
}

/// SHA-256 is over all octets, those of holes, too.
#[test]
fn each_choice_of_checksum_moves_files_and_trees() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    let file = File::create(site.here("tree/file")).unwrap();
    file.write_all_at(&random_octets(1, 3_000_000), 2 << 20).unwrap();
    file.set_len(8 << 20).unwrap();
    fs::write(site.here("tree/small"), "octets").unwrap();
    let content = fs::read(site.here("tree/file")).unwrap();
    let digest = sha256(&content);
    for check in ["crc32c", "sha256", "none"] {
        let more = ["--checksum", check, "-I"];
        let sent = put(&site, &more, "tree/file", "file").ok().json();
        let got = get(&site, &more, "file", "back").ok().json();
        let wants = if check == "sha256" { Value::from(digest.as_str()) } else { Value::Null };
        for said in [sent, got] {
            assert_eq!((&said["checksum"], &said["sha256"]), (&check.into(), &wants), "{said}");
        }
        assert_eq!(fs::read(site.here("back")).unwrap(), content);
        let more = ["-r", "--checksum", check, "-I"];
        let sent = put(&site, &more, "tree", "").ok().json();
        assert_eq!((&sent["checksum"], &sent["files"]), (&check.into(), &2.into()));
        get(&site, &more, "tree", "again").ok();
        assert_eq!(fs::read(site.here("again/tree/file")).unwrap(), content);
        assert_eq!(fs::read(site.here("again/tree/small")).unwrap(), b"octets");
    }
    put(&site, &["--checksum", "md5"], "tree/file", "file").failed(2, &["'md5'"]);
}

fn sha256(octets: &[u8]) -> String {
    use sha2::Digest;

    sha2::Sha256::digest(octets).iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Begins a transfer of a tree slowly, and kills it once `part` has octets.
fn kill(site: &Site, args: &[&str], part: &Path) {
    let mut killed = command(&[args, &["--limit", "4M"]].concat()).spawn().unwrap();
    until("part of it is there", || len(part) > 1 << 20);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(site.server.is_some());
}

#[test]
fn a_tree_goes_on_within_the_file_where_it_ended() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    let content = random_octets(1, 8 << 20);
    fs::write(site.here("tree/big"), &content).unwrap();
    fs::write(site.here("tree/small"), "octets").unwrap();
    let local = site.here("tree");
    for check in ["crc32c", "sha256"] {
        let args = ["put", "-r", local.to_str().unwrap(), &site.remote(""), "--checksum", check];
        kill(&site, &args, &site.served("tree/big.rddp.part"));
        let sent = run(&[&args[..], &["--json"]].concat()).ok().json();
        assert!(sent["octets"].as_u64().unwrap() < (7 << 20) + 6, "{sent}");
        assert_eq!(fs::read(site.served("tree/big")).unwrap(), content);
        assert_eq!(fs::read_dir(site.served("tree")).unwrap().count(), 2);
        let back = site.here(check);
        let args = ["get", "-r", &site.remote("tree"), back.to_str().unwrap(), "--checksum", check];
        kill(&site, &args, &back.join("tree/big.rddp.part"));
        let got = run(&[&args[..], &["--json"]].concat()).ok().json();
        assert!(got["octets"].as_u64().unwrap() < (7 << 20) + 6, "{got}");
        assert_eq!(fs::read(back.join("tree/big")).unwrap(), content);
        assert_eq!(fs::read_dir(back.join("tree")).unwrap().count(), 2);
        fs::remove_dir_all(site.served("tree")).unwrap();
    }
}

#[test]
fn the_rest_of_another_file_of_a_tree_is_not_resumed() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    fs::create_dir(site.served("tree")).unwrap();
    let content = random_octets(1, 2 << 20);
    fs::write(site.here("tree/file"), &content).unwrap();
    for other in [random_octets(2, 1 << 20), random_octets(1, 3 << 20)] {
        fs::write(site.served("tree/file.rddp.part"), other).unwrap();
        let sent = put(&site, &["-r", "-I"], "tree", "").ok().json();
        assert_eq!(sent["octets"], 2 << 20);
        assert_eq!(fs::read(site.served("tree/file")).unwrap(), content);
        assert_eq!(fs::read_dir(site.served("tree")).unwrap().count(), 1);
    }
}

#[test]
fn a_tree_goes_over_several_connections() {
    let site = Site::new(&[]);
    fs::create_dir_all(site.here("tree/empty")).unwrap();
    for count in 0..400 {
        fs::write(site.here(&format!("tree/{count}")), random_octets(count, 3000)).unwrap();
    }
    std::os::unix::fs::symlink("/0", site.here("tree/link")).unwrap();
    let sent = put(&site, &["-r", "-P", "4", "--skip-special"], "tree", "").ok().json();
    assert_eq!((&sent["files"], &sent["skipped"]), (&400.into(), &1.into()), "{sent}");
    let got = get(&site, &["-r", "--parallel", "3"], "tree", "back").ok().json();
    assert_eq!(got["files"], 400);
    for count in 0..400 {
        let path = site.here(&format!("back/tree/{count}"));
        assert!(fs::read(path).unwrap() == random_octets(count, 3000), "{count}");
    }
    assert!(site.here("back/tree/empty").is_dir());
    assert_eq!(moved(put(&site, &["-r", "-P", "4", "--skip-special"], "tree", "")), (0, 400));
    put(&site, &["-P", "2"], "tree/1", "one").failed(2, &["-P is for several files"]);
    put(&site, &["-r", "-P", "0"], "tree", "").failed(2, &["--parallel"]);
}
