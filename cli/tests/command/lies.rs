//! Ends that lie about terms, checksums of chunks, holes, offers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rddp_rnic::{Access, ConnectOptions, Remote, Rnic, SendWr, Stag};
use serde_json::{Value, json};

use crate::peer::{FILES, Peer};
use crate::program::{Ended, run, until};
use crate::site::Site;

const CRC_OF_DIGITS: u32 = 0xe306_9283;

fn connect(site: &Site) -> Peer {
    let peer = Peer::connect(site.server.as_ref().unwrap().addr, FILES);
    assert_eq!(peer.told, FILES);
    peer
}

/// Writes octets to the first slot of the server's memory.
fn write(peer: &Peer, window: &Value, octets: &[u8]) {
    let region = peer.pd.allocate(octets.len(), Access::LOCAL_WRITE).unwrap();
    region.write(0, octets).unwrap();
    let stag = Stag(u32::try_from(window["stag"].as_u64().unwrap()).unwrap());
    let remote = Remote { stag, to: window["to"].as_u64().unwrap() };
    peer.qp.post_send(&SendWr::write(1, region.whole(), remote)).unwrap();
    // The region must exist until the Write has been sent.
    while peer.next().is_some_and(|completed| completed.0 != rddp_rnic::Completed::Write) {}
}

/// Returns the reason for which the server refuses, whatever it says before.
fn refused(peer: &Peer) -> Value {
    let said = std::iter::from_fn(|| peer.hear()).find(|said| said["Refused"].is_object());
    said.expect("a refusal")["Refused"].clone()
}

