//! Seeds of `block_nbd`: handshakes of clients, each way in, with requests behind them.

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
