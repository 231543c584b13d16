//! `rddp serve`, `put` and `get`.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rddp_test_support::random_octets;

use crate::program::{Ended, Server, command, free_port, interrupt, plain_service, run, until};
use crate::site::{Site, len};

#[test]
fn files_come_back_as_they_went() {
    let site = Site::new(&[]);
    for size in [0, 1, 511, 524_288, 524_289, 5_000_001] {
        fs::write(site.here("file"), random_octets(1, size)).unwrap();
        let put = site.put("file", "sub/stored").ok().json();
        assert_eq!((&put["octets"], &put["file"]), (&size.into(), &"sub/stored".into()));
        assert_eq!(fs::read(site.served("sub/stored")).unwrap(), random_octets(1, size));
        let got = site.get("sub/stored", "again").ok().json();
        assert_eq!([&got["checksum"], &put["checksum"]], ["crc32c"; 2]);
        assert_eq!(fs::read(site.here("again")).unwrap(), random_octets(1, size));
    }
    assert_eq!(fs::read_dir(site.served("sub")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(site.here("")).unwrap().count(), 2);
}

#[test]
fn directories_take_files_under_their_own_names() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    site.put("file", "").ok();
    site.put("file", "sub/").ok();
    assert_eq!(fs::read(site.served("file")).unwrap(), fs::read(site.served("sub/file")).unwrap());
    fs::remove_file(site.here("file")).unwrap();
    site.get("sub/file", "").ok();
    assert_eq!(fs::read(site.here("file")).unwrap(), b"octets");
}

#[test]
fn a_killed_put_goes_on_where_it_ended() {
    let site = Site::new(&[]);
    let content = random_octets(1, 8 << 20);
    fs::write(site.here("file"), &content).unwrap();
    let mut killed = site.slowly("put", site.here("file").to_str().unwrap(), &site.remote("file"));
    until("part of it is there", || len(&site.served("file.rddp.part")) > 1 << 20);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!site.served("file").exists());
    let put = site.put("file", "file").ok().json();
    assert!(put["resumed_from"].as_u64().unwrap() > 1 << 20, "{put}");
    assert_eq!(fs::read(site.served("file")).unwrap(), content);
}

#[test]
fn a_get_whose_server_died_goes_on_where_it_ended() {
    let mut site = Site::new(&[]);
    let content = random_octets(1, 8 << 20);
    fs::write(site.served("file"), &content).unwrap();
    let mut get = site.slowly("get", &site.remote("file"), site.here("").to_str().unwrap());
    until("part of it is there", || len(&site.here("file.rddp.part")) > 1 << 20);
    site.server = None;
    assert_eq!(get.wait().unwrap().code(), Some(3));
    site.serve(&[]);
    let got = site.get("file", "file").ok().json();
    assert!(got["resumed_from"].as_u64().unwrap() > 1 << 20, "{got}");
    assert_eq!(fs::read(site.here("file")).unwrap(), content);
}

#[test]
fn an_interrupted_put_says_how_to_go_on() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), random_octets(1, 8 << 20)).unwrap();
    let (local, remote) = (site.here("file"), site.remote("file"));
    let args = ["put", local.to_str().unwrap(), &remote, "--limit", "4M"];
    let mut put = command(&args).stderr(Stdio::piped()).spawn().unwrap();
    until("part of it is there", || len(&site.served("file.rddp.part")) > 0);
    assert_eq!(interrupt(&mut put), 130);
    let said = std::io::read_to_string(put.stderr.take().unwrap()).unwrap();
    assert!(said.contains("repeat the command"), "{said}");
}

/// Ways to change a file. The first leaves its length and its modification time unchanged.
const CHANGES: [fn(&Path); 4] = [
    |path| {
        let (len, modified) = fs::metadata(path).map(|file| (file.len(), file.modified().unwrap())).unwrap();
        fs::write(path, vec![7; usize::try_from(len).unwrap()]).unwrap();
        fs::File::options().append(true).open(path).unwrap().set_modified(modified).unwrap();
    },
    |path| fs::File::options().append(true).open(path).unwrap().write_all(b"more").unwrap(),
    |path| fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap(),
    |path| {
        let other = path.with_extension("other");
        fs::copy(path, &other).unwrap();
        fs::rename(other, path).unwrap();
    },
];

/// Changes a file in each of these ways, in parallel, while `change_during` has a transfer of it
/// under way.
fn each_change(change_during: impl Fn(fn(&Path)) + Sync) {
    std::thread::scope(|scope| {
        for change in CHANGES {
            let change_during = &change_during;
            scope.spawn(move || change_during(change));
        }
    });
}

