//! `rddp block`: what it says of mistakes on the command line and of servers that do not help.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use nix::sys::stat::Mode;
use rddp_test_support::pattern;
use tempfile::TempDir;

use crate::program::{Server, run};

const SIZE: usize = 1 << 20;

fn site() -> (TempDir, impl Fn(&str) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap().to_owned();
    let path = move |name: &str| format!("{root}/{name}");
    fs::write(path("disk"), pattern(SIZE, 1)).unwrap();
    (folder, path)
}

fn serve(disk: &str, more: &[&str]) -> Server {
    Server::start(&[&["block", "serve", disk, "--port", "0", "--json"][..], more].concat())
}

#[test]
fn mistakes_are_named_with_a_way_out() {
    let (_folder, path) = site();
    let (disk, missing, link, fifo) = (path("disk"), path("none"), path("link"), path("fifo"));
    symlink(path("nowhere"), &link).unwrap();
    symlink(&disk, path("again")).unwrap();
    nix::unistd::mkfifo(fifo.as_str(), Mode::S_IRWXU).unwrap();
    let other = format!("other={}", path("again"));
    let nameless = format!("{disk}=");
    let name = nameless.rsplit('/').next().unwrap();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["copy", &missing, &link], 1, &["No such file", "that is there"]),
        (&["copy", &disk, &link], 1, &["a link to a file that is not there"]),
        (&["copy", "nbd://localhost", "-"], 2, &["a stream is no disk", "./-"]),
        (&["copy", "-", &missing], 2, &["a stream is no disk", "./-"]),
        (
            &["copy", "nvme://localhost", &missing],
            2,
            &["no subsystem is named", "rddp block ls nvme://localhost"],
        ),
        (&["copy", &fifo, &missing], 1, &["neither a file nor a block device"]),
        (&["serve", &fifo], 1, &["neither a file nor a block device"]),
        (&["serve", name], 2, &["no file behind it", "NAME=FILE"]),
        (&["serve", &missing], 1, &["truncate -s 1G"]),
        (&["serve", "--nqn", "hello", &disk], 2, &["no name of a subsystem", "nqn."]),
        (&["serve", "--writable", &disk, &other], 2, &["two of the disks", "name it once"]),
    ];
    for (args, code, says) in cases {
        run(&[&["block"][..], args].concat()).failed(*code, says);
    }
    assert!(!fs::exists(missing).unwrap());
}

/// Without --writable there is no harm in it.
#[test]
fn a_file_may_be_two_disks_to_read() {
    let (_folder, path) = site();
    let disk = path("disk");
    let _server = serve(&disk, &[&format!("other={disk}")]);
}

#[test]
fn a_file_has_one_writer_of_ours() {
    let (_folder, path) = site();
    let disk = path("disk");
    fs::write(path("from"), pattern(SIZE, 2)).unwrap();
    let server = serve(&disk, &["--writable"]);
    let says = ["another program is about to write it", "lslocks"];
    run(&["block", "copy", &path("from"), &disk]).failed(1, &says);
    run(&["block", "serve", "--writable", "--port", "0", &disk]).failed(1, &says);
    run(&["block", "copy", &disk, &path("copy")]).ok();
    assert!(fs::read(&disk).unwrap() == pattern(SIZE, 1));
    drop(server);
    run(&["block", "copy", &path("from"), &disk]).ok();
}

