//! `rnic_records`: any octets sent to a queue pair that reads records, cut anywhere.
//!
//! A naive reading of the same octets says what completes. Nothing waits for octets that do not
//! come.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rddp_rnic::{Access, ConnectOptions, QpConfig, RecordOptions, RecvWr, Rnic, Status, Transport};
use rddp_test_support::Random;

/// Time for which a completion may be waited for: a wrong one, or none, is a fault.
const PATIENCE: Duration = Duration::from_secs(20);

/// Receives that are posted, of which the last are flushed.
const RECEIVES: usize = 24;

/// The outcome of a receive: its octets, and how it ended.
type Outcome = (Status, Vec<u8>);

/// Reads settings, then octets of a stream that ends behind them.
pub fn run(octets: &[u8]) {
    let Some((&[most, capacity, flags, seed], stream)) = octets.split_first_chunk() else { return };
    let options = RecordOptions { max_record: most.into(), drop_long: flags & 1 != 0 };
    let capacity = usize::from(capacity);
    let expected = model(options, capacity, stream);
    let got = real(options, capacity, stream, seed, flags & 2 != 0);
    assert_eq!(got, expected);
}

/// Returns what the receives get, by a naive reading.
fn model(options: RecordOptions, capacity: usize, mut stream: &[u8]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while outcomes.len() < RECEIVES {
        let Some((header, rest)) = stream.split_first_chunk() else {
            if !stream.is_empty() {
                outcomes.push((Status::EndOfStream, Vec::new()));
            }
            break;
        };
        let len = u32::from_be_bytes(*header);
        if len > options.max_record {
            break;
        }
        let len = len as usize;
        if len > capacity && !options.drop_long {
            outcomes.push((Status::MessageTooLong, Vec::new()));
            break;
        }
        let here = len.min(rest.len());
        let placed = rest[..here.min(capacity)].to_vec();
        if here < len {
            outcomes.push((Status::EndOfStream, placed));
            break;
        }
        let status = if len > capacity { Status::MessageTooLong } else { Status::Success };
        outcomes.push((status, placed));
        stream = &rest[len..];
    }
    outcomes.resize(RECEIVES, (Status::Flushed, Vec::new()));
    outcomes
}

/// Returns what the receives of a queue pair get.
fn real(options: RecordOptions, capacity: usize, stream: &[u8], seed: u8, late: bool) -> Vec<Outcome> {
    let rnic = Rnic::open().unwrap();
    let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64).unwrap());
    let config = QpConfig { transport: Transport::Record, records: options, ..QpConfig::new(&cq) };
    let qp = pd.create_qp(&config).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    qp.connect(listener.local_addr().unwrap(), &ConnectOptions::default()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_nodelay(true).unwrap();
    let inbox = pd.allocate(RECEIVES * capacity.max(1), Access::LOCAL_WRITE).unwrap();
    let post = || {
        for slot in 0..RECEIVES {
            let room = inbox.sge(slot * capacity..(slot + 1) * capacity);
            qp.post_recv(RecvWr::one(slot as u64, room)).unwrap();
        }
    };
    if !late {
        post();
    }
    write_cut(&mut peer, stream, seed);
    peer.shutdown(std::net::Shutdown::Write).ok();
    if late {
        post();
    }
    (0..RECEIVES)
        .map(|slot| {
            assert!(cq.wait(Some(PATIENCE)).unwrap(), "no completion came");
            let done = cq.poll_one().unwrap();
            assert_eq!(done.wr_id, slot as u64);
            (done.status, inbox.read(slot * capacity, done.byte_len as usize).unwrap())
        })
        .collect()
}

/// Writes a stream cut by seed. The other end may have reset the connection.
fn write_cut(peer: &mut TcpStream, mut stream: &[u8], seed: u8) {
    let mut random = Random::new(seed.into());
    while !stream.is_empty() {
        let (now, later) = stream.split_at((1 + random.below(64)).min(stream.len()));
        if peer.write_all(now).is_err() {
            return;
        }
        stream = later;
    }
}
