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
    let mut bad = vector("fpdu_sdp_data_hello");
    *bad.last_mut().unwrap() ^= 1;
    let [request, reply, good] = good();
    written(folder, &[(0, request), (1, reply), (0, good), (0, bad)])
}

/// Returns a Request, a Reply and a Data.
fn good() -> [Vec<u8>; 3] {
    ["mpa_req_rev1_hello", "mpa_rep_rev1_helloack", "fpdu_sdp_data_hello"].map(vector)
}

/// Writes a capture of these octets, and of who sent them.
fn written(folder: &tempfile::TempDir, talk: &[(u8, Vec<u8>)]) -> PathBuf {
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
    let mut next = [1_u32, 1];
    for (from, octets) in talk {
        let mut packet = vec![0x45, 0];
        packet.extend((40 + octets.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1 + from, 10, 0, 0, 2 - from]);
        packet.extend([0, 1 + from, 0, 2 - from]);
        packet.extend(next[usize::from(*from)].to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        next[usize::from(*from)] += octets.len() as u32;
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
    let ended = run(&["decode", "--problems", path.to_str().unwrap()]);
    assert_eq!(ended.stdout.lines().count(), 3, "{ended:?}");
    ended.failed(4, &["vectors.pcap: 2 problems"]);
}

/// A capture is well if something was read and nothing is wrong; a Terminate tells of a fault.
#[test]
fn problems_decide_about_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let [request, reply, data] = good();
    let mut talk = vec![(0, request), (1, reply), (0, data)];
    let path = written(&folder, &talk);
    let ended = run(&["decode", "--problems", path.to_str().unwrap()]).ok();
    assert_eq!(
        ended.stdout,
        "3 packets (0 not read), 1 connections, 1 FPDUs, 1 messages of SDP, 0 problems\n"
    );
    // The FPDU of a Terminate: length, DDP's header, the code of an invalid STag, CRC.
    let header = [0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
    talk.push((1, [&header[..], &[1, 0, 0, 0], &[0x41, 8, 0x2a, 0xc0]].concat()));
    let path = written(&folder, &talk);
    let ended = run(&["decode", "--problems", path.to_str().unwrap()]);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(lines[0].contains(" Terminate ") && lines[0].contains(" 0x0100 "), "{ended:?}");
    assert!(lines[1].ends_with("1 problems (1 Terminate: 0x0100)"), "{ended:?}");
    ended.failed(4, &["vectors.pcap: 1 problems (1 Terminate: 0x0100)"]);
    run(&["decode", path.to_str().unwrap()]).ok();
    // Nothing, and nothing that can be read.
    talk.clear();
    let path = written(&folder, &talk);
    run(&["decode", "--problems", path.to_str().unwrap()]).failed(1, &["no connection of iWARP", "tcpdump"]);
    run(&["decode", path.to_str().unwrap()]).ok();
}

#[test]
fn packets_that_are_not_read_are_told_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(&folder);
    let mut file = std::fs::read(&path).unwrap();
    // Packets of Infiniband, for which the file says that it has IP.
    file[20] = 247;
    std::fs::write(&path, &file).unwrap();
    let ended = run(&["decode", path.to_str().unwrap()]).ok();
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "not read: 4 packets: link type 247, which is not known");
    assert!(lines[1].starts_with("4 packets (4 not read), 0 connections, 0 FPDUs, "), "{ended:?}");
    run(&["decode", "--problems", path.to_str().unwrap()]).failed(1, &["no connection of iWARP"]);
    let ended = run(&["decode", "--json", path.to_str().unwrap()]).ok();
    let summary: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&summary["others"], &summary["unread"][0]["packets"]), (&4.into(), &4.into()));
    // The payload of the Data, of the first 80 octets of a packet.
    let [request, reply, data] = good();
    let path = written(&folder, &[(0, request), (1, reply), (0, data)]);
    let mut file = std::fs::read(&path).unwrap();
    let data = file.len() - 16 - 40 - 48;
    file[data + 8] -= 9;
    file.truncate(file.len() - 9);
    std::fs::write(&path, &file).unwrap();
    let ended = run(&["decode", path.to_str().unwrap()]).ok();
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(lines[2].contains("len=21 L (") && lines[2].ends_with(" octets not captured)"), "{ended:?}");
    assert_eq!(lines[4], "not captured whole: 1 FPDUs: their payload and CRC are not checked", "{ended:?}");
}

#[test]
fn a_file_in_gzip_is_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(&folder);
    let plain = run(&["decode", path.to_str().unwrap()]).ok();
    let packed = std::process::Command::new("gzip").arg("-c").arg(&path).output().unwrap().stdout;
    std::fs::write(&path, &packed).unwrap();
    assert_eq!(run(&["decode", path.to_str().unwrap()]).ok().stdout, plain.stdout);
    std::fs::write(&path, &packed[..packed.len() - 9]).unwrap();
    let ended = run(&["decode", path.to_str().unwrap()]);
    assert!(ended.stdout.contains("MPA Request") && ended.stdout.contains(" packets ("), "{ended:?}");
    ended.failed(1, &["unpacking", "vectors.pcap", "cut short"]);
    // Nothing of the capture's own header is left.
    std::fs::write(&path, &packed[..20]).unwrap();
    run(&["decode", path.to_str().unwrap()]).failed(1, &["unpacking", "cut short"]);
    std::fs::write(&path, [&packed[..], b"more"].concat()).unwrap();
    let ended = run(&["decode", path.to_str().unwrap()]);
    assert_eq!(ended.stdout, plain.stdout);
    ended.failed(1, &["not gzip's, and not read: 4 octets behind the end of its data"]);
}

/// The page on captures and the help say the same of exit codes.
#[test]
fn help_has_the_exit_codes_of_the_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/captures.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| exit status | |\n|---|---|\n").unwrap();
    let help = run(&["decode", "--help"]).ok().stdout;
    let rows: Vec<_> = table.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |")).collect();
    assert_eq!(rows.len(), 3, "{table}");
    for row in rows {
        let (code, says) = row.split_once(" | ").unwrap();
        let line = format!("\n  {code:<4} {}\n", says.replace('`', ""));
        assert!(help.contains(&line), "{line} {help}");
    }
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
    assert_eq!(ended.stdout.lines().count(), 5, "{ended:?}");
    ended.failed(1, &["the file ends within the packet"]);
}