fn names(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// Begins a put of one file, up to the server's description of its memory.
fn begin(site: &Site, size: u64, terms: &Value) -> (Peer, Value) {
    let peer = connect(site);
    peer.say_json(&json!({"Put": {"path": "file", "size": size, "mode": 0o644, "terms": terms}}));
    let window = peer.hear().unwrap()["Take"]["window"].clone();
    assert!(window.is_object());
    peer.say_json(&json!({"From": {"offset": 0}}));
    write(&peer, &window, b"123456789");
    (peer, window)
}

#[test]
fn chunks_that_are_not_as_they_were_announced_are_refused() {
    let site = Site::new(&[]);
    let good = json!({"slot": 0, "offset": 0, "len": 9, "crc": CRC_OF_DIGITS});
    for (check, key, value, mismatch) in [
        ("crc32c", "crc", json!(CRC_OF_DIGITS ^ 1), true),
        ("sha256", "crc", Value::Null, true),
        ("none", "crc", json!(CRC_OF_DIGITS), true),
        ("crc32c", "offset", json!(992), false),
        ("crc32c", "offset", json!(u64::MAX), false),
        ("crc32c", "slot", json!(8), false),
        ("crc32c", "len", json!(0), false),
        ("crc32c", "len", json!((512 << 10) + 1), false),
    ] {
        let (peer, _) = begin(&site, 1000, &json!({"check": check}));
        let mut chunk = good.clone();
        chunk[key] = value;
        peer.say_json(&json!({"Chunk": chunk}));
        let refused = refused(&peer);
        assert_eq!(refused["mismatch"], mismatch, "{chunk}: {refused}");
    }
    // Octets that are there are not written again.
    let (peer, _) = begin(&site, 1000, &json!({}));
    peer.say_json(&json!({"Chunk": good}));
    peer.say_json(&json!({"Chunk": {"slot": 0, "offset": 8, "len": 9, "crc": CRC_OF_DIGITS}}));
    assert!(refused(&peer)["reason"].as_str().unwrap().contains("out of step"));
    assert!(!site.served("file").exists());
    fs::write(site.here("file"), "octets").unwrap();
    site.put("file", "file").ok();
}

#[test]
fn a_wrong_sha_256_and_a_wrong_size_leave_nothing() {
    let site = Site::new(&[]);
    let good = json!({"Chunk": {"slot": 0, "offset": 0, "len": 9, "crc": CRC_OF_DIGITS}});
    let (peer, _) = begin(&site, 9, &json!({"check": "sha256"}));
    peer.say_json(&good);
    peer.say_json(&json!({"End": {"sha256": "0".repeat(64)}}));
    assert_eq!(refused(&peer)["mismatch"], true);
    for end in
        [json!({"sha256": ""}), json!({"sha256": "", "size": 8}), json!({"sha256": "", "size": u64::MAX})]
    {
        let (peer, _) = begin(&site, 0, &json!({"unknown_size": true}));
        peer.say_json(&good);
        peer.say_json(&json!({"End": end}));
        assert!(refused(&peer)["reason"].as_str().unwrap().contains("out of step"));
    }
    until("what was wrong is gone", || names(&site.served("")) == 1);
}

#[test]
fn terms_out_of_range_are_refused() {
    let site = Site::new(&[]);
    for terms in [
        json!({"modified": {"seconds": 0, "nanos": 1_000_000_000}}),
        json!({"modified": {"seconds": 0, "nanos": 1_073_741_823}}),
        json!({"share": {"number": 1, "of": 1}}),
        json!({"share": {"number": 0, "of": 0}}),
        json!({"check": "md5"}),
    ] {
        for ask in [
            json!({"Put": {"path": "file", "size": 9, "mode": 0o644, "terms": terms}}),
            json!({"GetTree": {"paths": ["sub"], "recursive": true, "names_only": false, "terms": terms}}),
        ] {
            let peer = connect(&site);
            peer.say_json(&ask);
            assert!(refused(&peer)["reason"].as_str().unwrap().contains("out of step"), "{ask}");
        }
    }
    // A time that no file system has is a time all the same.
    let (peer, _) = begin(&site, 9, &json!({"modified": {"seconds": i64::MIN, "nanos": 0}}));
    peer.say_json(&json!({"Chunk": {"slot": 0, "offset": 0, "len": 9, "crc": CRC_OF_DIGITS}}));
    peer.say_json(&json!({"End": {"sha256": ""}}));
    while peer.hear().is_some() {}
    fs::write(site.here("other"), "octets").unwrap();
    site.put("other", "other").ok();
}

/// No file can be so large, so that the client is at fault, and not a disk without room.
#[test]
fn a_size_that_no_file_has_is_refused_as_such() {
    let site = Site::new(&[]);
    for size in [1 << 63, u64::MAX] {
        let peer = connect(&site);
        peer.say_json(&json!({"Put": {"path": "file", "size": size, "mode": 0o644}}));
        let refused = refused(&peer);
        assert!(refused["reason"].as_str().unwrap().contains("out of step"), "{refused}");
    }
    let peer = connect(&site);
    peer.say_json(&json!({"Put": {"path": "file", "size": (1u64 << 63) - 1, "mode": 0o644}}));
    let reason = refused(&peer)["reason"].take();
    assert!(reason.as_str().unwrap().contains("8.0 EiB needed"), "{reason}");
}

/// A record with a name, as docs/files.md has it: `Offer` (7), `File` (2), `Resume` (9).
fn named(kind: u8, name: &[u8], size: u64) -> Vec<u8> {
    let len = u16::try_from(name.len()).unwrap().to_be_bytes();
    [&[kind][..], &len, name, &0o644u32.to_be_bytes(), &[0; 12], &size.to_be_bytes()].concat()
}

fn resume(name: &[u8], size: u64, from: u64) -> Vec<u8> {
    [named(9, name, size), from.to_be_bytes().to_vec()].concat()
}

const ASK: &[u8] = &[8];
const COMPLETE: &[u8] = &[4];

/// Sends these octets as a chunk of a tree to the server.
fn put_chunk(site: &Site, octets: &[u8], terms: &Value) -> Peer {
    let peer = connect(site);
    peer.say_json(&json!({"PutTree": {"path": "sub", "no_clobber": false, "terms": terms}}));
    let window = peer.hear().unwrap()["Tree"]["window"].clone();
    write(&peer, &window, octets);
    peer.say_json(&json!({"Chunk": {"slot": 0, "offset": 0, "len": octets.len()}}));
    peer
}

#[test]
fn records_about_offers_that_make_no_sense_are_refused() {
    let site = Site::new(&["--idle", "5"]);
    fs::write(site.served("sub/there.rddp.part"), "half").unwrap();
    let offer = named(7, b"file", 5 << 20);
    let wrong_digest = [&named(2, b"file", 0)[..], &[10], &[7; 32], COMPLETE].concat();
    let no_digest = [&named(2, b"file", 0)[..], COMPLETE].concat();
    for (octets, check) in [
        (offer.repeat(513), "crc32c"),
        ([ASK, &offer].concat(), "crc32c"),
        (resume(b"file", 5 << 20, 0), "crc32c"),
        (resume(b"there", 5 << 20, 4), "crc32c"),
        (resume(b"file", 7, 8), "crc32c"),
        ([&named(2, b"file", 5)[..], &offer].concat(), "crc32c"),
        ([&named(2, b"file", 5)[..], ASK].concat(), "crc32c"),
        ([10].repeat(33), "sha256"),
        (wrong_digest, "sha256"),
        (no_digest, "sha256"),
    ] {
        let peer = put_chunk(&site, &octets, &json!({"check": check}));
        refused(&peer);
    }
    until("nothing is left", || names(&site.served("sub")) == 1);
}

#[test]
fn an_offer_reaches_nothing_outside() {
    let site = Site::new(&["--idle", "5"]);
    fs::write(site.served("victim"), "precious").unwrap();
    symlink("..", site.served("sub/up")).unwrap();
    symlink("../victim", site.served("sub/link")).unwrap();
    symlink("../victim", site.served("sub/big.rddp.part")).unwrap();
    for name in [&b"../victim"[..], b"/etc/passwd", b"up/victim", b"link", b"", b"..", b"a\0", b"none/x"] {
        let peer = put_chunk(&site, &[&named(7, name, 8)[..], ASK].concat(), &json!({}));
        refused(&peer);
    }
    // A partial file that is a link is none.
    let peer = put_chunk(&site, &[&named(7, b"big", 5 << 20)[..], ASK].concat(), &json!({}));
    let want = std::iter::from_fn(|| peer.hear()).find(|said| said["Want"].is_object()).unwrap();
    assert_eq!(want["Want"], json!({"offered": 1, "same": [], "begun": []}));
    drop(peer);
    assert_eq!(fs::read(site.served("victim")).unwrap(), b"precious");
}

/// A partial file belongs to one transfer, however often it is offered.
#[test]
fn files_that_have_begun_are_told_and_go_on() {
    let site = Site::new(&["--idle", "5"]);
    fs::write(site.served("sub/file.rddp.part"), "123456789").unwrap();
    let size = 1 << 20;
    let peer = put_chunk(&site, &[&named(7, b"file", size)[..], ASK].concat(), &json!({}));
    let want = std::iter::from_fn(|| peer.hear()).find(|said| said["Want"].is_object()).unwrap();
    let begun = json!([{"number": 0, "have": 9, "proof": "e3069283"}]);
    assert_eq!(want["Want"], json!({"offered": 1, "same": [], "begun": begun}));
}

/// Files that had begun are open, and locked, only until the sender has had its turn for them: no
/// more than 16 of the last offers, and of those before.
#[test]
fn a_sender_has_few_files_opened_however_many_it_offers() {
    let site = Site::new(&["--idle", "5"]);
    let names: Vec<String> = (0..60).map(|number| format!("f{number:02}")).collect();
    for name in &names {
        fs::write(site.served(&format!("sub/{name}.rddp.part")), "123456789").unwrap();
    }
    let peer = connect(&site);
    peer.say_json(&json!({"PutTree": {"path": "sub", "no_clobber": false, "terms": {}}}));
    let window = peer.hear().unwrap()["Tree"]["window"].clone();
    let server = site.server.as_ref().unwrap().id();
    let mut offset = 0;
    for (number, part) in names.chunks(20).enumerate() {
        let offers = part.iter().flat_map(|name| named(7, name.as_bytes(), 1 << 20));
        let octets: Vec<u8> = offers.chain(ASK.iter().copied()).collect();
        write(&peer, &window, &octets);
        peer.say_json(&json!({"Chunk": {"slot": 0, "offset": offset, "len": octets.len()}}));
        offset += octets.len();
        let want = std::iter::from_fn(|| peer.hear()).find(|said| said["Want"].is_object()).unwrap();
        assert_eq!(want["Want"]["begun"].as_array().unwrap().len(), 16);
        let open = fs::read_dir(format!("/proc/{server}/fd")).unwrap().filter_map(|entry| {
            fs::read_link(entry.unwrap().path()).ok().filter(|to| to.to_string_lossy().ends_with(".part"))
        });
        assert_eq!(open.count(), 16 * (number + 1).min(2));
    }
}

/// A hole costs its sender nothing, and the server a SHA-256 of zeros.
#[test]
fn holes_under_sha_256_hold_up_nobody() {
    let site = Site::new(&["--idle", "5"]);
    let terms = json!({"check": "sha256", "has_holes": true});
    let end = json!({"End": {"sha256": "00"}});
    let put = |size: u64| {
        let peer = connect(&site);
        let path = format!("holes-{size}");
        peer.say_json(&json!({"Put": {"path": path, "size": size, "mode": 0o644, "terms": terms}}));
        assert!(peer.hear().unwrap()["Take"].is_object());
        peer.say_json(&json!({"From": {"offset": 0}}));
        peer.say_json(&end);
        peer
    };
    let refusal = refused(&put(1 << 62));
    assert!(refusal["reason"].as_str().unwrap().contains("too many for SHA-256"), "{refusal}");
    assert_eq!(refusal["remedy"], "--checksum crc32c, which passes over holes");
    // As many as the server has threads, and more.
    let slow: Vec<Peer> = (0..8).map(|more| put((60 << 30) + more)).collect();
    fs::write(site.here("file"), "octets").unwrap();
    site.put("file", "file").ok();
    // It goes on for no client that has left.
    drop(slow);
    until("the partial files are gone", || names(&site.served("")) == 2);
}

/// Runs a client against a server that the test plays. Returns how the client ended.
fn against(args: impl Fn(&str) -> Vec<String> + Sync, play: impl FnOnce(&Peer)) -> Ended {
    let listener = Rnic::open().unwrap().listen("127.0.0.1:0".parse().unwrap(), &ConnectOptions::default());
    let listener = listener.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let args = args(&host);
            run(&args.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let request = listener.accept(Some(Duration::from_secs(60))).unwrap().unwrap();
        assert_eq!(request.private_data(), FILES);
        let server = Peer::accept(request, FILES);
        play(&server);
        drop(server);
        client.join().unwrap()
    })
}

