//! What the program itself does with memory that has gone bad.

use std::io::{ErrorKind, Read};

use rddp_rdmap::Opcode;
use rddp_rnic::{Remote, SendWr, Stag, Status};

use crate::memory::LEN;
use crate::{Scene, Style};

const REMOTE: Remote = Remote { stag: Stag(1), to: 0 };

/// Short messages are copied, long ones summed or only gathered.
#[test]
#[ignore = "the process is killed"]
fn a_message_of_memory_gone_bad_fails() {
    for style in [Style::Crc, Style::NoCrc] {
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

/// What was posted before the bad one is sent.
#[test]
#[ignore = "the process is killed"]
fn messages_before_the_bad_one_are_sent() {
    for style in [Style::Crc, Style::NoCrc] {
        for len in [100, 60_000] {
            let mut scene = Scene::new(style);
            let good = scene.end.region(3000, crate::ALL);
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
#[ignore = "the process is killed"]
fn a_message_that_reaches_memory_gone_bad_ends_between_two_segments() {
    let mut scene = Scene::new(Style::Crc);
    scene.lent.cut(160 << 10);
    scene.end.qp.post_send(&SendWr::send(3, scene.lent.region.whole())).unwrap();
    scene.raw.expect(Opcode::Send);
    scene.fails_locally(3);
}

/// TCP has begun the FPDU with the bad page when it finds that: no Terminate fits there.
#[test]
#[ignore = "sent on, and then the process is killed"]
fn an_fpdu_that_tcp_has_begun_ends_by_a_reset() {
    let scene = Scene::new(Style::NoCrc);
    scene.lent.cut(160 << 10);
    scene.end.qp.post_send(&SendWr::send(3, scene.lent.region.whole())).unwrap();
    let completion = scene.end.next();
    assert_eq!((completion.wr_id, completion.status), (3, Status::LocalProtection));
    let mut octets = vec![0; 1 << 16];
    let end = loop {
        match (&scene.raw.socket).read(&mut octets) {
            Ok(0) => panic!("closed in the middle of an FPDU"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset);
    scene.others_go_on();
}

#[test]
#[ignore = "the process is killed"]
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
    scene.others_go_on();
}
