//! The seeds in `corpus/`: made from the test vectors, and from short sequences where the vectors
//! do not suffice.
//!
//! `WRITE_SEEDS=1 cargo test --test seeds` writes them; without that the test compares.

#[path = "seeds/block.rs"]
mod block;
#[path = "seeds/captures.rs"]
mod captures;
#[path = "seeds/files.rs"]
mod files;
#[path = "seeds/nvme.rs"]
mod nvme;
#[path = "seeds/octets.rs"]
mod octets;
#[path = "seeds/sdp.rs"]
mod sdp;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rddp_fuzz::input::{Encode, Octets, Tail};
use rddp_fuzz::mpa_startup::Wish;
use rddp_fuzz::{
    mem_check, mpa_startup, port_mapper, rdmap_pair, rdmap_stream, rnic_stack, rnic_startup, switch_stream,
};
use serde_json::Value;

/// The seeds, by target and name.
type Seeds = BTreeMap<(&'static str, String), Vec<u8>>;

#[test]
fn the_seeds_are_those_of_the_vectors() {
    let seeds = all();
    for ((target, name), octets) in &seeds {
        let path = corpus().join(target).join(name);
        if std::env::var_os("WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, octets).unwrap();
        }
        assert_eq!(std::fs::read(&path).ok().as_ref(), Some(octets), "{}", path.display());
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn all() -> Seeds {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut seeds = Seeds::new();
    for vector in file["vectors"].as_array().unwrap() {
        of_vector(vector, &mut seeds);
    }
    pairs(&mut seeds);
    memory(&mut seeds);
    stack(&mut seeds);
    mapper(&mut seeds);
    policies(&mut seeds);
    streams(&mut seeds);
    records(&mut seeds);
    datagrams(&mut seeds);
    sdp::messages(&mut seeds);
    captures::captures(&mut seeds);
    block::clients(&mut seeds);
    block::servers(&mut seeds);
    nvme::hosts(&mut seeds);
    files::messages(&mut seeds);
    octets::incoming(&mut seeds);
    octets::duplex(&mut seeds);
    seeds
}

/// Streams of records: settings ([`rddp_fuzz::rnic_records::run`]), then records.
fn records(seeds: &mut Seeds) {
    let record = |len: u32| [&len.to_be_bytes()[..], &vec![7; len as usize]].concat();
    let streams = [
        ("fit", [200, 64, 0, 1], [record(5), record(0), record(64)].concat()),
        ("too_long", [200, 64, 0, 2], [record(5), record(65), record(1)].concat()),
        ("dropped", [200, 64, 3, 3], [record(65), record(200), record(1)].concat()),
        ("longest", [200, 64, 1, 4], [record(1), record(201)].concat()),
        ("cut_header", [200, 64, 2, 5], [record(1), vec![0; 3]].concat()),
        ("cut_record", [200, 64, 1, 6], record(70)[..69].to_vec()),
    ];
    for (name, settings, stream) in streams {
        seeds.insert(("rnic_records", name.to_owned()), [&settings[..], &stream].concat());
    }
}

/// Datagrams ([`rddp_fuzz::rnic_datagrams::run`]): all right, one field wrong, cut, and long.
fn datagrams(seeds: &mut Seeds) {
    let datagram = |right: u8, flags: u8, len: u8| {
        let mut octets = vec![9; len.into()];
        if let Some(at) = octets.get_mut(4) {
            *at = flags;
        }
        [&[right, len][..], &octets].concat()
    };
    let inputs = [
        ("right", (0..4).map(|flags| datagram(15, flags, 20 + flags)).collect::<Vec<_>>().concat()),
        ("one_wrong", (0..4).map(|bit| datagram(15 ^ 1 << bit, 3, 30)).collect::<Vec<_>>().concat()),
        ("cut", (0..18).map(|len| datagram(15, 1, len)).collect::<Vec<_>>().concat()),
        ("long", [datagram(15, 2, 64), datagram(15, 2, 65), datagram(15, 2, 255)].concat()),
    ];
    for (name, octets) in inputs {
        seeds.insert(("rnic_datagrams", name.to_owned()), octets);
    }
}

/// Policy files with each kind of rule, and one with a fault of each kind.
fn policies(seeds: &mut Seeds) {
    let files = [
        (
            "rules",
            "use tcp client * 192.0.2.7:*\r\nuse ddp connect c[a-u]*l 192.0.2.0/24:80-89 # here\nuse both listen ?* *:*\n",
        ),
        (
            "ipv6",
            "use auto server * [::]:443\nuse ddp client \\* [2001:db8::/32]:1-2\nuse sdp client * [::ffff:10.0.0.0/104]:7\n",
        ),
        ("log", "# all\n\nlog min-level 7 destination file switch.log\nlog destination syslog"),
        (
            "faults",
            "used\nuse\nuse rdma\nuse ddp both\nuse ddp client [x\nuse ddp client * ::1:2\nuse ddp client * 1.2.3.4/33:1\n\
             use ddp client * *:70000\nuse ddp client * *:2-1 x\nlog level\nlog destination tty\nlog min-level 10\n",
        ),
    ];
    for (name, text) in files {
        seeds.insert(("switch_policy", name.to_owned()), text.as_bytes().to_vec());
    }
}

fn streams(seeds: &mut Seeds) {
    use switch_stream::{Input, Move};
    let step = |what, size, octets: &[u8]| Move { what, size, octets: Octets(octets.to_vec()) };
    // Sends in segments of seven octets, read in part, peeked at, answered, ended.
    let talk = vec![
        step(0, 6, b"the first message of several"),
        step(6, 10, b""),
        step(7, 20, b""),
        step(1, 998, &[0x5a; 3000]),
        step(6, 60_000, b""),
        step(8, 0, b"an answer"),
        step(9, 0, b""),
        step(10, 1, b""),
        step(0, 0, b"one"),
        step(11, 0, b""),
        step(6, 100, b""),
    ];
    let spoiled = vec![step(0, 9, b"good"), step(4, 1, b"spoiled"), step(6, 50, b""), step(8, 0, b"late")];
    let odd = vec![step(5, 0, b"a Write"), step(6, 50, b"")];
    let read = vec![step(5, 1, &[0; 28]), step(5, 50, b"to no queue"), step(6, 50, b"")];
    let torn = vec![
        step(0, 99, b"whole"),
        step(3, 0, b"\0\x20half"),
        step(11, 0, b""),
        step(6, 9, b""),
        step(6, 9, b""),
    ];
    for (name, steps) in [("talk", talk), ("spoiled", spoiled), ("odd", odd), ("read", read), ("torn", torn)]
    {
        for wishes in [0b0000, 0b0101, 0b1111, 0b1_0000] {
            let input =
                Input { responder: wishes & 1 == 0, wishes, max_send: 4096, steps: Tail(steps.clone()) };
            seeds.insert(("switch_stream", format!("{name}_{wishes:05b}")), input.octets());
        }
    }
}

fn hex(value: &Value) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

fn of_vector(vector: &Value, seeds: &mut Seeds) {
    let name = vector["name"].as_str().unwrap();
    let mut add = |target, octets| seeds.insert((target, name.to_owned()), octets);
    if let Some(octets) = hex(&vector["hex"]) {
        if vector["layer"] == "mpa-startup" {
            let (startup, both) = startup(&octets);
            add("mpa_startup", startup);
            add("rnic_startup", both);
        } else {
            add("mpa_deframe", framed(&vector["stream"], &octets));
        }
    }
    let Some(ulpdu) = hex(&vector["ulpdu_hex"]) else { return };
    add("ddp_segment", ulpdu.clone());
    add("rdmap_stream", in_a_stream(&ulpdu));
    add("rnic_stack", at_a_qp(&ulpdu));
    let terminate = hex(&vector["expect"]["terminate_ulpdu_hex"]).unwrap_or(ulpdu);
    if terminate[0] & 0x80 == 0 && terminate.len() > 18 && vector["layer"] != "mpa-fpdu" {
        add("rdmap_terminate", terminate[18..].to_vec());
    }
}

fn framed(stream: &Value, octets: &[u8]) -> Vec<u8> {
    let flags = u8::from(stream["crc"] == true) | u8::from(stream["markers"] == true) << 1;
    let position = stream["pos"].as_u64().unwrap_or(0) / 4 % 128;
    [&[flags, position as u8, 3], octets].concat()
}

fn wish(two: bool, flags: u8) -> Wish {
    Wish { two, flags, ird: 8, ord: 4, max_ird: 16, private_data: 5 }
}

/// The frame of a vector, to either end, in the pure crates and over TCP.
fn startup(octets: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let two = octets.get(17) == Some(&2);
    let (initiator, responder) = (wish(two, 0x35), wish(two, 0x31));
    let pure = mpa_startup::Input {
        initiator: initiator.clone(),
        responder: responder.clone(),
        key: 2,
        stream: Octets(octets.to_vec()),
    };
    let over_tcp = rnic_startup::Input {
        active: octets.get(7..10) == Some(b"Rep"),
        own: initiator,
        peer: responder,
        proper: 0,
        answer: 0,
        cuts: 0,
        octets: Octets(octets.to_vec()),
    };
    (pure.octets(), over_tcp.octets())
}

fn in_a_stream(ulpdu: &[u8]) -> Vec<u8> {
    use rdmap_stream::{Input, Step};
    let raw = Step::Raw { octets: Octets(ulpdu.to_vec()) };
    let send =
        Step::Untagged { opcode: 3, last: true, len: 9, off: 0, msn: 0, mo: 0, payload: Octets::default() };
    let mut steps =
        vec![Step::Post { len: 4096 }, Step::Post { len: 100 }, raw, Step::Answer { mulpdu: 200 }];
    steps.extend([Step::Read { stag: 5, to: 64, size: 300 }, Step::Atomic {}]);
    steps.push(Step::Tagged { opcode: 1, last: true, len: 300, off: 0, stag: 0, to: 0 });
    let response =
        Step::Untagged { opcode: 11, last: true, len: 0, off: 0, msn: 0, mo: 0, payload: Octets::default() };
    steps.extend([response, send]);
    Input { ird: 2, ord: 3, extensions: true, near_wrap: None, steps: Tail(steps) }.octets()
}

/// The segment of a vector, to whatever region its STag is taken to mean.
fn at_a_qp(ulpdu: &[u8]) -> Vec<u8> {
    use rnic_stack::input::{Input, Step, What, flag, more};
    let recv = Step::Recv { at: 0, len: 4096, pieces: 128 };
    let ulpdu = Step::Ulpdu { octets: Octets(ulpdu.to_vec()), region: None };
    let steps = vec![recv.clone(), recv, ulpdu, Step::Local { what: What::Drain {} }];
    Input { flags: flag::CRC | flag::ACTIVE, more: more::AT_ONCE, depth: 0x22, steps: Tail(steps) }.octets()
}

fn pairs(seeds: &mut Seeds) {
    use rdmap_pair::{Input, Step, Work};
    let works = [
        Work::Send { variant: 0, len: 1000 },
        Work::Write { len: 3000 },
        Work::Read { written: true, at: 10, len: 2000 },
        Work::FetchAdd { at: 1, add: 5, mask: 0 },
        Work::CmpSwap { at: 1, equal: true, swap: 9, swap_mask: u64::MAX },
        Work::Immediate { solicited: true, data: 7 },
        Work::Send { variant: 1, len: 0 },
        Work::Read { written: false, at: 0, len: 1500 },
    ];
    for framing in 0..16 {
        let mut steps = Vec::new();
        for end in [false, true] {
            steps.extend(works.iter().map(|work| Step::Submit { end, work: work.clone() }));
        }
        for at in 0..40 {
            let end = at % 3 == 0;
            steps.push(Step::Send { end, answers: at % 2 == 0, mulpdu: at * 31 });
            steps.push(Step::Deliver { end: !end, octets: at * 17 + 1 });
        }
        if framing == 5 {
            steps.push(Step::Terminate { end: true });
        }
        let input = Input { framing, depth: 0x12, steps: Tail(steps) };
        seeds.insert(("rdmap_pair", format!("everything_{framing:02}")), input.octets());
    }
}

fn memory(seeds: &mut Seeds) {
    use mem_check::{Asker, Input, Name, Step};
    let asker = || Asker { who: 0 };
    let other = || Asker { who: 7 };
    let name = |object| Name { object, twist: 0 };
    let remote =
        |object, want, at| Step::Remote { asker: asker(), name: name(object), at, len: 20, want, fill: 0x11 };
    // Rights: local write, remote read, write, atomic, bind and remote invalidate.
    let all = 0x3f;
    let region = Step::Allocate { asker: asker(), len: 500, access: all, for_one_qp: false };
    let lent = Step::Register { asker: asker(), at: 100, len: 900, access: all };
    let bind = Step::Bind {
        asker: asker(),
        window: name(2),
        region: name(0),
        at: 80,
        len: 300,
        access: 0x66,
        key: None,
    };
    let steps = vec![
        region.clone(),
        lent,
        Step::Window { asker: asker() },
        remote(0, 0, 40),
        remote(1, 1, 40),
        remote(1, 2, 31),
        bind.clone(),
        remote(2, 1, 33),
        Step::Local { asker: asker(), name: name(1), at: 50, len: 70, write: true, fill: 3 },
        Step::Local { asker: other(), name: name(1), at: 50, len: 70, write: false, fill: 3 },
        Step::Deregister { name: name(0), windows_too: false },
        Step::Invalidate { asker: asker(), name: name(2), remote: true },
        remote(2, 1, 33),
        bind,
        Step::Deregister { name: name(0), windows_too: true },
        Step::Invalidate { asker: asker(), name: name(1), remote: false },
        Step::Reregister { name: name(1), access: 3 },
        remote(1, 0, 40),
        Step::Deallocate { name: name(2) },
        region,
    ];
    for own_table in [None, Some(5)] {
        let input = Input { own_table, steps: Tail(steps.clone()) };
        let name = if own_table.is_some() { "own_table" } else { "lifecycle" };
        seeds.insert(("mem_check", name.to_owned()), input.octets());
    }
}

fn stack(seeds: &mut Seeds) {
    use rnic_stack::input::{Input, Step, What, Work, flag, more};
    let segment =
        |opcode, region, at, len, last| Step::Segment { opcode, last, region, at, len, twist: 0, value: 6 };
    let post = |work| Step::Post { work, fence: 0 };
    let local = |what| Step::Local { what };
    let recv = Step::Recv { at: 100, len: 9000, pieces: 100 };
    let stories: [(&str, Vec<Step>); 6] = [
        (
            "the_peer_does_everything",
            vec![
                recv.clone(),
                recv.clone(),
                recv.clone(),
                segment(0, 0, 10, 1000, false),
                segment(0, 0, 0, 500, true),
                segment(3, 0, 0, 2000, false),
                segment(3, 0, 0, 2000, true),
                segment(1, 1, 100, 1500, true),
                segment(10, 7, 8, 0, true),
                segment(4, 8, 0, 9, true),
                segment(9, 0, 0, 8, true),
                segment(7, 0, 0, 0, true),
            ],
        ),
        (
            "the_program_does_everything",
            vec![
                segment(0, 0, 0, 0, true),
                post(Work::Send { at: 0, len: 3000, invalidate: None }),
                post(Work::Send { at: 0, len: 10, invalidate: Some(77) }),
                post(Work::Write { at: 5, len: 5000, to: 4096 }),
                post(Work::Inline { len: 100 }),
                post(Work::Read { at: 0, len: 9000, to: 0, invalidate: true }),
                segment(2, 0, 0, 5000, false),
                segment(2, 0, 0, 0, true),
                post(Work::Atomic { at: 0, swap: false, value: 5 }),
                segment(11, 0, 0, 0, true),
                post(Work::Immediate { data: 1, write: Some(300) }),
                local(What::Disconnect {}),
            ],
        ),
        (
            "a_window",
            vec![
                segment(0, 0, 0, 0, true),
                post(Work::Bind { at: 10, len: 600, access: 0x26 }),
                segment(0, 10, 12, 200, true),
                segment(1, 10, 12, 200, true),
                post(Work::Invalidate { region: 10 }),
                post(Work::Bind { at: 100, len: 300, access: 0x06 }),
                segment(0, 10, 120, 20, true),
                post(Work::Invalidate { region: 10 }),
                segment(0, 10, 120, 20, true),
            ],
        ),
        (
            "large_ones_in_pieces",
            vec![
                recv.clone(),
                recv.clone(),
                segment(3, 0, 0, 8000, true),
                Step::Deliver { octets: 300 },
                Step::Deliver { octets: 5000 },
                segment(0, 0, 100, 9000, true),
                Step::Deliver { octets: 4000 },
                segment(0, 0, 11_000, 0xffff, true),
                Step::Deliver { octets: 9000 },
                local(What::Finish {}),
            ],
        ),
        (
            "what_was_granted_is_revoked",
            vec![
                recv.clone(),
                segment(0, 8, 0, 1000, true),
                segment(4, 8, 0, 4, true),
                segment(0, 8, 0, 1000, true),
                local(What::Deregister { region: 0 }),
                segment(0, 0, 0, 10, true),
                local(What::Terminate {}),
            ],
        ),
        (
            "a_bad_receive",
            vec![
                Step::Recv { at: 0, len: 50, pieces: 255 },
                recv,
                segment(3, 0, 0, 40, true),
                post(Work::Inline { len: 3 }),
                local(What::Abort {}),
            ],
        ),
    ];
    let settings = [
        ("crc", flag::CRC | flag::ACTIVE, 0x23),
        ("plain", flag::ACTIVE, 0x7b),
        ("markers", flag::MARKERS_RX | flag::MARKERS_TX | flag::CRC, 0x22),
        ("shared", flag::SRQ | flag::PLACE_BEFORE_CRC | flag::CRC, 0x22),
    ];
    for (story, steps) in stories {
        for (setting, flags, depth) in settings {
            let more = if story == "large_ones_in_pieces" { 0 } else { more::AT_ONCE };
            let input = Input { flags, more, depth, steps: Tail(steps.clone()) };
            seeds.insert(("rnic_stack", format!("{story}_{setting}")), input.octets());
        }
    }
}

fn mapper(seeds: &mut Seeds) {
    use port_mapper::{Answer, Input};
    let answer = |head, wrong, no_port| Answer { head, wrong, no_port, octets: Octets(vec![7; 20]) };
    let inputs = [
        ("accepted", answer(0x14, 0, false), answer(0x14, 0, false)),
        ("refused", answer(0x34, 0, false), answer(0x14, 0, false)),
        ("no_port", answer(0x14, 0, true), answer(0x14, 0, false)),
        ("another_handle_first", answer(0x14, 1, false), answer(0x16, 4, false)),
        ("short", answer(0x14, 2, false), answer(0x54, 8, false)),
    ];
    for (name, first, second) in inputs {
        seeds.insert(("port_mapper", name.to_owned()), Input { first, second }.octets());
    }
}
