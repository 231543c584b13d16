//! Peers of protocol 1, played from the octets of commit 8b6a9e8 (`tests/recorded/record.py`).
//!
//! What is random there, the STags and Tagged Offsets of each end's memory, is replaced by what the
//! other end says now.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::program::run;
use crate::site::Site;

/// The file that was put and got.
fn content() -> Vec<u8> {
    (0u32..1500).map(|count| (count * 7 % 251) as u8).collect()
}

/// A startup frame or an FPDU, and the end that sent it.
struct Frame {
    is_clients: bool,
    octets: Vec<u8>,
}

/// Returns the frames of a recording.
fn recorded(text: &str) -> Vec<Frame> {
    let unhex = |digits: &str| {
        let octet = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(octet).collect::<Vec<u8>>()
    };
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines() {
        let (mark, digits) = line.split_at(2);
        match frames.last_mut() {
            Some(frame) if mark == "  " => frame.octets.extend(unhex(digits)),
            _ => frames.push(Frame { is_clients: mark == "> ", octets: unhex(digits) }),
        }
    }
    frames
}

/// The place of memory: its STag and a Tagged Offset, as the wire has them.
type Place = [u8; 12];

/// A recorded end of a connection, which is played.
struct Player {
    socket: TcpStream,
    /// The place of the other end's memory that was recorded, and the one of now.
    places: Option<(Place, Place)>,
}

impl Player {
    fn new(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Player { socket, places: None }
    }

    /// Plays one end of what was recorded.
    fn play(&mut self, frames: &[Frame], is_client: bool) {
        let mut begun = [false; 2];
        for Frame { is_clients, octets } in frames {
            let is_startup = !std::mem::replace(&mut begun[usize::from(*is_clients)], true);
            if *is_clients == is_client {
                let octets = if is_startup { octets.clone() } else { self.now(octets) };
                self.socket.write_all(&octets).unwrap();
            } else {
                let heard = self.hear(is_startup);
                self.learn(octets, &heard, is_startup);
            }
        }
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.socket.read_exact(&mut octets).unwrap();
        octets
    }

