//! Seeds of `block_nbd`: handshakes of clients and servers, each way in, with requests or replies
//! behind them.

use crate::Seeds;

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

fn request(flags: u16, kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let magic = 0x2560_9513u32.to_be_bytes();
    let words = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
    [&magic[..], &words, &7u64.to_be_bytes(), &offset.to_be_bytes(), &len.to_be_bytes()].concat()
}

/// The old way in and the new one, structured replies with a context, a list, an abort.
pub(super) fn clients(seeds: &mut Seeds) {
    let name = b"\0\0\0\x06second";
    let context = [&name[..], b"\0\0\0\x01\0\0\0\x0fbase:allocation"].concat();
    let go = option(7, &[&name[..], b"\0\x01\0\x03"].concat());
    let requests = [
        request(0, 0, 5, 900),
        [request(1, 1, 0, 4), b"data".to_vec()].concat(),
        request(0, 3, 0, 0),
        request(0, 4, 0, 512),
        request(2, 6, 0, 512),
        request(8, 7, 0, 4096),
        request(0, 0, u64::MAX, 2),
        request(0, 2, 0, 0),
    ]
    .concat();
    let mut add = |seed: &str, options: &[Vec<u8>], requests: &[u8]| {
        let octets = [&3u32.to_be_bytes()[..], &options.concat(), requests].concat();
        seeds.insert(("block_nbd", seed.to_owned()), octets);
    };
    add("export-name", &[option(1, b"first")], &requests);
    add("go", std::slice::from_ref(&go), &requests);
    add("allocation", &[option(8, &[]), option(9, &context), option(10, &context), go], &requests);
    add("list-and-abort", &[option(3, &[]), option(5, &[]), option(2, &[])], &[]);
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x3_e889_0455_65a9u64.to_be_bytes();
    let words = [option.to_be_bytes(), kind.to_be_bytes(), (data.len() as u32).to_be_bytes()].concat();
    [&magic[..], &words, data].concat()
}

fn chunk(flags: u16, kind: u16, cookie: u64, data: &[u8]) -> Vec<u8> {
    let words = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
    let len = (data.len() as u32).to_be_bytes();
    [&0x668e_33efu32.to_be_bytes()[..], &words, &cookie.to_be_bytes(), &len, data].concat()
}

fn simple(error: u32, cookie: u64) -> Vec<u8> {
    [&0x6744_6698u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// Servers with all that a client asks for, and with nothing of it; one that lists its exports.
pub(super) fn servers(seeds: &mut Seeds) {
    const FAILED: u32 = 1 << 31;
    const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
    let mut add = |seed: &str, parts: &[Vec<u8>]| {
        seeds.insert(("block_nbd", seed.to_owned()), [GREETING, &parts.concat()].concat());
    };
    let export = [&[0, 0][..], &(1u64 << 20).to_be_bytes(), &[1, 0x6d]].concat();
    let sizes = [&[0, 3][..], &[0, 0, 2, 0], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat();
    let at = |offset: u64, data: &[u8]| [&offset.to_be_bytes()[..], data].concat();
    let hole = at(1032, &32u32.to_be_bytes());
    let extents = [1u32, 32, 3, 32, 0].map(u32::to_be_bytes).concat();
    let error = [&5u32.to_be_bytes()[..], &[0, 2], b"oh"].concat();
    add(
        "server-structured",
        &[
            reply(8, 1, &[]),
            reply(10, 4, b"\0\0\0\x01base:allocation"),
            reply(10, 1, &[]),
            reply(7, 3, &export),
            reply(7, 3, &sizes),
            reply(7, 1, &[]),
            chunk(1, 1, 0, &at(0, &[7; 64])),
            chunk(0, 1, 1, &at(1000, &[7; 32])),
            chunk(0, 2, 1, &hole),
            chunk(1, 0, 1, &[]),
            chunk(1, 1 << 15 | 1, 2, &error),
            chunk(1, 1 << 15 | 2, 3, &[&error[..], &[0; 8]].concat()),
            chunk(1, 5, 4, &extents),
            simple(22, 5),
            simple(0, 6),
        ],
    );
    let old = at(1 << 20, &[0, 1]);
    let replies = [simple(0, 0), vec![7; 64], simple(5, 1), simple(0, 6)].concat();
    add("server-old", &[reply(8, FAILED | 1, &[]), reply(7, FAILED | 1, b"no"), old, replies]);
    add("server-unknown", &[reply(8, FAILED | 1, &[]), reply(7, FAILED | 6, b"no such export")]);
    add(
        "server-list",
        &[
            reply(3, 2, b"\0\0\0\x04disk"),
            reply(3, 2, b"\0\0\0\0and more"),
            reply(3, 1, &[]),
            reply(6, 3, &export),
            reply(6, 1, &[]),
            reply(6, FAILED | 1, &[]),
        ],
    );
}