fn put_of(path: &Path, more: &[&str]) -> impl Fn(&str) -> Vec<String> {
    let fixed: Vec<String> =
        [&["put", path.to_str().unwrap()], more].concat().into_iter().map(Into::into).collect();
    move |host| [&fixed[..], &[format!("{host}/file")]].concat()
}

/// Memory of the server's with these octets, and its description.
fn memory(server: &Peer, octets: &[u8]) -> (rddp_rnic::MemoryRegion, Value) {
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = server.pd.allocate(8 * (512 << 10), access).unwrap();
    region.write(0, octets).unwrap();
    let Remote { stag, to } = region.remote(0);
    (region, json!({"stag": stag.0, "to": to}))
}

#[test]
fn a_server_that_lies_about_a_file_of_one_get_is_not_believed() {
    let here = tempfile::tempdir().unwrap();
    let got = here.path().join("got");
    let give = |window: &Value, nanos: u32| {
        json!({"Give": {"size": 9, "mode": 0o644, "from": 0, "window": window,
            "modified": {"seconds": 7, "nanos": nanos}}})
    };
    let chunk = |offset: u64, crc: u32| json!({"Chunk": {"slot": 0, "offset": offset, "len": 9, "crc": crc}});
    for (nanos, offset, crc, code) in [
        (1_000_000_000, 0, CRC_OF_DIGITS, 3),
        (0, 0, CRC_OF_DIGITS ^ 1, 4),
        (0, 1, CRC_OF_DIGITS, 3),
        (0, u64::MAX, CRC_OF_DIGITS, 3),
    ] {
        let args = |host: &str| vec!["get".into(), format!("{host}/file"), got.display().to_string()];
        let ended = against(args, |server| {
            server.hear().unwrap();
            let (_region, window) = memory(server, b"123456789");
            server.say_json(&give(&window, nanos));
            server.say_json(&chunk(offset, crc));
            while server.hear().is_some() {}
        });
        ended.failed(code, &[]);
        assert!(!got.exists());
    }
    let args = |host: &str| vec!["get".into(), format!("{host}/file"), got.display().to_string()];
    let ended = against(args, |server| {
        server.hear().unwrap();
        let (_region, window) = memory(server, b"123456789");
        server.say_json(&give(&window, 0));
        server.say_json(&chunk(0, CRC_OF_DIGITS));
        assert_eq!(server.hear().unwrap(), json!({"Free": {"slot": 0}}));
        server.say_json(&json!({"End": {"sha256": ""}}));
        assert_eq!(server.hear().unwrap(), json!("Same"));
    });
    ended.ok();
    assert_eq!(fs::read(&got).unwrap(), b"123456789");
}