    /// Returns the other end's next frame, but none that only says that it is alive, or that wakes
    /// a peer which has not read its first FPDU.
    fn hear(&mut self, is_startup: bool) -> Vec<u8> {
        loop {
            let mut octets = self.read(if is_startup { 20 } else { 2 });
            let rest = match is_startup {
                true => usize::from(u16::from_be_bytes([octets[18], octets[19]])),
                false => fpdu_len(&octets) - 2,
            };
            octets.extend(self.read(rest));
            if is_startup || !(is_nudge(&octets) || octets.windows(6).any(|part| part == br#""Busy""#)) {
                return octets;
            }
        }
    }

    /// Learns the place of the other end's memory, where a frame names one.
    fn learn(&mut self, recorded: &[u8], heard: &[u8], is_startup: bool) {
        if is_startup {
            return;
        }
        assert_eq!(kind(recorded), kind(heard), "another kind of message than was recorded");
        if let (Some(then), Some(now)) = (place(recorded), place(heard)) {
            self.places = Some((then, now));
        }
    }

    /// Returns an FPDU that was recorded, with the place of now in it.
    fn now(&self, octets: &[u8]) -> Vec<u8> {
        let mut octets = octets.to_vec();
        assert_eq!(crc(&octets), octets[octets.len() - 4..], "the CRC that was recorded");
        let Some((then, now)) = self.places else { return octets };
        let at = match octets[2] & TAGGED {
            0 if octets[3] & OPCODE == READ_REQUEST => 2 + 18 + 16,
            0 => return octets,
            _ => 4,
        };
        let offset = |place: &[u8]| u64::from_be_bytes(place[4..12].try_into().unwrap());
        let to = offset(&octets[at..]).wrapping_sub(offset(&then)).wrapping_add(offset(&now));
        octets[at..at + 4].copy_from_slice(&now[..4]);
        octets[at + 4..at + 12].copy_from_slice(&to.to_be_bytes());
        let (end, crc) = (octets.len() - 4, crc(&octets));
        octets[end..].copy_from_slice(&crc);
        octets
    }
}

/// Bits of DDP's and RDMAP's control octets (RFC 5041 §4.1, RFC 5040 §4.1).
const TAGGED: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const READ_REQUEST: u8 = 1;

/// RFC 5044 §4.1: length, ULPDU, padding, CRC.
fn fpdu_len(octets: &[u8]) -> usize {
    (2 + usize::from(u16::from_be_bytes([octets[0], octets[1]]))).next_multiple_of(4) + 4
}

fn crc(fpdu: &[u8]) -> [u8; 4] {
    crc_fast::crc32_iscsi(&fpdu[..fpdu.len() - 4]).to_le_bytes()
}

/// Returns whether this is a Write of no octets.
fn is_nudge(fpdu: &[u8]) -> bool {
    kind(fpdu) == (TAGGED, 0) && fpdu[..2] == 14u16.to_be_bytes()
}

/// Returns whether a segment is Tagged, and its opcode.
fn kind(fpdu: &[u8]) -> (u8, u8) {
    (fpdu[2] & TAGGED, fpdu[3] & OPCODE)
}

/// Returns the place that a Read Request wants octets to go to, or the window in a server's
/// message.
fn place(fpdu: &[u8]) -> Option<Place> {
    if kind(fpdu) == (0, READ_REQUEST) {
        return fpdu[20..32].try_into().ok();
    }
    let len = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
    let message: Value = serde_json::from_slice(fpdu.get(20..2 + len)?).ok()?;
    let window = &message.as_object()?.values().next()?["window"];
    let stag = u32::try_from(window["stag"].as_u64()?).unwrap().to_be_bytes();
    [&stag[..], &window["to"].as_u64()?.to_be_bytes()].concat().try_into().ok()
}

#[test]
fn a_client_of_protocol_1_puts_and_gets() {
    let mut site = Site::new(&[]);
    fs::write(site.served("file"), content()).unwrap();
    for (op, text) in [("put", include_str!("../recorded/put")), ("get", include_str!("../recorded/get"))] {
        let addr = site.server.as_ref().unwrap().addr;
        Player::new(TcpStream::connect(addr).unwrap()).play(&recorded(text), true);
        let said: Value = serde_json::from_str(&site.server.as_mut().unwrap().line()).unwrap();
        let octets = (&said["op"], &said["octets"], &said["protocol"]);
        assert_eq!(octets, (&op.into(), &1500.into(), &1.into()), "{said}");
    }
    assert_eq!(fs::read(site.served("put")).unwrap(), content());
}

/// Rejects the first connection, which asks for protocol 2, as a server of 8b6a9e8 does.
fn reject(listener: &TcpListener, frames: &[Frame]) {
    let mut player = Player::new(listener.accept().unwrap().0);
    player.hear(true);
    let mut reply = frames.iter().find(|frame| !frame.is_clients).unwrap().octets.clone();
    // RFC 5044 §7.1: the flag R.
    reply[16] |= 0x20;
    player.socket.write_all(&reply).unwrap();
}

#[test]
fn a_client_puts_to_and_gets_from_a_server_of_protocol_1() {
    let here = tempfile::tempdir().unwrap();
    let (file, got) = (here.path().join("file"), here.path().join("got"));
    fs::write(&file, content()).unwrap();
    for (op, text) in [("put", include_str!("../recorded/put")), ("get", include_str!("../recorded/get"))] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote =
            format!("{}/{}", listener.local_addr().unwrap(), if op == "put" { "put" } else { "file" });
        let [file, got] = [&file, &got].map(|path| path.to_str().unwrap());
        let args = if op == "put" { [op, file, &remote] } else { [op, &remote, got] };
        std::thread::scope(|scope| {
            let client = scope.spawn(|| run(&args));
            let frames = recorded(text);
            reject(&listener, &frames);
            Player::new(listener.accept().unwrap().0).play(&frames, false);
            let ended = client.join().unwrap().ok();
            assert!(ended.stdout.contains("by protocol 1"), "{ended:?}");
            assert!(ended.stdout.contains("sha256 "), "{ended:?}");
        });
    }
    assert_eq!(fs::read(got).unwrap(), content());
}

#[test]
fn what_protocol_1_does_not_have_is_refused_with_the_reason() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, content()).unwrap();
    for more in [&["--checksum", "none"][..], &["--checksum", "crc32c"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = format!("{}/put", listener.local_addr().unwrap());
        let args = [&["put", file.to_str().unwrap(), &remote], more].concat();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| run(&args));
            let frames = recorded(include_str!("../recorded/put"));
            reject(&listener, &frames);
            Player::new(listener.accept().unwrap().0).play(&frames[..2], false);
            client.join().unwrap().failed(5, &["more than this server can do (protocol 1)"]);
        });
    }
}
