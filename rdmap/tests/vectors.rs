//! Every vector about DDP and RDMAP, against a stream with memory: verdict, placement, and the
//! Terminate octet for octet.
#![allow(clippy::unwrap_used, reason = "a test")]

use rddp_ddp::{Header, Msn, Qn, Stag, TaggedRepr};
use rddp_mpa::MpaError;
use rddp_rdmap::{
    AtomicOp, AtomicResponseRepr, Event, Fault, Offending, Opcode, Place, ReadRequestRepr, Response, Stream,
    StreamConfig, TerminateCode, TerminateRepr, parse_header, terminate_for, untagged_header,
};
use rddp_test_support::streams::{Guarded, Memory};
use serde_json::{Map, Value};

struct Vector {
    name: String,
    layer: String,
    kind: String,
    rx: Map<String, Value>,
    ulpdu: Option<Vec<u8>>,
    input: Value,
    expect: Value,
}

/// Returns the vectors, each with the context of its receiver: the default one, with the vector's
/// changes.
fn vectors() -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/vectors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let default = file["default_rx_context"].as_object().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let vector = |vector: &Value| {
        let mut rx = default.clone();
        for (key, value) in vector["rx"].as_object().into_iter().flatten() {
            rx.insert(key.clone(), value.clone());
        }
        Vector {
            name: text(&vector["name"]),
            layer: text(&vector["layer"]),
            kind: text(&vector["kind"]),
            rx,
            ulpdu: vector["ulpdu_hex"].as_str().map(octets),
            input: vector["in"].clone(),
            expect: vector["expect"].clone(),
        }
    };
    file["vectors"].as_array().unwrap().iter().map(vector).collect()
}

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn number(value: &Value) -> u64 {
    match value.as_str() {
        Some(hex) => u64::from_str_radix(hex.strip_prefix("0x").unwrap(), 16).unwrap(),
        None => value.as_u64().unwrap_or(0),
    }
}

fn stag(value: &Value) -> Stag {
    Stag(u32::try_from(number(value)).unwrap())
}

/// A receiver as a vector's context describes it.
struct Receiver {
    stream: Stream,
    memory: Memory,
    /// Receives posted on queue 0; the first `taken` have been given to the stream.
    receives: Vec<Guarded>,
    taken: usize,
}

/// The outcome of a segment.
#[derive(Debug)]
struct Outcome {
    event: Event,
    /// The answer to a request, as a ULPDU.
    response: Option<Vec<u8>>,
}

impl Receiver {
    fn new(rx: &Map<String, Value>) -> Self {
        let extensions = rx.get("rfc7306") != Some(&Value::Bool(false));
        let ird = number(&rx["q1"]["ird"]) as u32;
        let mut receiver = Receiver {
            stream: Stream::new(StreamConfig { ird, ord: 8, extensions }),
            memory: memory(rx),
            receives: buffers(&rx["q0"]["posted_buffer_lengths"]),
            taken: 0,
        };
        receiver.bring_to(rx);
        receiver
    }

    /// Brings the stream to the state of the context, by the segments that lead there.
    fn bring_to(&mut self, rx: &Map<String, Value>) {
        let msn = |queue: &str| Msn(number(&rx[queue]["next_msn"]) as u32);
        for (qn, queue) in [(0, "q0"), (1, "q1"), (2, "q2"), (3, "q3")] {
            self.stream.expect_msn(Qn(qn), msn(queue));
        }
        self.open_send(msn("q0"), number(&rx["q0"]["placed"]) as usize);
        self.queue_reads(msn("q1"), number(&rx["q1"]["reads_in_progress"]) as u32);
        for read in rx["outstanding_reads"].as_array().unwrap() {
            self.issue_read(read);
        }
        self.stream.number_atomics_from(0xcafe_0001);
        (0..number(&rx["q3"]["atomics_outstanding"])).for_each(|id| {
            self.stream.issue_atomic(id);
        });
    }

