//! Trees and several files: `put -r`, `get -r`, `ls`.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rddp_rnic::{Access, ConnectOptions, Rnic};
use rddp_test_support::random_octets;
use serde_json::{Value, json};

use crate::peer::{FILES, Peer};
use crate::program::{Ended, run, until};
use crate::site::{Site, assert_holes, write_holes};

fn put(site: &Site, more: &[&str], name: &str, path: &str) -> Ended {
    let (local, remote) = (site.here(name), site.remote(path));
    run(&[&["put", "-r", local.to_str().unwrap(), &remote, "--json"], more].concat())
}

fn get(site: &Site, path: &str, name: &str) -> Ended {
    run(&["get", "-r", &site.remote(path), site.here(name).to_str().unwrap(), "--json"])
}

/// Makes a tree with all that has to arrive, and returns the number of its files.
fn plant(top: &Path) -> u64 {
    fs::create_dir_all(top.join("deep/er")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    for count in 0..300 {
        fs::write(top.join(format!("deep/{count}")), random_octets(count, 17 * count as usize)).unwrap();
    }
    fs::write(top.join("deep/er/big"), random_octets(7, 2_000_003)).unwrap();
    // A short file that ends with a hole.
    fs::write(top.join("deep/er/tail"), "octets").unwrap();
    File::options().write(true).open(top.join("deep/er/tail")).unwrap().set_len(500_000).unwrap();
    fs::write(top.join(OsStr::from_bytes(b"\xff not UTF-8")), "octets").unwrap();
    fs::set_permissions(top.join("deep/7"), Permissions::from_mode(0o750)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    File::options().write(true).open(top.join("deep/8")).unwrap().set_modified(time).unwrap();
    303
}

fn assert_same(left: &Path, right: &Path) {
    for entry in fs::read_dir(left).unwrap() {
        let entry = entry.unwrap();
        let (this, other) = (entry.path(), right.join(entry.file_name()));
        let [meant, found] = [&this, &other].map(|path| fs::symlink_metadata(path).unwrap());
        assert_eq!(meant.mode(), found.mode(), "{other:?}");
        if meant.is_dir() {
            assert_same(&this, &other);
            continue;
        }
        assert_eq!(meant.modified().unwrap(), found.modified().unwrap(), "{other:?}");
        assert!(fs::read(this).unwrap() == fs::read(&other).unwrap(), "{other:?}");
    }
    assert_eq!(fs::read_dir(left).unwrap().count(), fs::read_dir(right).unwrap().count(), "{right:?}");
}

#[test]
fn a_tree_comes_back_as_it_went() {
    let site = Site::new(&[]);
    let files = plant(&site.here("tree"));
    let sent = put(&site, &[], "tree", "new/").ok().json();
    assert_eq!((&sent["files"], &sent["skipped"]), (&files.into(), &0.into()), "{sent}");
    assert_same(&site.here("tree"), &site.served("new/tree"));
    let got = get(&site, "new/tree", "back").ok().json();
    assert_eq!(got["files"], files, "{got}");
    assert_same(&site.here("tree"), &site.here("back/tree"));
    // Once more, over what is there; and all that is served.
    put(&site, &[], "tree", "new").ok();
    get(&site, "", "all").ok();
    assert_same(&site.here("tree"), &site.here("all/new/tree"));
}

#[test]
fn several_files_go_into_one_directory() {
    let site = Site::new(&[]);
    for name in ["a", "b"] {
        fs::write(site.here(name), name).unwrap();
    }
    let [a, b] = ["a", "b"].map(|name| site.here(name).to_str().unwrap().to_owned());
    run(&["put", &a, &b, &site.remote("sub")]).ok();
    assert_eq!(fs::read(site.served("sub/b")).unwrap(), b"b");
    let [a, b, back] = [site.remote("sub/a"), site.remote("sub/b"), site.here("back").display().to_string()];
    run(&["get", &a, &b, &back]).ok();
    assert_eq!(fs::read(site.here("back/a")).unwrap(), b"a");
    run(&["get", &a, &site.remote("sub"), &back]).failed(5, &["sub: a directory", "--recursive"]);
    run(&["get", &a, "192.0.2.1/b", &back]).failed(2, &["same HOST"]);
}

#[test]
fn a_hole_is_neither_sent_nor_filled() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    write_holes(&site.here("tree/sparse"));
    put(&site, &[], "tree", "").ok();
    assert_holes(&site.served("tree/sparse"));
}

#[test]
fn links_that_lead_out_are_neither_followed_nor_sent() {
    let site = Site::new(&[]);
    fs::write(site.tree.path().join("secret"), "secret").unwrap();
    symlink("../../secret", site.served("sub/link")).unwrap();
    symlink("../..", site.served("sub/up")).unwrap();
    fs::write(site.served("sub/half.rddp.part"), "half").unwrap();
    let got = get(&site, "sub", "").failed(6, &[]).json();
    assert_eq!((&got["files"], &got["skipped"]), (&0.into(), &3.into()), "{got}");
    assert_eq!(fs::read_dir(site.here("sub")).unwrap().count(), 0);
    for path in ["../secret", "/etc", "sub/up/", "sub/up/secret"] {
        get(&site, path, "").failed(5, &["outside the served directory"]);
    }
    for path in ["sub/up", "sub/link"] {
        get(&site, path, "").failed(6, &["symbolic link that leads out"]);
        site.get(path, "got").failed(5, &["outside the served directory"]);
    }
}

#[test]
fn nothing_but_a_regular_file_is_replaced() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    fs::write(site.here("tree/file"), "new").unwrap();
    fs::create_dir(site.served("tree")).unwrap();
    fs::write(site.served("victim"), "precious").unwrap();
    symlink("../victim", site.served("tree/file")).unwrap();
    put(&site, &[], "tree", "")
        .failed(1, &["tree/file: a regular file is sent, and a symbolic link is there"]);
    fs::remove_file(site.served("tree/file")).unwrap();
    fs::write(site.served("tree/file"), "old").unwrap();
    put(&site, &["--no-clobber"], "tree", "").ok();
    assert_eq!(fs::read(site.served("tree/file")).unwrap(), b"old");
    put(&site, &[], "tree", "").ok();
    assert_eq!(fs::read(site.served("tree/file")).unwrap(), b"new");
    // A link in place of a directory is not followed.
    fs::remove_dir_all(site.served("tree")).unwrap();
    symlink("sub", site.served("tree")).unwrap();
    put(&site, &[], "tree", "").failed(1, &["tree: a directory is sent, and a symbolic link is there"]);
    assert_eq!(fs::read_dir(site.served("sub")).unwrap().count(), 0);
    assert_eq!(fs::read(site.served("victim")).unwrap(), b"precious");
}