#[test]
fn a_server_that_lies_about_a_range_is_not_believed() {
    let here = tempfile::tempdir().unwrap();
    let got = here.path().join("got");
    let args = |host: &str| vec!["get".into(), format!("{host}/file"), got.display().to_string()];
    let give = |server: &Peer, size: u64, window: &Value| {
        server.hear().unwrap();
        server.say_json(&json!({"Give": {"size": size, "mode": 0o644, "from": 0, "window": window,
            "modified": {"seconds": 7, "nanos": 0}, "range": true}}));
    };
    let chunk = json!({"Chunk": {"slot": 0, "offset": 0, "len": 9, "crc": CRC_OF_DIGITS}});
    for (size, said, code) in [
        (9, Some(chunk), 3),
        (9, Some(json!({"Free": {"slot": 0}})), 3),
        (9, Some(json!("Same")), 3),
        (u64::MAX, None, 3),
        (1 << 63, None, 3),
    ] {
        let ended = against(args, |server| {
            let (_region, window) = memory(server, b"123456789");
            give(server, size, &window);
            if let Some(said) = &said {
                // In the place of `End`, too, if it comes so late.
                server.say_json(said);
            }
            while server.hear().is_some() {}
        });
        ended.failed(code, &[]);
        assert!(!got.exists());
    }
    let ended = against(args, |server| {
        let (_region, window) = memory(server, b"123456789");
        give(server, 9, &window);
        assert_eq!(server.hear().unwrap(), json!({"At": {"octets": 9}}));
        assert_eq!(server.hear().unwrap(), json!("Done"));
        server.say_json(&json!({"End": {"sha256": ""}}));
        assert_eq!(server.hear().unwrap(), json!("Same"));
    });
    ended.ok();
    assert_eq!(fs::read(&got).unwrap(), b"123456789");
}