    fn open_send(&mut self, msn: Msn, placed: usize) {
        if placed > 0 {
            let header = untagged_header(Opcode::Send, Stag(0), msn, 0, false);
            self.take(&header, &vec![0; placed]).unwrap();
        }
    }

    fn queue_reads(&mut self, next: Msn, in_progress: u32) {
        self.stream.expect_msn(Qn(1), Msn(next.0.wrapping_sub(in_progress)));
        let read = ReadRequestRepr { sink_stag: Stag(0), sink_to: 0, size: 0, src_stag: Stag(0), src_to: 0 };
        for back in (1..=in_progress).rev() {
            let header =
                untagged_header(Opcode::ReadRequest, Stag(0), Msn(next.0.wrapping_sub(back)), 0, true);
            self.take(&header, &read.octets()).unwrap();
        }
    }

    fn issue_read(&mut self, read: &Value) {
        let (sink, to, size) = (stag(&read["sink_stag"]), number(&read["sink_to"]), number(&read["length"]));
        // The sink is for this end's own Reads; no peer may write there.
        let region = self.memory.add(sink, to, size as usize);
        (region.read, region.write) = (false, false);
        self.stream.issue_read(1, sink, to, size as u32);
        let placed = number(&read["placed"]);
        if placed > 0 {
            let header = TaggedRepr { last: false, rsvd_ulp: 0x42, stag: sink, to };
            self.take(&header.into(), &vec![0; placed as usize]).unwrap();
        }
    }

    /// Handles a segment from the wire: header, memory, delivery, answer.
    fn segment(&mut self, ulpdu: &[u8]) -> Result<Outcome, (Fault, Option<Offending>)> {
        let header = parse_header(ulpdu).map_err(|fault| (fault, None))?;
        let payload = &ulpdu[header.len()..];
        let about = |fault| (fault, Some(Offending::new(header, payload.len())));
        let event = self.take(&header, payload).map_err(about)?;
        if let Event::Received { invalidate: Some(stag), .. } = event {
            self.memory.invalidate(stag).map_err(Fault::invalidate).map_err(about)?;
        }
        let response = match event {
            Event::InboundRequest => {
                Some(self.respond().map_err(|(fault, offending)| (fault, Some(offending)))?)
            }
            _ => None,
        };
        Ok(Outcome { event, response })
    }

    fn take(&mut self, header: &Header, payload: &[u8]) -> Result<Event, Fault> {
        let (receives, taken) = (&self.receives, &mut self.taken);
        let mut receive = || {
            let len = receives.get(*taken)?.octets().len() as u64;
            *taken += 1;
            Some(len)
        };
        let mut control = &[][..];
        match self.stream.accept(header, payload.len(), &mut receive)? {
            Place::Nothing => {}
            Place::Write { stag, to } => self.memory.write(stag, to, payload).map_err(Fault::write_access)?,
            Place::Receive { mo } => self.receives[self.taken - 1].place(mo as usize, payload),
            Place::Sink { stag, offset, .. } => {
                self.memory.region(stag).memory.place(offset as usize, payload);
            }
            Place::Control => control = payload,
            Place::Dropped => panic!("the stream was alive"),
        }
        self.stream.commit(header, payload.len(), control)
    }

    /// Answers the request at the head of the line, in one segment.
    fn respond(&mut self) -> Result<Vec<u8>, (Fault, Offending)> {
        match self.stream.next_response().unwrap() {
            Response::Read(read) => {
                let segment = read.segment(65535);
                let mut ulpdu = segment.header.octets().to_vec();
                if read.request.size > 0 {
                    let source = self.memory.read(read.request.src_stag, segment.src_to, segment.len);
                    ulpdu.extend(source.map_err(|error| (Fault::read_source(error), read.offending()))?);
                }
                Ok(ulpdu)
            }
            Response::Atomic(atomic) => {
                let original = self
                    .memory
                    .atomic(atomic.request.stag, atomic.request.to, atomic.request.op)
                    .map_err(|error| (Fault::atomic_access(error), atomic.offending()))?
                    .ok_or((Fault::misaligned_atomic(), atomic.offending()))?;
                let header = untagged_header(Opcode::AtomicResponse, Stag(0), Msn::FIRST, 0, true);
                let response = AtomicResponseRepr { request_id: atomic.request.request_id, original };
                Ok([&*header.octets(), &response.octets()].concat())
            }
        }
    }