#[test]
fn ls_shows_names_without_fetching() {
    let site = Site::new(&[]);
    fs::write(site.served("sub/file\n"), "octets").unwrap();
    let top = run(&["ls", &site.remote("")]).ok();
    assert!(top.stdout.ends_with("sub/\n") && top.stdout.lines().count() == 1, "{top:?}");
    let sub = run(&["ls", &site.remote("sub"), "--json"]).ok().json();
    assert_eq!((&sub["name"], &sub["octets"]), (&"file\n".into(), &6.into()));
    assert_eq!(sub["name_hex"], Value::Null);
    assert_eq!(run(&["ls", "-r", &site.remote("")]).ok().stdout.lines().count(), 2);
    fs::create_dir(site.served("odd")).unwrap();
    fs::write(site.served("odd").join(OsStr::from_bytes(b"\xffa")), "").unwrap();
    assert_eq!(run(&["ls", &site.remote("odd"), "--json"]).ok().json()["name_hex"], "ff61");
    run(&["ls", &site.remote("none")]).failed(5, &["no such file"]);
}

#[test]
fn a_token_is_asked_for_and_taken() {
    let tokens = tempfile::tempdir().unwrap();
    let token = tokens.path().join("token");
    fs::write(&token, "of sixteen octets").unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let site = Site::new(&["--token", token]);
    fs::create_dir(site.here("tree")).unwrap();
    fs::write(site.here("tree/file"), "octets").unwrap();
    put(&site, &[], "tree", "").failed(5, &["token"]);
    put(&site, &["--token", token], "tree", "").ok();
    assert_eq!(fs::read(site.served("tree/file")).unwrap(), b"octets");
}

