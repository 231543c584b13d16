//! Events of a capture as objects of JSON.

use rddp_decode::{Detail, Event, Fpdu, Greeting, Header, Sdp, Startup, Summary, What, mode_name};

use rddp_sdp::wire::Body;
use serde_json::{Value, json};

/// Returns an event, with its place and time.
pub(super) fn event(event: &Event) -> Value {
    let mut object = match &event.what {
        What::Startup(startup) => of_startup(startup),
        What::Fpdu(fpdu) => of_fpdu(fpdu),
        What::Sdp(sdp) => of_sdp(sdp),
        What::PlainTcp => json!({"what": "plain_tcp"}),
        What::Problem(problem) => json!({"what": "problem", "problem": problem.to_string()}),
        _ => json!({"what": "other"}),
    };
    let more = json!({
        "time": event.time.as_secs_f64(), "connection": event.connection,
        "source": event.from.to_string(), "destination": event.to.to_string(),
    });
    add(&mut object, &more);
    object
}

/// Returns the last line.
pub(super) fn summary(summary: &Summary) -> Value {
    let unread: Vec<_> = summary
        .unread
        .iter()
        .map(|(reason, packets)| json!({"reason": reason.to_string(), "packets": packets}))
        .collect();
    let terminates: Vec<_> =
        summary.terminates.iter().map(|(code, count)| json!({"code": code, "count": count})).collect();
    json!({
        "what": "summary", "packets": summary.packets, "others": super::unread(summary), "unread": unread,
        "connections": summary.connections, "plain_tcp": summary.plain, "fpdus": summary.fpdus, "cut_fpdus": summary.cut_fpdus,
        "sdp": summary.sdp, "problems": summary.problems, "terminates": terminates,
    })
}

fn add(object: &mut Value, more: &Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more.clone());
    }
}

fn of_startup(startup: &Startup) -> Value {
    let mut object = json!({
        "what": "startup", "kind": format!("{:?}", startup.kind).to_lowercase(),
        "markers": startup.markers, "crc": startup.crc, "rejected": startup.rejected,
        "revision": startup.revision, "private_data_len": startup.private_data_len,
        "private_data": startup.private_data.iter().map(|octet| format!("{octet:02x}")).collect::<String>(),
    });
    if let Some(data) = &startup.enhanced {
        add(&mut object, &json!({"ird": data.ird, "ord": data.ord, "peer_to_peer": data.peer_to_peer}));
    }
    match &startup.greeting {
        Some(Greeting::Hello(hello)) => add(
            &mut object,
            &json!({"sdp": {
                "mid": "Hello", "bufs": hello.bufs, "max_adverts": hello.max_adverts,
                "local_rcv_sz": hello.local_size, "des_rem_rcv_sz": hello.desired_remote_size,
                "port": hello.port, "source": hello.addresses.source().to_string(),
                "destination": hello.addresses.destination().to_string(), "rddp": hello.rddp,
            }}),
        ),
        Some(Greeting::HelloAck(ack)) => add(
            &mut object,
            &json!({"sdp": {
                "mid": "HelloAck", "bufs": ack.bufs, "max_adverts": ack.max_adverts,
                "act_rcv_sz": ack.actual_size, "rddp": ack.rddp,
            }}),
        ),
        None => {}
    }
    object
}

fn of_fpdu(fpdu: &Fpdu) -> Value {
    let mut object = json!({
        "what": "fpdu", "position": fpdu.position, "opcode": fpdu.header.control() & 0xf,
        "name": fpdu.opcode.map(|opcode| opcode.to_string()), "last": fpdu.header.last(),
        "len": fpdu.payload_len,
    });
    if let Some(captured) = fpdu.captured {
        add(&mut object, &json!({"captured": captured}));
    }
    let place = match &fpdu.header {
        Header::Tagged(header) => json!({"stag": header.stag.0, "to": header.to}),
        Header::Untagged(header) => json!({"qn": header.qn.0, "msn": header.msn.0, "mo": header.mo}),
    };
    add(&mut object, &place);
    let detail = match &fpdu.detail {
        Detail::Invalidate(stag) => json!({"inval_stag": stag}),
        Detail::Read(read) => json!({
            "sink_stag": read.sink_stag.0, "sink_to": read.sink_to, "size": read.size,
            "src_stag": read.src_stag.0, "src_to": read.src_to,
        }),
        Detail::AtomicRequest(atomic) => {
            json!({"id": atomic.request_id, "stag": atomic.stag.0, "to": atomic.to})
        }
        Detail::AtomicResponse(atomic) => json!({"id": atomic.request_id, "original": atomic.original}),
        Detail::Terminate(terminate) => {
            let code = terminate.code;
            json!({"code": code.0, "reason": code.to_string()})
        }
        _ => json!({}),
    };
    add(&mut object, &detail);
    object
}

fn of_sdp(sdp: &Sdp) -> Value {
    let (header, message) = (&sdp.message.header, &sdp.message);
    let mut object = json!({
        "what": "sdp", "mid": header.mid.name(), "flags": header.flags.0, "bufs": header.bufs,
        "len": header.len, "mseq": header.mseq, "mseq_ack": header.mseq_ack,
        "payload_len": message.payload_len,
    });
    let body = match message.body {
        Body::RdmaWrCompl { octets } | Body::RdmaRdCompl { octets } => json!({"octets": octets}),
        Body::ModeChange { of_receivers_half, mode } => {
            json!({"s": u8::from(of_receivers_half), "mode": mode_name(mode)})
        }
        Body::ChRcvBuf { size } | Body::ChRcvBufAck { size } => json!({"size": size}),
        Body::SuspComm { service_id } => json!({"service_id": service_id}),
        Body::SrcAvail { advert } => {
            json!({"advert": {"len": advert.len, "stag": advert.stag, "to": advert.to}})
        }
        Body::SinkAvail { advert, non_discards } => json!({
            "advert": {"len": advert.len, "stag": advert.stag, "to": advert.to},
            "non_discards": non_discards,
        }),
        _ => json!({}),
    };
    add(&mut object, &body);
    object
}
