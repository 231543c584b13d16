//! The active process, which connects and makes the requests: its end of the connection.

use std::net::SocketAddr;
use std::time::Duration;

use rddp_command::endpoint::{Agreed, Endpoint};
use rddp_command::failure::Failure;
use rddp_rnic::{
    Access, Capabilities, Completed, Completion, ConnectOptions, MemoryRegion, RecvWr, Rnic, SendWr,
};

use super::script::{Answer, Ask, GUARD, MAX, REGION, RemoteMemory, TALK, Which, difference, pattern};

/// Time within which the passive process must answer.
const PATIENCE: Duration = Duration::from_secs(20);

const SEND: u64 = 1;
pub(super) const REQUEST: u64 = 2;
const RECEIVE: u64 = 3;

/// The passive process's memory.
pub(super) struct Memory {
    pub(super) target: RemoteMemory,
    pub(super) source: RemoteMemory,
    pub(super) word: RemoteMemory,
    pub(super) lent: Vec<RemoteMemory>,
}

pub(super) struct Active {
    pub(super) end: Endpoint,
    pub(super) agreed: Agreed,
    pub(super) limits: Capabilities,
    pub(super) memory: Memory,
    /// The memory that is sent, and that Writes take their octets from.
    pub(super) source: MemoryRegion,
    /// The memory that Reads place their octets in.
    pub(super) sink: MemoryRegion,
    talk: MemoryRegion,
    seed: u64,
    compared: u64,
}

impl Active {
    pub(super) fn connect(rnic: &Rnic, addr: SocketAddr, markers: bool) -> Result<Self, Failure> {
        let end = Endpoint::new(rnic)?;
        let talk = end.pd.allocate(TALK, Access::LOCAL_WRITE)?;
        let listen = RecvWr::one(RECEIVE, talk.whole());
        end.qp.post_recv(listen)?;
        let options =
            ConnectOptions { markers, private_data: vec![u8::from(markers)], ..ConnectOptions::default() };
        let connected = end.connect(addr, &options, "the passive process")?;
        let agreed = Agreed::of(rnic, &connected);
        let Answer::Memory { target, source, word, lent } = answer(&end, &talk)? else {
            return Err(Failure::peer("the passive process did not describe its memory"));
        };
        let memory = Memory { target, source, word, lent };
        let source = end.pd.allocate(MAX, Access::LOCAL_WRITE)?;
        let sink = end.pd.allocate(REGION, Access::LOCAL_WRITE)?;
        let limits = rnic.capabilities();
        Ok(Active { end, agreed, limits, memory, source, sink, talk, seed: 0, compared: 0 })
    }

    pub(super) fn ask(&self, ask: &Ask) -> Result<Answer, Failure> {
        let text = serde_json::to_vec(ask).map_err(|error| Failure::failed(error.to_string()))?;
        self.end.post(&SendWr::send_inline(SEND, &text).unsignaled())?;
        match answer(&self.end, &self.talk)? {
            Answer::Differs { how } => Err(Failure::mismatch(how)),
            answer => Ok(answer),
        }
    }

    /// Fills the source region with octets that no message before had.
    pub(super) fn fresh(&mut self, len: usize) -> Result<u64, Failure> {
        self.seed += 1;
        self.source.write(0, &pattern(self.seed, len))?;
        Ok(self.seed)
    }

    /// Posts a request and waits for its completion.
    pub(super) fn complete(&self, wr: &SendWr) -> Result<Completion, Failure> {
        self.end.post(wr)?;
        let completion = self.end.next(PATIENCE)?;
        if completion.wr_id != wr.wr_id {
            return Err(Failure::mismatch(format!("another request completed: {completion:?}")));
        }
        Ok(completion)
    }

    /// Sends a message that the passive process expects, and returns what that process reports of
    /// its arrival.
    pub(super) fn deliver(&mut self, wr: &SendWr, len: usize, seed: u64) -> Result<Answer, Failure> {
        expect(self.ask(&Ask::Expect { len, seed })?, |answer| matches!(answer, Answer::Ready))?;
        self.complete(wr)?;
        self.compared += len as u64;
        match answer(&self.end, &self.talk)? {
            Answer::Differs { how } => Err(Failure::mismatch(how)),
            answer => Ok(answer),
        }
    }

    /// Writes `len` octets, and has the passive process compare its whole region.
    pub(super) fn write(&mut self, which: Which, at: usize, len: usize) -> Result<(), Failure> {
        let place = match which {
            Which::Target => self.memory.target,
            Which::Lent(number) => self.memory.lent[number],
        };
        let seed = self.fresh(len)?;
        self.complete(&SendWr::write(REQUEST, self.source.sge(0..len), place.at(at)))?;
        expect(self.ask(&Ask::Written { which, at, len, seed })?, |answer| matches!(answer, Answer::Same))?;
        self.compared += REGION as u64;
        Ok(())
    }

    /// Compares the sink: the octets `want` at `at`, and the guard value elsewhere.
    pub(super) fn compare_sink(&mut self, at: usize, want: &[u8]) -> Result<(), Failure> {
        let mut all = vec![GUARD; REGION];
        all[at..at + want.len()].copy_from_slice(want);
        self.compared += REGION as u64;
        difference(&all, &self.sink.read(0, REGION)?).map_or(Ok(()), |how| Err(Failure::mismatch(how)))
    }

    /// Returns how many octets both processes have compared so far.
    pub(super) fn compared(&self) -> u64 {
        self.compared
    }
}

/// Returns the passive process's next answer. A receive for the answer after it is posted first.
fn answer(end: &Endpoint, talk: &MemoryRegion) -> Result<Answer, Failure> {
    let received = end.next(PATIENCE)?;
    if received.completed != Completed::Receive {
        return Err(Failure::mismatch(format!("an unexpected completion: {received:?}")));
    }
    let octets = talk.read(0, received.byte_len as usize)?;
    end.qp.post_recv(RecvWr::one(RECEIVE, talk.whole()))?;
    serde_json::from_slice(&octets).map_err(|_| Failure::peer("the passive process sent a malformed answer"))
}

/// Returns the answer if it is of the kind that was expected (`right`).
pub(super) fn expect(answer: Answer, right: impl FnOnce(&Answer) -> bool) -> Result<Answer, Failure> {
    if right(&answer) {
        Ok(answer)
    } else {
        Err(Failure::mismatch(format!("the passive process sent an unexpected answer: {answer:?}")))
    }
}