/// A short file is not worth resuming; a client that was killed cannot have sent all of one.
#[test]
fn a_tree_that_ends_early_leaves_no_part_of_a_short_file() {
    let site = Site::new(&[]);
    fs::create_dir(site.here("tree")).unwrap();
    fs::write(site.here("tree/file"), random_octets(1, 1_000_000)).unwrap();
    let mut killed = crate::program::command(&[
        "put",
        "-r",
        site.here("tree").to_str().unwrap(),
        &site.remote(""),
        "--limit",
        "300k",
    ])
    .spawn()
    .unwrap();
    let count = || fs::read_dir(site.served("tree")).map_or(0, Iterator::count);
    until("part of it is there", || count() > 0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("it is removed", || count() == 0);
}

/// A `File` record, as docs/files.md has it, of an empty file.
pub(crate) fn file_record(name: &[u8]) -> Vec<u8> {
    let len = (name.len() as u16).to_be_bytes();
    [&[2][..], &len, name, &0o644u32.to_be_bytes(), &[0; 8], &[0; 4], &[0; 8], &[4]].concat()
}

pub(crate) const END: [u8; 17] = [6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Runs `rddp get -r` of the contents of a directory against a server that gives these octets.
pub(crate) fn get_from(octets: &[u8], here: &Path, more: &[&str]) -> Ended {
    get_of("tree/", octets, here, more)
}

/// Does the same of this path.
fn get_of(path: &str, octets: &[u8], here: &Path, more: &[&str]) -> Ended {
    let listener = Rnic::open().unwrap().listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default());
    let listener = listener.unwrap();
    let remote = format!("{}/{path}", listener.local_addr().unwrap());
    std::thread::scope(|scope| {
        let get = scope.spawn(|| run(&[&["get", "-r", &remote, here.to_str().unwrap()], more].concat()));
        let request = listener.accept(Some(Duration::from_secs(60))).unwrap().unwrap();
        assert_eq!(request.private_data(), FILES);
        let server = Peer::accept(request, FILES);
        server.hear().unwrap();
        let region = server.pd.allocate(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        region.write(0, octets).unwrap();
        let window = region.remote(0);
        server.say_json(&json!({"Tree": {"window": {"stag": window.stag.0, "to": window.to}}}));
        server.say_json(&json!({"Chunk": {"slot": 0, "offset": 0, "len": octets.len()}}));
        get.join().unwrap()
    })
}

#[test]
fn a_server_cannot_name_what_is_elsewhere() {
    let tree = tempfile::tempdir().unwrap();
    let here = tree.path().join("here");
    fs::create_dir(&here).unwrap();
    fs::write(tree.path().join("victim"), "precious").unwrap();
    symlink("..", here.join("up")).unwrap();
    symlink("../victim", here.join("link")).unwrap();
    fs::create_dir(here.join("real")).unwrap();
    symlink("real", here.join("within")).unwrap();
    for name in [
        &b"../victim"[..],
        b"/tmp/x",
        b"a/../../victim",
        b"up/victim",
        b"within/x",
        b"link",
        b"",
        b".",
        b"a//b",
    ] {
        let octets = [&file_record(name)[..], &END].concat();
        let ended = get_from(&octets, &here, &[]);
        assert_ne!(ended.code, 0, "{name:?} {ended:?}");
        assert_eq!(fs::read(tree.path().join("victim")).unwrap(), b"precious", "{name:?}");
        assert_eq!(fs::read_dir(&here).unwrap().count(), 4, "{name:?}");
        assert_eq!(fs::read_dir(here.join("real")).unwrap().count(), 0, "{name:?}");
    }
    get_from(&[&file_record(b"good")[..], &END].concat(), &here, &[]).ok();
    assert!(here.join("good").exists());
}

/// A server sends what was asked for, and nothing beside it.
#[test]
fn a_server_cannot_send_or_remove_what_was_not_asked_for() {
    let tree = tempfile::tempdir().unwrap();
    let here = tree.path();
    fs::create_dir(here.join("mine")).unwrap();
    fs::write(here.join("mine/precious"), "precious").unwrap();
    fs::write(here.join(".bashrc"), "mine").unwrap();
    let dir = |name: &[u8]| {
        let len = (name.len() as u16).to_be_bytes();
        [&[1][..], &len, name, &0o777u32.to_be_bytes(), &[0; 12]].concat()
    };
    let listed = |name: &[u8]| [&[15][..], &(name.len() as u16).to_be_bytes(), name].concat();
    for (octets, more) in [
        (file_record(b".bashrc"), &[][..]),
        ([dir(b"mine"), file_record(b"mine/precious")].concat(), &[]),
        (file_record(b"mine/precious"), &[]),
        (file_record(b"trees"), &[]),
        (listed(b""), &["--delete"]),
        (listed(b"mine"), &["--delete"]),
        ([dir(b"tree"), file_record(b"tree/x.o")].concat(), &["--exclude", "*.o"]),
    ] {
        let ended = get_of("tree", &[&octets[..], &END].concat(), here, more);
        ended.failed(4, &["which was not asked for"]);
        assert_eq!(fs::read(here.join("mine/precious")).unwrap(), b"precious");
        assert_eq!(fs::read(here.join(".bashrc")).unwrap(), b"mine");
        assert!(!here.join("trees").exists() && !here.join("tree/x.o").exists());
    }
    get_of("a/tree", &[&dir(b"tree")[..], &file_record(b"tree/x.o"), &END].concat(), here, &[]).ok();
    assert!(here.join("tree/x.o").exists());
}

#[test]
fn octets_that_are_no_records_end_the_connection_only() {
    let site = Site::new(&["--idle", "5"]);
    let good = file_record(b"file");
    let data = [&[3][..], &0u64.to_be_bytes(), &1u32.to_be_bytes(), &[0; 4], b"x"].concat();
    for octets in [&b"rubbish"[..], &good[..good.len() - 3], &data, &[4], &END[..5]] {
        let peer = Peer::connect(site.server.as_ref().unwrap().addr, FILES);
        assert_eq!(peer.told, FILES);
        peer.say_json(&json!({"PutTree": {"path": "sub", "no_clobber": false}}));
        let window = peer.hear().unwrap()["Tree"]["window"].clone();
        let region = peer.pd.allocate(octets.len(), Access::LOCAL_WRITE).unwrap();
        region.write(0, octets).unwrap();
        let remote = rddp_rnic::Remote {
            stag: rddp_rnic::Stag(window["stag"].as_u64().unwrap() as u32),
            to: window["to"].as_u64().unwrap(),
        };
        peer.qp.post_send(&rddp_rnic::SendWr::write(1, region.sge(0..octets.len()), remote)).unwrap();
        peer.say_json(&json!({"Chunk": {"slot": 0, "offset": 0, "len": octets.len()}}));
        let refused = std::iter::from_fn(|| peer.hear()).any(|said: Value| said.get("Refused").is_some());
        assert!(refused, "{octets:?}");
    }
    assert_eq!(fs::read_dir(site.served("sub")).unwrap().count(), 0);
    fs::write(site.here("file"), "octets").unwrap();
    site.put("file", "").ok();
}

/// Repetition is no remedy where it would end alike.
#[test]
fn a_server_that_is_not_there_is_to_be_started() {
    let site = Site::new(&[]);
    let [source, new] = ["", "new"].map(|name| site.here(name).display().to_string());
    for args in [["put", "-r", &source, ""], ["get", "-r", "", &new]] {
        let remote = format!("{}/tree", crate::program::free_port());
        let args = args.map(|arg| if arg.is_empty() { &remote } else { arg });
        let ended = run(&args).failed(3, &["nothing listens", "try: start rddp serve there"]);
        assert!(!ended.stderr.contains("repeat"), "{ended:?}");
    }
}
