//! Seeds of `files_peer`: messages, records and a greeting, as docs/files.md has them.

use crate::Seeds;

const TO_SERVER: [&str; 12] = [
    r#"{"Put":{"path":"f","size":9,"mode":420,"terms":{"check":"sha256","has_holes":true}}}"#,
    r#"{"Get":{"path":"f","have":4,"sha256":"e3069283","terms":{"check":"none"}}}"#,
    r#"{"PutTree":{"path":"d","no_clobber":true,"terms":{"share":{"number":0,"of":2}}}}"#,
    r#"{"GetTree":{"paths":["a","b"],"recursive":true,"names_only":false}}"#,
    r#"{"Signed":{"mac":"00","request":"\"Same\""}}"#,
    r#"{"Chunk":{"slot":7,"offset":524288,"len":524288,"crc":3808858755}}"#,
    r#"{"End":{"sha256":"","size":9}}"#,
    r#"{"Want":{"offered":3,"same":[[0,1]],"begun":[{"number":1,"have":4,"proof":"00"}],"refused":[[2,7]]}}"#,
    r#"{"Where":{"from":9}}"#,
    r#"{"At":{"octets":9}}"#,
    r#"{"From":{"offset":0}}"#,
    r#""Done""#,
];

const TO_CLIENT: [&str; 7] = [
    r#"{"Take":{"have":0,"sha256":"","window":{"stag":1,"to":2},"replaces":true}}"#,
    r#"{"Give":{"size":9,"mode":420,"from":0,"window":{"stag":1,"to":2},"modified":{"seconds":-1,"nanos":9},"range":true,"has_holes":true}}"#,
    r#"{"Give":{"size":9,"mode":420,"from":6,"modified":{"seconds":1,"nanos":9},"here":{"crc":1,"sha256":""}}}abc"#,
    r#"{"Extents":{"list":[[0,4096],[8192,1]],"to":9000}}"#,
    r#"{"Tree":{"window":{"stag":1,"to":2}}}"#,
    r#"{"Refused":{"reason":"no","remedy":null,"mismatch":false,"changed":true}}"#,
    r#""Busy""#,
];

/// A message for each end, a tree's records, and a greeting.
pub(super) fn messages(seeds: &mut Seeds) {
    let mut add = |name: String, kind: u8, octets: &[u8]| {
        seeds.insert(("files_peer", name), [&[kind], octets].concat());
    };
    for (at, text) in TO_SERVER.iter().enumerate() {
        add(format!("to-server-{at}"), 0, text.as_bytes());
    }
    for (at, text) in TO_CLIENT.iter().enumerate() {
        add(format!("to-client-{at}"), 1, text.as_bytes());
    }
    let named =
        |kind: u8, more: &[u8]| [&[kind, 0, 3][..], b"a/b", &0o644u32.to_be_bytes(), &[0; 12], more].concat();
    // The CRC-32C of the digits is e3069283.
    let data = [&[3][..], &[0; 8], &[0, 0, 0, 9, 0xe3, 0x06, 0x92, 0x83], b"123456789"].concat();
    let size = 9u64.to_be_bytes();
    let tree = [
        named(1, &[]),
        named(7, &size),
        vec![8],
        named(2, &size),
        data,
        vec![10; 33],
        vec![4, 5],
        named(9, &[size, 4u64.to_be_bytes()].concat()),
        [&[11, 0, 1][..], b"a", &[0, 0, 0, 13]].concat(),
        [&[12, 0, 4][..], b"../a", &[1]].concat(),
        vec![6; 17],
    ];
    for (name, kind) in [("tree", 2), ("tree-unchecked", 3)] {
        add(name.to_owned(), kind, &tree.concat());
    }
    add("greeting".to_owned(), 4, b"rddp-files 3\x03");
}