    /// Returns all octets that a peer could have changed.
    fn contents(&self) -> (Vec<Guarded>, Vec<Guarded>) {
        let regions = self.memory.regions.iter().map(|region| region.memory.clone()).collect();
        (regions, self.receives.clone())
    }

    fn assert_guards(&self) {
        self.memory.assert_guards();
        self.receives.iter().for_each(Guarded::assert_guards);
    }
}

fn memory(rx: &Map<String, Value>) -> Memory {
    let mut memory = Memory { pd: number(&rx["stream_pd"]) as u32, regions: Vec::new() };
    for entry in rx["stags"].as_array().unwrap() {
        let region =
            memory.add(stag(&entry["stag"]), number(&entry["base_to"]), number(&entry["length"]) as usize);
        let right = |right: &str| entry["remote"].as_array().unwrap().contains(&right.into());
        (region.read, region.write) = (right("read"), right("write"));
        region.pd = number(&entry["pd"]) as u32;
        region.valid = entry["state"] == "valid";
    }
    memory
}

fn buffers(lengths: &Value) -> Vec<Guarded> {
    lengths.as_array().unwrap().iter().map(|len| Guarded::new(number(len) as usize)).collect()
}

fn terminate_ulpdu(terminate: &TerminateRepr) -> Vec<u8> {
    let header = untagged_header(Opcode::Terminate, Stag(0), Msn::FIRST, 0, true);
    [&*header.octets(), &*terminate.octets()].concat()
}

/// Runs one vector; returns `false` if it has no segment for DDP.
fn run(vector: &Vector) -> bool {
    let Some(ulpdu) = &vector.ulpdu else { return false };
    let mut receiver = Receiver::new(&vector.rx);
    let before = receiver.contents();
    let outcome = receiver.segment(ulpdu);
    receiver.assert_guards();
    match vector.expect["verdict"].as_str().unwrap() {
        "accept" => {
            let outcome = outcome.unwrap_or_else(|(fault, _)| panic!("{}: {fault}", vector.name));
            check_placement(vector, &mut receiver, ulpdu, &outcome);
        }
        "terminate received" => {
            let Event::Terminated(terminate) = outcome.unwrap().event else { panic!("{}", vector.name) };
            assert_eq!(u64::from(terminate.code.0), number(&vector.expect["code"]), "{}", vector.name);
            assert_eq!(terminate_ulpdu(&terminate), *ulpdu, "{}", vector.name);
            assert!(receiver.stream.is_dead());
        }
        "error" => {
            let Err((fault, offending)) = outcome else { panic!("{} was accepted", vector.name) };
            check_refusal(vector, &fault, offending.as_ref());
            check_untouched(vector, &receiver, &before, ulpdu);
        }
        verdict => panic!("{}: verdict {verdict}", vector.name),
    }
    true
}

fn check_refusal(vector: &Vector, fault: &Fault, offending: Option<&Offending>) {
    let name = &vector.name;
    let expect = &vector.expect;
    if expect.get("terminate").is_none() {
        assert!(!fault.is_answerable(), "{name}: {fault}");
        return;
    }
    assert!(fault.is_answerable(), "{name}");
    assert_eq!(u64::from(fault.code().0), number(&expect["terminate"]["code"]), "{name}: {fault}");
    if let Some(hex) = expect["terminate_ulpdu_hex"].as_str() {
        assert_eq!(terminate_ulpdu(&terminate_for(fault, offending)), octets(hex), "{name}");
    }
}

/// Checks that nothing has changed, but for the payload of a Send whose STag could not be
/// invalidated.
fn check_untouched(
    vector: &Vector,
    receiver: &Receiver,
    (regions, receives): &(Vec<Guarded>, Vec<Guarded>),
    ulpdu: &[u8],
) {
    let after = receiver.contents();
    assert_eq!(after.0, *regions, "{}", vector.name);
    if vector.name.starts_with("inv_") {
        assert_eq!(after.1[0].octets()[..4], ulpdu[18..], "{}", vector.name);
    } else {
        assert_eq!(after.1, *receives, "{}", vector.name);
    }
}

