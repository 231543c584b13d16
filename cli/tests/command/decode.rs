//! `rddp decode`, of a capture made by hand: the vectors of SDP as one connection.

use std::path::PathBuf;

use serde_json::Value;

use crate::program::run;

/// Returns the octets of a vector.
fn vector(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/sdp_vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let found = file["vectors"].as_array().unwrap().iter().find(|vector| vector["name"] == name).unwrap();
    let hex = found["hex"].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Writes a capture of a Request, a Reply, a Data, and that Data once more with a bad CRC.
fn capture(folder: &tempfile::TempDir) -> PathBuf {
    let (request, reply) = (vector("mpa_req_rev1_hello"), vector("mpa_rep_rev1_helloack"));
    let good = vector("fpdu_sdp_data_hello");
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
    let mut next = [1_u32, 1];
    for (from, octets) in [(0, request), (1, reply), (0, good), (0, bad)] {
        let mut packet = vec![0x45, 0];
        packet.extend((40 + octets.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 2 - from]);
        packet.extend([0, 1 + from, 0, 2 - from]);
        packet.extend(next[usize::from(from)].to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        next[usize::from(from)] += octets.len() as u32;
        packet.extend(octets);
        file.extend([9, 0, packet.len() as u32, packet.len() as u32].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    let path = folder.path().join("vectors.pcap");
    std::fs::write(&path, file).unwrap();
    path
}

#[test]
fn messages_are_lines_and_faults_are_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(&folder);
    let ended = run(&["decode", path.to_str().unwrap()]).ok();
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 9, "{ended:?}");
    assert!(
        lines[0].starts_with("0.000000 #0 10.0.0.1:1 > 10.0.0.2:2 MPA Request rev=1 M=0 C=1"),
        "{ended:?}"
    );
    assert!(lines[2].ends_with("Send qn=0 msn=1 mo=0 len=21 L"), "{ended:?}");
    assert!(lines[3].ends_with("SDP Data MSeq=1 MSeqAck=0 Bufs=62 Len=21 payload=5"), "{ended:?}");
    assert!(lines[4].contains("WRONG the FPDU's CRC"), "{ended:?}");
    assert!(lines[7].ends_with("WRONG MSeq 1 where 2 comes next"), "{ended:?}");
    assert!(lines[8].ends_with("1 connections, 2 FPDUs, 2 messages of SDP, 2 problems"), "{ended:?}");
    let ended = run(&["decode", "--problems", path.to_str().unwrap()]).ok();
    assert_eq!(ended.stdout.lines().count(), 3, "{ended:?}");
}

#[test]
fn json_has_an_object_on_each_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(&folder);
    let ended = run(&["decode", "--json", path.to_str().unwrap()]).ok();
    let objects: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = objects.iter().map(|object| object["what"].as_str().unwrap()).collect();
    let wanted = ["startup", "startup", "fpdu", "sdp", "problem", "fpdu", "sdp", "problem", "summary"];
    assert_eq!(kinds, wanted, "{ended:?}");
    assert_eq!((&objects[0]["sdp"]["mid"], objects[0]["sdp"]["bufs"].as_u64()), (&"Hello".into(), Some(64)));
    assert_eq!((objects[2]["opcode"].as_u64(), objects[2]["msn"].as_u64()), (Some(3), Some(1)));
    assert_eq!(
        (&objects[2]["source"], &objects[2]["destination"]),
        (&"10.0.0.1:1".into(), &"10.0.0.2:2".into())
    );
    assert_eq!((&objects[3]["mid"], objects[3]["payload_len"].as_u64()), (&"Data".into(), Some(5)));
    assert_eq!(objects[8]["problems"], 2);
}

#[test]
fn a_file_that_is_no_capture_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, "no capture").unwrap();
    run(&["decode", path.to_str().unwrap()]).failed(1, &["neither a pcap nor a pcapng file"]);
    run(&["decode", folder.path().join("none").to_str().unwrap()]).failed(1, &["reading"]);
    // One that is cut short shows what it has.
    let path = capture(&folder);
    let octets = std::fs::read(&path).unwrap();
    std::fs::write(&path, &octets[..octets.len() - 1]).unwrap();
    let ended = run(&["decode", path.to_str().unwrap()]);
    assert_eq!(ended.stdout.lines().count(), 4, "{ended:?}");
    ended.failed(1, &["the file ends within the packet"]);
}
