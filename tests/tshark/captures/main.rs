//! `captures FOLDER`: connections of every kind, as captures and as lists of what was
//! meant (see ../README.md).
#![allow(missing_docs, unreachable_pub, reason = "a program of its own")]

mod meant;
mod pcap;
mod play;
mod relay;
mod talk;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use rddp_rnic::{ConnectOptions, Revision, Rtr, RtrSet};
use serde_json::{Value, json};

use self::play::{Ending, Misdeed, Outcome, play};
use self::talk::Startup;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: captures FOLDER");
        return ExitCode::from(2);
    };
    match all(Path::new(&folder)) {
        Ok(count) => {
            println!("{count} captures in {folder}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("captures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One connection: its name, what either end asks for, how it ends.
type Case = (String, ConnectOptions, ConnectOptions, Ending);

fn all(folder: &Path) -> Outcome<usize> {
    std::fs::create_dir_all(folder)?;
    let cases = cases();
    for (name, initiator, responder, ending) in &cases {
        one(folder, name, initiator, responder, *ending).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(cases.len())
}

fn cases() -> Vec<Case> {
    // On a slow machine nothing may come in between.
    let base = ConnectOptions { mss: Some(1448), nudge: false, ..Default::default() };
    let mut cases = Vec::new();
    for crc in [true, false] {
        for (i2r, r2i) in [(false, false), (true, true), (true, false), (false, true)] {
            // An end asks for the markers that it receives.
            let initiator = ConnectOptions { crc, markers: r2i, ..base.clone() };
            let responder = ConnectOptions { crc, markers: i2r, ..base.clone() };
            let name = format!("crc-{}-markers-i2r-{}-r2i-{}", on(crc), on(i2r), on(r2i));
            cases.push((name, initiator, responder, Ending::Graceful));
        }
    }
    for (initiates, answers) in [(true, false), (false, true)] {
        let initiator = ConnectOptions { crc: initiates, ..base.clone() };
        let responder = ConnectOptions { crc: answers, ..base.clone() };
        cases.push((
            format!("crc-asked-by-{}", if initiates { "initiator" } else { "responder" }),
            initiator,
            responder,
            Ending::Graceful,
        ));
    }
    let startups = [
        ("revision-1", ConnectOptions { revision: Revision::One, ..base.clone() }),
        ("client-server", ConnectOptions { peer_to_peer: false, ..base.clone() }),
        ("rtr-write", ConnectOptions { rtr: RtrSet::only(Rtr::Write), ..base.clone() }),
        ("rtr-read", ConnectOptions { rtr: RtrSet::only(Rtr::Read), ..base.clone() }),
        ("rtr-send", ConnectOptions { rtr: RtrSet::only(Rtr::Send), ..base.clone() }),
        ("depths", ConnectOptions { ird: 4, ord: 2, ..base.clone() }),
        ("private-data", ConnectOptions { private_data: b"from the initiator".to_vec(), ..base.clone() }),
        ("loopback-mss", ConnectOptions { mss: None, ..base.clone() }),
    ];
    for (name, options) in startups {
        let responder =
            ConnectOptions { revision: Revision::Two, rtr: RtrSet::ALL, mss: options.mss, ..base.clone() };
        let private_data = options.private_data.iter().rev().copied().collect();
        cases.push((name.into(), options, ConnectOptions { private_data, ..responder }, Ending::Graceful));
    }
    for (misdeed, code) in [
        (Misdeed::WriteUnknown, 0x1100),
        (Misdeed::WriteBounds, 0x1101),
        (Misdeed::ReadBounds, 0x0101),
        (Misdeed::ReadNoRight, 0x0102),
        (Misdeed::InvalidateUnknown, 0x0209),
        (Misdeed::TooLong, 0x1205),
        (Misdeed::NoReceive, 0x1202),
    ] {
        let ending = Ending::Terminate(misdeed, code);
        cases.push((format!("terminate-{code:04x}"), base.clone(), base.clone(), ending));
    }
    cases
}

fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}

fn one(
    folder: &Path,
    name: &str,
    initiator: &ConnectOptions,
    responder: &ConnectOptions,
    ending: Ending,
) -> Outcome<()> {
    let played = play(initiator, responder, ending)?;
    let enhanced = initiator.revision == Revision::Two;
    let frame = |crc: bool, options: &ConnectOptions| {
        json!({
            "m": u8::from(options.markers), "c": u8::from(crc), "r": 0, "s": u8::from(enhanced),
            "rev": if enhanced { 2 } else { 1 }, "private_data": hex(&options.private_data),
        })
    };
    let mut startup = Startup {
        request: frame(initiator.crc, initiator),
        reply: frame(initiator.crc || responder.crc, responder),
    };
    if enhanced {
        let offered = if initiator.peer_to_peer { initiator.rtr } else { RtrSet::NONE };
        add_enhanced(&mut startup.request, initiator.peer_to_peer, (initiator.ird, initiator.ord), offered);
        let named = played.answered.rtr.map_or(RtrSet::NONE, RtrSet::only);
        add_enhanced(
            &mut startup.reply,
            initiator.peer_to_peer,
            (played.answered.ird, played.answered.ord),
            named,
        );
    }
    let pcap = BufWriter::new(File::create(folder.join(format!("{name}.pcap")))?);
    let list = BufWriter::new(File::create(folder.join(format!("{name}.json")))?);
    Ok(talk::write(played.talk, &played.negotiated, &startup, played.expected, pcap, list)?)
}

/// The fields of RFC 6581 §9.
fn add_enhanced(frame: &mut Value, peer_to_peer: bool, (ird, ord): (u16, u16), rtr: RtrSet) {
    frame["peer_to_peer"] = json!(u8::from(peer_to_peer));
    frame["ird"] = json!(ird);
    frame["ord"] = json!(ord);
    frame["rtr_send"] = json!(u8::from(rtr.send));
    frame["rtr_write"] = json!(u8::from(rtr.write));
    frame["rtr_read"] = json!(u8::from(rtr.read));
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