/// Checks that the payload is in its place, and nowhere else.
fn check_placement(vector: &Vector, receiver: &mut Receiver, ulpdu: &[u8], outcome: &Outcome) {
    let name = &vector.name;
    let header = parse_header(ulpdu).unwrap();
    let payload = &ulpdu[header.len()..];
    let mut model = Receiver::new(&vector.rx);
    match (&header, Opcode::from_number(header.control() & 0xf).unwrap()) {
        (Header::Tagged(header), _) => {
            if !payload.is_empty() {
                let region = model.memory.region(header.stag);
                region.memory.place((header.to - region.base) as usize, payload);
            }
        }
        (Header::Untagged(_), Opcode::AtomicRequest) => {
            check_atomic(payload, &mut model, outcome);
        }
        (Header::Untagged(_), Opcode::ReadRequest) => {
            let read = ReadRequestRepr::parse(payload).unwrap();
            let response = outcome.response.as_ref().unwrap();
            assert_eq!(response.len(), TaggedRepr::LEN + read.size as usize, "{name}");
            if let Some(hex) = vector.expect["response_ulpdu_hex"].as_str() {
                assert_eq!(*response, octets(hex), "{name}");
            }
        }
        (Header::Untagged(_), Opcode::AtomicResponse) => {
            let response = AtomicResponseRepr::parse(payload).unwrap();
            assert_eq!(outcome.event, Event::AtomicDone { id: 0, original: response.original }, "{name}");
        }
        (Header::Untagged(_), op @ (Opcode::Immediate | Opcode::ImmediateSolicited)) => {
            let data = payload.try_into().unwrap();
            assert_eq!(outcome.event, Event::Immediate { data, solicited: op.is_solicited() }, "{name}");
            assert_eq!(receiver.taken, 1, "{name} takes a receive");
        }
        (Header::Untagged(header), op) => {
            model.receives[0].place(header.mo as usize, payload);
            check_send(name, header.mo, payload, op, receiver, outcome);
        }
    }
    assert_eq!(receiver.contents(), model.contents(), "{name}");
}

fn check_send(name: &str, mo: u32, payload: &[u8], op: Opcode, receiver: &mut Receiver, outcome: &Outcome) {
    assert_eq!(receiver.taken, 1, "{name} takes one receive");
    match outcome.event {
        Event::None => {}
        Event::Received { length, invalidate, solicited } => {
            assert_eq!((length, solicited), (mo + payload.len() as u32, op.is_solicited()), "{name}");
            assert_eq!(invalidate.is_some(), op.invalidates(), "{name}");
            if let Some(stag) = invalidate {
                assert!(!receiver.memory.region(stag).valid, "{name}");
            }
        }
        ref event => panic!("{name}: {event:?}"),
    }
}

fn check_atomic(payload: &[u8], model: &mut Receiver, outcome: &Outcome) {
    let request = rddp_rdmap::AtomicRequestRepr::parse(payload).unwrap();
    let original = model.memory.atomic(request.stag, request.to, request.op).unwrap().unwrap();
    let response = outcome.response.as_ref().unwrap();
    let expected = AtomicResponseRepr { request_id: request.request_id, original };
    assert_eq!(AtomicResponseRepr::parse(&response[18..]), Ok(expected));
}

fn run_layer(layer: &str) -> usize {
    vectors().iter().filter(|vector| vector.layer == layer && run(vector)).count()
}

#[test]
fn tagged_vectors() {
    // RFC 5041 §7.1, §7.2
    assert_eq!(run_layer("ddp-tagged"), 27);
}

#[test]
fn untagged_vectors() {
    // RFC 5041 §7.1, §7.2
    assert_eq!(run_layer("ddp-untagged"), 32);
}

