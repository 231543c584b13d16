//! A client and a server: the client Writes a text into the server's memory, and says so by a Send;
//! the server answers with what it found there, in capitals.
//!
//!     client_server server ADDR
//!     client_server client ADDR TEXT
#![forbid(unsafe_code)]

use rddp_examples::{Outcome, asked, listen, next};
use rddp_rnic::{Access, ConnectOptions, QpConfig, RecvWr, Remote, Rnic, SendWr};

/// Octets of the server's memory that a client may Write.
const ROOM: usize = 4096;

/// Ids of work requests, by which completions are told apart.
const RECEIVE: u64 = 1;
const WRITE: u64 = 2;
const SEND: u64 = 3;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", addr] => server(addr),
        ["client", addr, text] => client(addr, text),
        _ => Err("client_server server ADDR | client_server client ADDR TEXT".into()),
    }
}

/// Serves one client after the other.
fn server(addr: &str) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let listener = listen(&rnic, addr)?;
    loop {
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
        let qp = pd.create_qp(&QpConfig::new(&cq))?;
        let memory = pd.allocate(ROOM, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let inbox = pd.allocate(8, Access::LOCAL_WRITE)?;
        // A receive has to be there when the message comes, so it is posted before the answer.
        qp.post_recv(RecvWr::one(RECEIVE, inbox.whole()))?;
        let accepted = asked(&listener)?.accept(&qp, &memory.remote(0).to_octets());

        // The Send was posted behind the Write: when it is here, so are the octets (RFC 5040 §5.5).
        // A client that goes away, or that sends something else, ends its own connection alone.
        if accepted.is_err() || next(&cq).is_err() {
            continue;
        }
        let len = usize::try_from(inbox.read_u64(0)?).unwrap_or(usize::MAX);
        let answer = memory.read(0, len.min(rnic.capabilities().max_inline))?.to_ascii_uppercase();
        qp.post_send(&SendWr::send_inline(SEND, &answer))?;
        let _ = next(&cq);
    }
}

fn client(addr: &str, text: &str) -> Outcome<()> {
    let rnic = Rnic::open()?;
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(16)?);
    let qp = pd.create_qp(&QpConfig::new(&cq))?;
    let memory = pd.allocate(ROOM, Access::LOCAL_WRITE)?;
    memory.write(0, text.as_bytes())?;
    let inbox = pd.allocate(ROOM, Access::LOCAL_WRITE)?;
    qp.post_recv(RecvWr::one(RECEIVE, inbox.whole()))?;

    let connected = qp.connect(addr.parse()?, &ConnectOptions::default())?;
    let there = connected.private_data.first_chunk().map(Remote::from_octets).ok_or("no advert")?;
    let len = text.len() as u64;
    qp.post_sends(&[
        SendWr::write(WRITE, memory.sge(..text.len()), there).unsignaled(),
        SendWr::send_inline(SEND, &len.to_ne_bytes()).unsignaled(),
    ])?;
    let answer = next(&cq)?;
    println!("{}", String::from_utf8_lossy(&inbox.read(0, answer.byte_len as usize)?));
    qp.disconnect();
    Ok(())
}