#[test]
fn a_server_that_lies_about_extents_is_not_believed() {
    let here = tempfile::tempdir().unwrap();
    let got = here.path().join("got");
    let args = |host: &str| vec!["get".into(), format!("{host}/file"), got.display().to_string()];
    for (list, to, code) in [
        (json!([[1, 4], [6, 1]]), 9, 0),
        (json!([]), 0, 3),
        (json!([[0, 10]]), 10, 3),
        (json!([[0, 9]]), 8, 3),
        (json!([[0, 0]]), 9, 3),
        (json!([[4, 1], [4, 1]]), 9, 3),
        (json!([[1, u64::MAX]]), 9, 3),
    ] {
        let ended = against(args, |server| {
            server.hear().unwrap();
            let (_region, window) = memory(server, b"123456789");
            server.say_json(&json!({"Give": {"size": 9, "mode": 0o644, "from": 0, "window": window,
                "modified": {"seconds": 7, "nanos": 0}, "range": true, "has_holes": true}}));
            assert_eq!(server.hear().unwrap(), json!({"Where": {"from": 0}}));
            server.say_json(&json!({"Extents": {"list": list, "to": to}}));
            let said = server.hear();
            assert_eq!(said == Some(json!({"At": {"octets": 5}})), code == 0, "{list}: {said:?}");
            assert!(code != 0 || server.hear() == Some(json!("Done")));
            server.say_json(&json!({"End": {"sha256": ""}}));
            while server.hear().is_some() {}
        });
        match code {
            0 => assert_eq!(fs::read(&got).unwrap(), b"\x002345\x007\0\0", "{ended:?}"),
            _ => drop(ended.failed(code, &[])),
        }
        let _ = fs::remove_file(&got);
    }
}

