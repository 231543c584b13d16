//! Calls of the program itself on memory that has gone bad.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use rddp_mpa::fpdu_len;
use rddp_rdmap::Opcode;
use rddp_rnic::{MemError, Remote, SendWr, Stag, Status};

use crate::common::ALL;
use crate::memory::LEN;
use crate::{Scene, Style};

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// Short messages are copied, long ones summed or only gathered.
#[test]
fn a_message_of_memory_gone_bad_fails() {
    for style in [Style::Crc, Style::NoCrc, Style::Markers] {
        for len in [1, 100, 3000, 60_000, LEN] {
            for write in [false, true] {
                let mut scene = Scene::new(style);
                let gather = scene.lent.region.sge(0..len);
                scene.lent.cut(0);
                let request = if write { SendWr::write(3, gather, REMOTE) } else { SendWr::send(3, gather) };
                scene.end.qp.post_send(&request).unwrap();
                scene.fails_locally(3);
            }
        }
    }
}

/// Requests posted before the one with bad memory are sent.
#[test]
fn messages_before_the_bad_one_are_sent() {
    for style in [Style::Crc, Style::NoCrc] {
        for len in [100, 60_000] {
            let mut scene = Scene::new(style);
            let good = scene.end.region(3000, ALL);
            scene.lent.cut(0);
            let list = [
                SendWr::send(1, good.whole()),
                SendWr::send(2, good.sge(0..10)),
                SendWr::send(3, vec![good.whole(), scene.lent.region.sge(0..len)]),
                SendWr::send(4, good.whole()),
            ];
            scene.end.qp.post_sends(&list).unwrap();
            for len in [3000, 10] {
                assert_eq!(scene.raw.expect(Opcode::Send).1.len(), len);
            }
            let statuses: Vec<_> = scene.end.completions_of(1..5).iter().map(|end| end.status).collect();
            let wanted = [Status::Success, Status::Success, Status::LocalProtection, Status::Flushed];
            assert_eq!(statuses, wanted);
            scene.terminates(0x0000);
        }
    }
}

/// The FPDUs before the bad page are whole where they are copied or summed first.
#[test]
fn a_message_that_reaches_memory_gone_bad_ends_between_two_segments() {
    let mut scene = Scene::new(Style::Crc);
    scene.lent.cut(160 << 10);
    scene.end.qp.post_send(&SendWr::send(3, scene.lent.region.whole())).unwrap();
    scene.raw.expect(Opcode::Send);
    scene.fails_locally(3);
}

/// An FPDU with a bad page that TCP has begun to take ends by a reset, since no Terminate can
/// follow it; one that it has not begun ends by a Terminate. How much the kernel takes before it
/// looks at a page is its own affair: with other octets before, it stops elsewhere in the FPDUs.
#[test]
fn an_fpdu_that_tcp_has_begun_ends_by_a_reset_and_one_that_it_has_not_by_a_terminate() {
    let mut resets = 0;
    for before in (0..8).map(|turn| 4096 * turn) {
        let scene = Scene::new(Style::NoCrc);
        let good = scene.end.region(before, ALL);
        scene.lent.cut(188 << 10);
        let list = [SendWr::send(2, good.whole()), SendWr::send(3, scene.lent.region.whole())];
        scene.end.qp.post_sends(&list).unwrap();
        assert_eq!(scene.end.success().wr_id, 2);
        let completion = scene.end.next();
        assert_eq!((completion.wr_id, completion.status), (3, Status::LocalProtection));
        let (octets, end) = read_to_end(&scene.raw.socket);
        let (rest, last) = whole_fpdus(&octets);
        let reset = end == Some(ErrorKind::ConnectionReset);
        assert_eq!((reset, last == Some(Opcode::Terminate)), (!rest.is_empty(), rest.is_empty()));
        resets += usize::from(reset);
        scene.others_go_on();
    }
    assert!(resets > 0, "the kernel never began an FPDU");
}

/// Returns the octets that arrive, and the error that ends them.
pub fn read_to_end(mut socket: &TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut octets = Vec::new();
    let end = socket.read_to_end(&mut octets).err().map(|error| error.kind());
    (octets, end)
}

/// Returns what is left behind the whole FPDUs of a stream, and the opcode of the last of them.
pub fn whole_fpdus(octets: &[u8]) -> (&[u8], Option<Opcode>) {
    let (mut rest, mut last) = (octets, None);
    while let Some((fpdu, behind)) = rest.split_at_checked(first_fpdu_len(rest)) {
        (last, rest) = (Some(Opcode::from_number(fpdu[3] & 0xf).unwrap()), behind);
    }
    (rest, last)
}

/// Returns the length of the first FPDU by its length field (RFC 5044 §4.1); more than any FPDU
/// without one.
fn first_fpdu_len(stream: &[u8]) -> usize {
    stream.first_chunk().map_or(usize::MAX, |len| fpdu_len(u16::from_be_bytes(*len).into()))
}

#[test]
fn copies_by_the_program_say_that_memory_has_gone_bad() {
    let scene = Scene::new(Style::Crc);
    let region = &scene.lent.region;
    scene.lent.cut(4096);
    region.write(0, &[1; 4096]).unwrap();
    assert_eq!(region.read(0, 4096).unwrap(), [1; 4096]);
    let read = region.read(4000, 200).unwrap_err().to_string();
    let written = region.write(4000, &[0; 200]).unwrap_err().to_string();
    assert!(read.contains("no longer there"), "{read}");
    assert_eq!(written, read);
    assert_eq!(region.read_u64(0).unwrap(), 0x0101_0101_0101_0101);
    let numbers = [region.read_u64(4096), region.fetch_add_u64(4096, 1)];
    assert!(numbers.iter().all(|number| matches!(number, Err(MemError::Faulted(_)))), "{numbers:?}");
    scene.others_go_on();
}