#[test]
fn a_file_that_changes_while_it_is_put_does_not_get_its_name() {
    each_change(|change| {
        let site = Site::new(&[]);
        fs::write(site.here("file"), random_octets(1, 3 << 20)).unwrap();
        let (local, remote) = (site.here("file"), site.remote("file"));
        let mut put = command(&["put", local.to_str().unwrap(), &remote, "--limit", "1M"]);
        let put = put.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("part of it is there", || len(&site.served("file.rddp.part")) > 0);
        change(&local);
        let ended = Ended::from(put.wait_with_output().unwrap());
        ended.failed(1, &["it changed while it was being read"]);
        assert!(!site.served("file").exists());
    });
}

#[test]
fn a_file_that_changes_while_it_is_got_leaves_the_target_as_it_was() {
    each_change(|change| {
        let site = Site::new(&[]);
        fs::write(site.here("file"), "precious").unwrap();
        // A file longer than what the server has read when the first octets arrive.
        fs::write(site.served("file"), random_octets(1, 6 << 20)).unwrap();
        let (local, remote) = (site.here("file"), site.remote("file"));
        let mut get = command(&["get", &remote, local.to_str().unwrap(), "--limit", "2M"]);
        let get = get.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("part of it is there", || len(&site.here("file.rddp.part")) > 0);
        change(&site.served("file"));
        let ended = Ended::from(get.wait_with_output().unwrap());
        ended.failed(1, &["file: it changed while it was being read"]);
        assert_eq!(fs::read(&local).unwrap(), b"precious");
        // The octets that remain are not the beginning of any file.
        site.get("file", "file").ok();
        assert_eq!(fs::read(local).unwrap(), fs::read(site.served("file")).unwrap());
    });
}

#[test]
fn a_file_with_octets_and_no_size_is_not_put() {
    let site = Site::new(&[]);
    let ended = run(&["put", "/proc/self/status", &site.remote("status")]);
    ended.failed(1, &["it has octets, but no size", "try: "]);
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 1);
}

#[test]
fn a_file_with_octets_and_no_size_is_not_given() {
    let server =
        Server::start(&["serve", "/proc/sys/kernel", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    let here = tempfile::tempdir().unwrap();
    let ended = run(&["get", &format!("{}/ostype", server.host()), here.path().to_str().unwrap()]);
    ended.failed(5, &["ostype: it has octets, but no size", "try: "]);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
}

/// The octets that exist must be the beginning of the same file.
#[test]
fn the_rest_of_another_file_is_not_resumed() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), random_octets(1, 1 << 20)).unwrap();
    for other in [random_octets(1, 1000)[1..].to_vec(), random_octets(1, 2 << 20)] {
        let _ = fs::remove_file(site.served("file"));
        fs::write(site.served("file.rddp.part"), other).unwrap();
        assert_eq!(site.put("file", "file").ok().json()["resumed_from"], 0);
        assert_eq!(fs::read(site.served("file")).unwrap(), random_octets(1, 1 << 20));
    }
    fs::write(site.here("again.rddp.part"), "something else").unwrap();
    assert_eq!(site.get("file", "again").ok().json()["resumed_from"], 0);
    assert_eq!(fs::read(site.here("again")).unwrap(), random_octets(1, 1 << 20));
}