#[test]
fn a_server_that_lies_about_octets_in_its_answer_is_not_believed() {
    let here = tempfile::tempdir().unwrap();
    let got = here.path().join("got");
    let args = |host: &str| vec!["get".into(), format!("{host}/file"), got.display().to_string()];
    for (size, crc, sha256, more, code) in [
        (9, CRC_OF_DIGITS, "", json!({}), 0),
        (9, CRC_OF_DIGITS ^ 1, "", json!({}), 4),
        (9, CRC_OF_DIGITS, "00", json!({}), 4),
        (8, CRC_OF_DIGITS, "", json!({}), 3),
        (10, CRC_OF_DIGITS, "", json!({}), 3),
        (9, CRC_OF_DIGITS, "", json!({"window": {"stag": 0, "to": 0}}), 3),
        (13, CRC_OF_DIGITS, "", json!({"from": 4}), 3),
    ] {
        let ended = against(args, |server| {
            server.hear().unwrap();
            let mut give = json!({"size": size, "mode": 0o644, "from": 0,
                "modified": {"seconds": 7, "nanos": 0}, "here": {"crc": crc, "sha256": sha256}});
            give.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            server.say(&[json!({"Give": give}).to_string().as_bytes(), b"123456789"].concat());
            let said: Vec<Value> = std::iter::from_fn(|| server.hear()).collect();
            assert_eq!(said == [json!("Done")], code == 0, "{said:?}");
        });
        match code {
            0 => assert_eq!(fs::read(&got).unwrap(), b"123456789", "{ended:?}"),
            _ => drop(ended.failed(code, &[])),
        }
        let _ = fs::remove_file(&got);
    }
}