#[test]
fn rdmap_vectors() {
    // RFC 5040 §4.8, §7.1, §7.2
    assert_eq!(run_layer("rdmap"), 29);
}

#[test]
fn extension_vectors() {
    // RFC 7306 §8
    assert_eq!(run_layer("rdmap-ext"), 10);
}

#[test]
fn framed_segments_that_mpa_lets_through_get_their_verdict_from_ddp() {
    let mut framed: Vec<Vector> = vectors().into_iter().filter(|vector| vector.layer == "mpa-fpdu").collect();
    // Some of them are not the first FPDU of their stream.
    for vector in framed.iter_mut().filter(|vector| vector.input["msn"].is_u64()) {
        vector.rx["q0"]["next_msn"] = vector.input["msn"].clone();
    }
    // Frames that MPA refuses do not reach DDP.
    let passes = |vector: &Vector| vector.expect.get("mpa_error").is_none() && vector.kind != "compute";
    let run_names: Vec<String> =
        framed.into_iter().filter(|vector| passes(vector) && run(vector)).map(|vector| vector.name).collect();
    for name in [
        "fpdu_ulpdu_length_zero",
        "fpdu_ulpdu_too_short_tagged",
        "fpdu_ulpdu_too_short_untagged",
        "fpdu_pad_nonzero",
        "fpdu_marker_reserved_set",
        "fpdu_marker_ptr_low_bits",
    ] {
        assert!(run_names.iter().any(|run| run == name), "{name} was not run");
    }
}

#[test]
fn what_mpa_refuses_becomes_the_terminate_of_the_vector() {
    // RFC 5044 chapter 8, RFC 5040 §4.8 Figure 10
    let mut seen = 0;
    for vector in vectors() {
        let (Some(error), Some(hex)) =
            (vector.expect["mpa_error"].as_u64(), vector.expect["terminate_ulpdu_hex"].as_str())
        else {
            continue;
        };
        let fault = Fault::mpa(mpa_error(error));
        assert_eq!(terminate_ulpdu(&terminate_for(&fault, None)), octets(hex), "{}", vector.name);
        seen += 1;
    }
    assert!(seen > 5);
}

/// Returns the error with this number in the registry of RFC 6580 §3.3.
fn mpa_error(number: u64) -> MpaError {
    use MpaError::{Closed, Crc, InsufficientIrd, LocalCatastrophic, Marker, NoMatchingRtr, Startup};
    let all = [Closed, Crc, Marker, Startup, LocalCatastrophic, InsufficientIrd, NoMatchingRtr];
    all.into_iter().find(|error| u64::from(error.code()) == number).unwrap()
}

#[test]
fn atomic_arithmetic() {
    // RFC 7306 §5.1
    let mut run = 0;
    for vector in vectors().iter().filter(|vector| vector.layer == "atomic-exec") {
        let field = |name: &str| number(&vector.input[name]);
        let op = match vector.input.get("add") {
            Some(_) => AtomicOp::FetchAdd { add: field("add"), mask: field("mask") },
            None => AtomicOp::CmpSwap {
                swap: field("swap"),
                swap_mask: field("swap_mask"),
                compare: field("compare"),
                compare_mask: field("compare_mask"),
            },
        };
        let original = field("original");
        let after = op.apply(original).unwrap_or(original);
        assert_eq!(after, number(&vector.expect["memory_after"]), "{}", vector.name);
        assert_eq!(original, number(&vector.expect["returned"]), "{}", vector.name);
        run += 1;
    }
    assert_eq!(run, 9);
}

#[test]
fn every_terminate_code_of_a_vector_is_one_of_the_tables() {
    for vector in vectors().iter().filter(|vector| vector.expect.get("terminate").is_some()) {
        let code = TerminateCode(number(&vector.expect["terminate"]["code"]) as u16);
        assert!(code.name().is_some(), "{}: {code}", vector.name);
        let part = |name: &str| vector.expect["terminate"][name].as_u64().unwrap() as u8;
        assert_eq!(code, TerminateCode::new(part("layer"), part("etype"), part("ecode")), "{}", vector.name);
    }
}