#[test]
fn a_file_that_may_not_be_written_is_named() {
    let (_folder, path) = site();
    fs::write(path("locked"), pattern(SIZE, 2)).unwrap();
    fs::set_permissions(path("locked"), fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(path("locked")).is_ok() {
        writeln!(std::io::stderr(), "SKIPPED: root may write any file").unwrap();
        return;
    }
    let ended = run(&["block", "copy", &path("disk"), &path("locked")]);
    assert!(!ended.stderr.contains("--writable"), "{ended:?}");
    ended.failed(1, &["ermission denied", "ls -l"]);
    run(&["block", "serve", "--writable", &path("locked")]).failed(1, &["without --writable"]);
}

#[test]
fn servers_that_do_not_help_are_named() {
    let (_folder, path) = site();
    let server = serve(&path("disk"), &["--max-clients", "1", "--allow-host", "nqn.x:friend"]);
    let nvme = format!("nvme://{}", server.listening["nvme"].as_str().unwrap());
    let ended = run(&["block", "ls", &nvme, "--host-nqn", "nqn.x:other"]).ok();
    assert!(
        ended.stderr.contains("shows this host no disks") && ended.stderr.contains("--host-nqn"),
        "{ended:?}"
    );
    // A scheme has no case.
    let nbd = format!("NBD://{}/disk", server.addr);
    run(&["block", "ls", &nbd]).ok();
    let shown = run(&["block", "bench", "-t", "0.1", &nbd]).ok().stdout;
    assert!(shown.contains("on 1 connection,"), "{shown}");
    // The place of the client before is free a moment after its end.
    let greeted =
        || TcpStream::connect(server.addr).ok().filter(|taken| (&*taken).read_exact(&mut [0; 18]).is_ok());
    let _taken = std::iter::repeat_with(greeted).flatten().next().unwrap();
    run(&["block", "ls", &nbd]).failed(3, &["too many clients"]);
    run(&["block", "ls", &nvme]).failed(5, &["too many clients"]);
}

/// Names of hosts keep nobody from NBD.
#[test]
fn a_protocol_that_is_not_wanted_is_not_spoken() {
    let (_folder, path) = site();
    let server = serve(&path("disk"), &["--protocols", "nvme"]);
    assert_eq!(server.listening["listening"], server.listening["nvme"]);
    let ended = run(&["block", "ls", &format!("nbd://{}", server.addr), "--timeout", "1"]);
    assert_ne!(ended.code, 0, "{ended:?}");
    run(&["block", "ls", &format!("nvme://{}", server.addr)]).ok();
    drop(server);
    let server = serve(&path("disk"), &["--protocols", "nbd"]);
    assert!(server.listening["nvme"].is_null());
    run(&["block", "ls", &format!("nbd://{}", server.addr)]).ok();
}

/// The shorter of the usual time and that of --timeout.
#[test]
fn a_target_that_says_nothing_is_waited_for_as_long_as_was_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nvme://{}", listener.local_addr().unwrap());
    run(&["block", "ls", "--timeout", "0.3", &uri]).failed(3, &["within 300ms"]);
}

#[test]
fn the_text_of_a_server_s_error_is_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nbd://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let _ = fails_with_a_text(&mut client);
    });
    let (_folder, path) = site();
    run(&["block", "copy", "-P", "1", &uri, &path("copy")]).failed(5, &["EIO", ": the tape is torn"]);
}

/// A server with structured replies, whose every request fails.
fn fails_with_a_text(client: &mut TcpStream) -> std::io::Result<()> {
    client.write_all(b"NBDMAGICIHAVEOPT\0\x01")?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut option = [0; 16];
        client.read_exact(&mut option)?;
        let len = u32::from_be_bytes(option[12..].try_into().unwrap());
        client.read_exact(&mut vec![0; len as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let magic = 0x3_e889_0455_65a9_u64.to_be_bytes();
            let len = (data.len() as u32).to_be_bytes();
            client.write_all(&[&magic[..], &option[8..12], &kind.to_be_bytes(), &len, data].concat())
        };
        match option[11] {
            // Structured replies.
            8 => reply(1, b"")?,
            // The export.
            7 => {
                reply(3, &[&[0, 0][..], &(SIZE as u64).to_be_bytes(), &[0, 1]].concat())?;
                reply(1, b"")?;
                break;
            }
            _ => reply(1 << 31 | 1, b"")?,
        }
    }
    let mut request = [0; 28];
    while client.read_exact(&mut request).is_ok() {
        let text = b"the tape is torn";
        let data = [&5u32.to_be_bytes()[..], &(text.len() as u16).to_be_bytes(), text].concat();
        let len = (data.len() as u32).to_be_bytes();
        let head = [&0x668e_33efu32.to_be_bytes()[..], &[0, 1, 0x80, 1], &request[8..16], &len].concat();
        client.write_all(&[head, data].concat())?;
    }
    Ok(())
}