#[test]
fn a_client_that_lies_about_a_range_is_refused_alone() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), [7; 20_000]).unwrap();
    let begun = || {
        let peer = connect(&site);
        peer.say_json(&json!({"Get": {"path": "file", "have": 0, "sha256": ""}}));
        let give = peer.hear().unwrap()["Give"].clone();
        assert_eq!(give["range"], true, "{give}");
        (peer, give["window"].clone())
    };
    for lie in [
        json!({"Free": {"slot": 0}}),
        json!({"At": {"octets": 4}}),
        json!({"From": {"offset": 0}}),
        json!({"Where": {"from": 20_001}}),
    ] {
        let (peer, _) = begun();
        peer.say_json(&json!({"At": {"octets": 5}}));
        peer.say_json(&lie);
        assert!(refused(&peer)["reason"].as_str().unwrap().contains("out of step"), "{lie}");
    }
    // A Read beyond the end, and one by another STag.
    let (other, _) = begun();
    for (stag, beyond) in [(0, 20_000), (0, u64::MAX >> 1), (1, 0)] {
        let (peer, window) = begun();
        let sink = peer.pd.allocate(1, Access::LOCAL_WRITE).unwrap();
        let stag = Stag(u32::try_from(window["stag"].as_u64().unwrap()).unwrap() ^ stag);
        let remote = Remote { stag, to: window["to"].as_u64().unwrap().wrapping_add(beyond) };
        peer.qp.post_send(&SendWr::read(1, sink.whole(), remote)).unwrap();
        peer.is_ended();
    }
    // A Read once the client has said that it has all, and in another connection.
    let (peer, window) = begun();
    let (stale, _) = begun();
    peer.say_json(&json!("Done"));
    assert_eq!(peer.hear().unwrap(), json!({"End": {"sha256": ""}}));
    for peer in [&peer, &stale] {
        let sink = peer.pd.allocate(1, Access::LOCAL_WRITE).unwrap();
        let stag = Stag(u32::try_from(window["stag"].as_u64().unwrap()).unwrap());
        let remote = Remote { stag, to: window["to"].as_u64().unwrap() };
        peer.qp.post_send(&SendWr::read(1, sink.whole(), remote)).unwrap();
        peer.is_ended();
        assert!(peer.qp.terminate_received().is_some());
    }
    // The others have the file still.
    other.say_json(&json!("Done"));
    assert_eq!(other.hear().unwrap(), json!({"End": {"sha256": ""}}));
    site.get("file", "file").ok();
}

#[test]
fn a_server_that_lies_about_a_put_is_not_believed() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, "octets").unwrap();
    // The user asked to send it in any case.
    let ended = against(put_of(&file, &["-I"]), |server| {
        assert_eq!(server.hear().unwrap()["Put"]["terms"]["again"], true);
        server.say_json(&json!("Same"));
        while server.hear().is_some() {}
    });
    ended.failed(3, &["out of step"]);
    // A slot that the client has not filled.
    let ended = against(put_of(&file, &[]), |server| {
        server.hear().unwrap();
        let (_region, window) = memory(server, b"");
        server.say_json(&json!({"Take": {"have": 0, "sha256": "", "window": window, "replaces": false}}));
        server.say_json(&json!({"Free": {"slot": 0}}));
        while server.hear().is_some() {}
    });
    ended.failed(3, &["out of step"]);
}

#[test]
fn a_server_that_wants_what_was_not_offered_is_not_believed() {
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![7; 1 << 20]).unwrap();
    let begun = |have: u64| json!([{"number": 0, "have": have, "proof": "00000000"}]);
    for (want, is_whole) in [
        (json!({"offered": 2, "same": [], "begun": []}), false),
        (json!({"offered": 1, "same": [[0, 2]], "begun": []}), false),
        (json!({"offered": 1, "same": [[1, 1]], "begun": []}), false),
        (json!({"offered": 1, "same": [[u64::MAX, u64::MAX]], "begun": []}), false),
        (json!({"offered": 1, "same": [], "begun": [{"number": 1, "have": 1, "proof": ""}]}), false),
        // More than there is of it, and octets that are others: the whole file is sent.
        (json!({"offered": 1, "same": [], "begun": begun(u64::MAX)}), true),
        (json!({"offered": 1, "same": [], "begun": begun(9)}), true),
    ] {
        let ended = against(put_of(&tree, &["-r"]), |server| {
            server.hear().unwrap();
            let (region, window) = memory(server, b"");
            server.say_json(&json!({"Tree": {"window": window}}));
            let chunk = server.hear().unwrap()["Chunk"].clone();
            server.say_json(&json!({"Free": {"slot": chunk["slot"]}}));
            server.say_json(&json!({"Want": want}));
            if !is_whole {
                while server.hear().is_some() {}
                return;
            }
            let chunk = server.hear().unwrap()["Chunk"].clone();
            let slot = usize::try_from(chunk["slot"].as_u64().unwrap()).unwrap();
            // A `File`, not a `Resume`. Then the server goes away.
            assert_eq!(region.read(slot * (512 << 10), 1).unwrap(), [2]);
        });
        ended.failed(3, if is_whole { &[] } else { &["out of step"] });
    }
}