#[test]
fn a_path_that_leaves_the_directory_is_refused() {
    let site = Site::new(&[]);
    fs::write(site.tree.path().join("secret"), "secret").unwrap();
    fs::write(site.here("file"), "octets").unwrap();
    symlink(site.tree.path(), site.served("up")).unwrap();
    symlink("../secret", site.served("out")).unwrap();
    let absolute = site.tree.path().join("secret");
    let absolute = absolute.to_str().unwrap();
    for path in ["../secret", "sub/../../secret", "up/secret", absolute] {
        site.get(path, "got").failed(5, &["outside the served directory"]);
        site.put("file", path).failed(5, &["outside the served directory"]);
    }
    site.get("out", "got").failed(5, &["outside the served directory"]);
    site.put("file", "out").failed(5, &["outside the served directory"]);
    assert_eq!(fs::read(site.tree.path().join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(site.here("")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(site.tree.path()).unwrap().count(), 3);
}

#[test]
fn what_cannot_be_done_is_named_and_leaves_nothing() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    site.get("none", "got").failed(5, &["none: no such file"]);
    site.get("sub", "got").failed(5, &["sub: a directory", "--recursive"]);
    site.put("file", "none/file")
        .failed(5, &["directory does not exist", r#""remedy":"make the directory first"#]);
    site.put("file", "sub").failed(5, &["sub: not a regular file"]);
    // What is no directory where one is wanted.
    fs::write(site.served("plain"), "octets").unwrap();
    site.get("plain/file", "got").failed(5, &["plain/file: not a directory"]);
    let [file, plain] = [site.here("file").to_str().unwrap().to_owned(), site.remote("plain")];
    run(&["put", "-r", &file, &plain]).failed(5, &["plain: not a directory"]);
    fs::remove_file(site.served("plain")).unwrap();
    site.put("none", "file").failed(1, &["no such file"]);
    // Also before a server is asked, which need not be there.
    run(&["put", "none", "127.0.0.1:1/none"]).failed(1, &["none: no such file"]);
    site.put("", "file").failed(1, &["a directory"]);
    site.get("file", "none/file").failed(1, &["directory does not exist"]);
    fs::write(site.served("stored"), "octets").unwrap();
    for none in ["none/", "none/.", "file/"] {
        site.get("stored", none).failed(1, &["no such directory", r#""remedy":"make the directory first"#]);
    }
    fs::remove_file(site.served("stored")).unwrap();
    assert_eq!(fs::read_dir(site.here("")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 1);
}

#[test]
fn names_of_files_that_are_not_complete_are_reserved() {
    let site = Site::new(&[]);
    fs::write(site.here("file"), "octets").unwrap();
    fs::write(site.served("file"), "octets").unwrap();
    fs::write(site.served("there.rddp.part"), "octets").unwrap();
    let says = ["that end in .rddp.part", r#""remedy":"choose another name"#];
    site.put("file", "new.rddp.part").failed(5, &says);
    site.put("file", "there.rddp.part").failed(5, &says);
    site.get("there.rddp.part", "got").failed(5, &says);
    site.get("file", "got.rddp.part").failed(1, &says);
    assert_eq!(fs::read_dir(site.here("")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(site.served("")).unwrap().count(), 3);
}

#[test]
fn many_clients_at_once_get_and_put() {
    let site = Site::new(&[]);
    fs::write(site.served("file"), random_octets(1, 3_000_000)).unwrap();
    fs::write(site.here("file"), random_octets(1, 3_000_000)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let site = &site;
            scope.spawn(move || site.get("file", &format!("got{number}")).ok());
            scope.spawn(move || site.put("file", &format!("put{number}")).ok());
        }
    });
    for number in 0..8 {
        assert_eq!(fs::read(site.here(&format!("got{number}"))).unwrap(), random_octets(1, 3_000_000));
        assert_eq!(fs::read(site.served(&format!("put{number}"))).unwrap(), random_octets(1, 3_000_000));
    }
}

#[test]
fn more_clients_than_allowed_are_told_so() {
    let mut site = Site::new(&["--max-clients", "1"]);
    fs::write(site.here("file"), random_octets(1, 8 << 20)).unwrap();
    let mut first = site.slowly("put", site.here("file").to_str().unwrap(), &site.remote("file"));
    until("it has begun", || len(&site.served("file.rddp.part")) > 0);
    let (file, other) = (site.here("file"), site.remote("other"));
    let put = |retry| run(&["put", file.to_str().unwrap(), &other, "--retry", retry]);
    put("0").failed(5, &["too many clients", "try: repeat the command later, or with a longer --retry"]);
    put("0.5").failed(5, &["too many clients", "tried again for 0.5 s"]);
    let four = ["put", "-r", "-P", "4", file.to_str().unwrap(), &other, "--retry", "0.5"];
    let ended = run(&four).failed(5, &["try: repeat the command later"]);
    assert_eq!(ended.stderr.matches("tried again").count(), 1, "{ended:?}");
    let server = site.server.as_mut().unwrap();
    assert!(server.complaint().contains("a client is turned away: too many clients"));
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_server_whose_lines_nobody_reads_goes_on() {
    let mut site = Site::new(&[]);
    site.server.as_mut().unwrap().read_no_more();
    fs::write(site.here("file"), "octets").unwrap();
    for name in ["one", "two", "three"] {
        site.put("file", name).ok();
    }
}

/// A service manager takes any other status for a failure of the server.
#[test]
fn a_server_stops_in_good_order_though_a_client_stands_still() {
    let mut site = Site::new(&[]);
    fs::write(site.served("file"), vec![7; 64 << 20]).unwrap();
    let mut client = site.slowly("get", &site.remote("file"), site.here("file").to_str().unwrap());
    until("the transfer goes on", || site.here("file.rddp.part").exists());
    let send = |signal| {
        let client = Pid::from_raw(client.id().try_into().unwrap());
        kill(client, signal).unwrap();
    };
    send(Signal::SIGSTOP);
    let status = site.server.take().unwrap().stop();
    send(Signal::SIGKILL);
    client.wait().unwrap();
    assert_eq!(status, 0);
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    let mut site = Site::new(&["--max-clients", "1", "--idle", "0.2"]);
    fs::write(site.here("file"), random_octets(1, 1000)).unwrap();
    // A client that is stopped keeps its connection.
    fs::write(site.here("long"), random_octets(1, 8 << 20)).unwrap();
    let stopped = site.slowly("put", site.here("long").to_str().unwrap(), &site.remote("long"));
    until("it has begun", || len(&site.served("long.rddp.part")) > 0);
    let pid = nix::unistd::Pid::from_raw(stopped.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    until("there is room for another", || site.put("file", "file").code == 0);
    let line = site.server.as_mut().unwrap().line();
    assert!(line.contains(r#""op":"put","file":"file","octets":1000"#), "{line}");
    let mut stopped = stopped;
    stopped.kill().unwrap();
    stopped.wait().unwrap();
}

#[test]
fn a_service_that_is_not_rddp_serve_is_named_as_such() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    run(&["put", file, &format!("{}/x", free_port())]).failed(3, &["nothing listens on", "rddp serve"]);
    run(&["put", file, &format!("{}/x", plain_service(b""))]).failed(3, &["too many connections"]);
    run(&["put", file, &format!("{}/x", plain_service(b"hello"))]).failed(3, &["rddp serve"]);
    let ping = Server::start(&["ping", "--server", "--bind", "127.0.0.1", "--port", "0", "--json"]);
    run(&["put", file, &format!("{}/x", ping.host())]).failed(3, &[]);
    let site = Site::new(&[]);
    let host = site.server.as_ref().unwrap().host();
    run(&["ping", &host]).failed(5, &["this is rddp serve"]);
}

/// The first segment of a long message is as long as MPA allows, not as TCP's first segments on
/// loopback: the client's flag and the server's are consent for either end.
#[test]
fn large_fpdus_are_sent_by_both_ends_if_the_user_asks() {
    let site = Site::new(&[]);
    let content = random_octets(1, 2 << 20);
    fs::write(site.here("file"), &content).unwrap();
    let (here, remote) = (site.here("file"), site.remote("file"));
    let again = site.here("again");
    for (args, name) in [
        (["put", here.to_str().unwrap(), &remote], "RDMA Write"),
        (["get", &remote, again.to_str().unwrap()], "RDMA Read Response"),
    ] {
        let capture = site.here("capture.pcapng");
        let args = [&args[..], &["--large-fpdus"]].concat();
        Ended::from(command(&args).env("RDDP_CAPTURE", &capture).output().unwrap()).ok();
        let decoded = run(&["decode", "--json", capture.to_str().unwrap()]).ok().stdout;
        let events = decoded.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let first = events.filter(|event| event["name"] == name).find(|fpdu| fpdu["len"].as_u64() > Some(0));
        assert_eq!(first.unwrap()["len"], 64_768 - 14, "{name}");
        fs::remove_file(capture).unwrap();
    }
    assert_eq!(fs::read(again).unwrap(), content);
}

#[test]
fn a_server_that_is_silent_from_the_beginning_has_as_long_as_the_user_says() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = format!("{}/file", silent.local_addr().unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    let commands: [&[&str]; 3] =
        [&["put", file.path().to_str().unwrap(), &remote], &["get", &remote, "/dev/null"], &["ls", &remote]];
    for command in commands {
        run(&[command, &["--timeout", "0.25"]].concat()).failed(3, &["MPA startup within 250ms"]);
    }
}

/// A single one would be taken for a control character that was escaped.
#[test]
fn a_backslash_in_a_name_is_doubled_for_people() {
    let site = Site::new(&[]);
    let file = site.here(r"a\nb");
    fs::write(&file, "x").unwrap();
    let put = run(&["put", file.to_str().unwrap(), &site.remote("")]).ok();
    assert!(put.stdout.starts_with(r"a\\nb: 1 octet in "), "{put:?}");
    site.get(r"a\nc", "got").failed(5, &[r#"the server: a\\\\nc: no such file"#]);
    assert_eq!(site.get(r"a\nb", "got").ok().json()["file"], r"a\nb");
}
