//! Seeds of `block_nvme`: hosts that connect, learn what there is, read, write and go.

use rddp_block::export::Command;
use rddp_block::nvme::capsule::{Place, Sqe};
use rddp_block::nvme::connect::{ANY_CONTROLLER, Connect, ConnectData, Fabrics, property};
use rddp_block::nvme::identify::{Asked, Controller, Namespace};
use rddp_block::nvme::io;
use rddp_block::nvme::log::{GetLogPage, page};

use crate::Seeds;

fn keyed(len: u32) -> Place {
    Place::Keyed { address: 0x1000, len, key: 7, invalidate: true }
}

/// A capsule for one of the queues of the target's inputs, and what it fetches.
fn capsule(what: u8, sqe: Sqe, fetched: &[u8]) -> Vec<u8> {
    [&[what][..], &sqe.emit(), fetched].concat()
}

fn connect(what: u8, qid: u16, cntlid: u16, subsystem: &str) -> Vec<u8> {
    let connect = Connect { format: 0, qid, size: 7, keep_alive: 5000 };
    let data = ConnectData { host_id: [1; 16], cntlid, subsystem: subsystem.into(), host: "host".into() };
    capsule(what, Fabrics::Connect(connect).command(1, keyed(1024)), &data.emit())
}

fn enable(what: u8, value: u64) -> Vec<u8> {
    let set = Fabrics::Set { offset: property::CC, is_wide: false, value };
    capsule(what, set.command(2, Place::NONE), &[])
}

fn plain(what: u8, opcode: u8, cdw: [u32; 6]) -> Vec<u8> {
    capsule(what, Sqe::new(opcode, 3, 0, Place::NONE, cdw), &[])
}

fn works(what: u8, command: Command, len: u32) -> Vec<u8> {
    capsule(what, io::command(4, &command, 9, keyed(len)).unwrap(), &[])
}

/// Hosts with a disk, and one that looks for some.
pub(super) fn hosts(seeds: &mut Seeds) {
    let mut add = |seed: &str, parts: &[Vec<u8>]| {
        seeds.insert(("block_nvme", seed.to_owned()), parts.concat());
    };
    let begin = [connect(0, 0, ANY_CONTROLLER, "disk0"), enable(0, 0x0046_0001)].concat();
    let io_queue = connect(2, 1, 1, "disk0");
    let learn = [Asked::Controller, Asked::Namespaces, Asked::Namespace, Asked::Identifiers, Asked::Limits]
        .map(|asked| capsule(0, asked.command(5, u32::from(asked != Asked::Namespaces), keyed(4096)), &[]))
        .concat();
    add(
        "admin",
        &[begin.clone(), learn, plain(0, 9, [7, 3, 0, 0, 0, 0]), plain(0, 12, [0; 6]), plain(0, 24, [0; 6])],
    );
    let range = [&[0; 4][..], &4u32.to_le_bytes(), &8u64.to_le_bytes()].concat();
    let trim = Sqe::new(9, 6, 1, keyed(16), [0, 4, 0, 0, 0, 0]);
    let inside = Place::InCapsule { offset: 0, len: 512 };
    let write = Command::Write { offset: 512, len: 512, fua: true };
    let zero = Command::Zero { offset: 0, len: 512, fua: false, may_trim: true };
    add(
        "data",
        &[
            begin.clone(),
            io_queue.clone(),
            works(2, Command::Read { offset: 0, len: 4096 }, 4096),
            capsule(10, io::command(4, &write, 9, inside).unwrap(), &[]),
            works(2, zero, 0),
            works(2, Command::Flush, 0),
            capsule(2, trim, &range),
        ],
    );
    add("reset", &[begin.clone(), io_queue.clone(), enable(0, 0), enable(0, 0x0046_0001), io_queue]);
    add("silent", &[begin.clone(), plain(32, 24, [0; 6]), plain(33, 24, [0; 6]), plain(16, 24, [0; 6])]);
    let list = GetLogPage { page: page::DISCOVERY, len: 3072, offset: 0 };
    add(
        "discovery",
        &[
            connect(1, 0, ANY_CONTROLLER, "nqn.2014-08.org.nvmexpress.discovery"),
            enable(1, 1),
            capsule(1, list.command(7, 0, keyed(3072)), &[]),
        ],
    );
    let controller = Controller {
        cntlid: 1,
        is_discovery: false,
        subsystem: "disk0".into(),
        serial: "1".into(),
        model: "rddp".into(),
        firmware: "0".into(),
        max_transfer: Some(1 << 20),
        in_capsule: 4096,
        commands: 128,
        namespaces: 1,
        zeroes: true,
        deallocates: true,
        has_cache: true,
    };
    add("controller", &[controller.emit()]);
    let namespace = Namespace { blocks: 2048, block_shift: 9, metadata: 0, nguid: [1; 16], writable: true };
    add("namespace", &[namespace.emit()]);
}
