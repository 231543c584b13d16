//! The passive process: it answers requests, and checks its own memory.

use std::thread;
use std::time::Duration;

use rddp_command::device::{By, Choice, own_address};
use rddp_command::endpoint::Endpoint;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::{addr, out, signals};
use rddp_rnic::{
    Access, Atomics, Completed, Completion, ConnectOptions, ConnectRequest, MemoryRegion, RecvWr, Rnic,
    SendWr,
};

use super::Listening;
use super::script::{
    Answer, Ask, GUARD, MAX, READ_SEED, REGION, RemoteMemory, TALK, WORD_AT, WORD_REGION, Which, compare,
    difference, pattern,
};
use crate::child;
use crate::perf::Server;

/// Time within which the active process must make its next request.
const PATIENCE: Duration = Duration::from_secs(30);

const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Runs the passive process, until its standard input ends.
pub(crate) fn run(device: &Choice) -> Result<(), Failure> {
    child::stop_with_stdin()?;
    let rnic = device.open()?;
    let local = Some(own_address(&rnic, false)?);
    let (listener, demo) = addr::rdma_listener(&rnic, local, 0, &ConnectOptions::default())?;
    let mut server = Server::bind(local, 0, false, std::slice::from_ref(device))?;
    server.quiet = true;
    out::json(&Listening { demo, perf: server.listening().listening });
    let measuring = thread::Builder::new().spawn(move || server.run());
    let measuring = measuring.map_err(|error| Failure::failed(format!("starting a thread: {error}")))?;
    let mut result = Ok(());
    while !signals::stopped() {
        let request = listener.accept(Some(signals::CHECK_INTERVAL));
        let Some(request) = request.map_err(|error| Failure::failed(format!("accepting: {error}")))? else {
            continue;
        };
        if let Err(failure) = serve(&rnic, request)
            && failure.kind() != FailureKind::Interrupted
        {
            failure.report();
            result = Err(failure);
        }
    }
    drop(measuring.join());
    result
}

fn serve(rnic: &Rnic, request: ConnectRequest) -> Result<(), Failure> {
    // Each end asks for the markers that it receives. So the active process says here whether it
    // wants to send markers, and this end asks for them.
    // On InfiniBand, zeros follow it.
    let markers = request.private_data().first() == Some(&1);
    let passive = Passive::new(rnic)?;
    passive.end.accept(request, &ConnectOptions { markers, ..ConnectOptions::default() })?;
    passive.answer(&passive.memory())?;
    while let Some(asked) = passive.next()? {
        let octets = passive.talk.read(0, asked.byte_len as usize)?;
        let ask = serde_json::from_slice(&octets)
            .map_err(|_| Failure::peer("the active process sent a malformed request"))?;
        let answer = match ask {
            Ask::Expect { len, seed } => {
                let Some(answer) = passive.expect(len, seed)? else { break };
                answer
            }
            Ask::Written { which, at, len, seed } => passive.written(which, at, len, seed)?,
            Ask::Word => passive.word()?,
            Ask::IsValid { which } => Answer::Valid { valid: passive.region(which)?.is_valid() },
        };
        passive.listen()?;
        passive.answer(&answer)?;
    }
    passive.is_untouched()
}

struct Passive {
    end: Endpoint,
    talk: MemoryRegion,
    inbox: MemoryRegion,
    target: MemoryRegion,
    source: MemoryRegion,
    word: MemoryRegion,
    lent: [MemoryRegion; 2],
}

impl Passive {
    fn new(rnic: &Rnic) -> Result<Self, Failure> {
        let end = Endpoint::new(rnic)?;
        let local = |len| end.pd.allocate(len, Access::LOCAL_WRITE);
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let is_soft = !By::of(rnic).is_host();
        let lent = if is_soft { writable | Access::REMOTE_INVALIDATE } else { writable };
        let lend = || end.pd.allocate(REGION, lent);
        let has_atomics = rnic.capabilities().atomics != Atomics::None;
        let of_word =
            if has_atomics { Access::LOCAL_WRITE | Access::REMOTE_ATOMIC } else { Access::LOCAL_WRITE };
        let passive = Passive {
            talk: local(TALK)?,
            inbox: local(MAX)?,
            target: end.pd.allocate(REGION, writable)?,
            source: end.pd.allocate(MAX, Access::LOCAL_WRITE | Access::REMOTE_READ)?,
            word: end.pd.allocate(WORD_REGION, of_word)?,
            lent: [lend()?, lend()?],
            end,
        };
        passive.source.write(0, &pattern(READ_SEED, MAX))?;
        for region in [&passive.target, &passive.lent[0], &passive.lent[1]] {
            wipe(region)?;
        }
        passive.listen()?;
        Ok(passive)
    }

    fn memory(&self) -> Answer {
        Answer::Memory {
            target: RemoteMemory::of(&self.target),
            source: RemoteMemory::of(&self.source),
            word: RemoteMemory::of(&self.word),
            lent: self.lent.iter().map(RemoteMemory::of).collect(),
        }
    }

    /// Posts a receive for the next request.
    fn listen(&self) -> Result<(), Failure> {
        Ok(self.end.qp.post_recv(RecvWr::one(RECEIVE, self.talk.whole()))?)
    }

    fn answer(&self, answer: &Answer) -> Result<(), Failure> {
        let text = serde_json::to_vec(answer).map_err(|error| Failure::failed(error.to_string()))?;
        self.end.post(&SendWr::send_inline(SEND, &text).unsignaled())
    }

    /// Returns the next request; `None` when the connection has ended.
    fn next(&self) -> Result<Option<Completion>, Failure> {
        loop {
            match self.end.next(PATIENCE) {
                Ok(completion)
                    if matches!(completion.completed, Completed::Receive | Completed::ReceiveImmediate) =>
                {
                    return Ok(Some(completion));
                }
                Ok(_) => {}
                Err(failure) if failure.kind() == FailureKind::Interrupted => return Err(failure),
                // The active process checks how the connection ends: its last check makes this end
                // send a Terminate.
                Err(_) => return Ok(None),
            }
        }
    }

    /// Receives one message; `None` when the connection has ended.
    fn expect(&self, len: usize, seed: u64) -> Result<Option<Answer>, Failure> {
        self.inbox.write(0, &vec![GUARD; MAX])?;
        self.end.qp.post_recv(RecvWr::one(RECEIVE, self.inbox.sge(0..len.min(MAX))))?;
        self.answer(&Answer::Ready)?;
        let Some(arrived) = self.next()? else { return Ok(None) };
        let received = arrived.byte_len as usize;
        let placed = if arrived.immediate.is_some() { 0 } else { received };
        if let Some(how) = compare(&self.inbox, 0, placed, seed)? {
            return Ok(Some(Answer::Differs { how }));
        }
        Ok(Some(Answer::Arrived {
            len: received,
            solicited: arrived.solicited,
            invalidated: arrived.invalidated.map(|stag| stag.0),
            immediate: arrived.immediate,
        }))
    }

    fn written(&self, which: Which, at: usize, len: usize, seed: u64) -> Result<Answer, Failure> {
        let region = self.region(which)?;
        let difference = compare(region, at, len, seed)?;
        wipe(region)?;
        Ok(difference.map_or(Answer::Same, |how| Answer::Differs { how }))
    }

    fn word(&self) -> Result<Answer, Failure> {
        let mut octets = self.word.read(0, WORD_REGION)?;
        let mut value = [0; 8];
        value.swap_with_slice(&mut octets[WORD_AT..WORD_AT + 8]);
        Ok(match difference(&[0; WORD_REGION], &octets) {
            None => Answer::Word { value: u64::from_ne_bytes(value) },
            Some(how) => Answer::Differs { how: format!("beside the word, {how}") },
        })
    }

    fn region(&self, which: Which) -> Result<&MemoryRegion, Failure> {
        match which {
            Which::Target => Some(&self.target),
            Which::Lent(number) => self.lent.get(number),
        }
        .ok_or_else(|| Failure::peer("there is no such region"))
    }

    /// Checks, after the connection, that no octet was written to regions that were revoked or
    /// wiped.
    fn is_untouched(&self) -> Result<(), Failure> {
        for region in [&self.target, &self.lent[0], &self.lent[1]] {
            if let Some(how) = compare(region, 0, 0, 0)? {
                return Err(Failure::mismatch(format!(
                    "a region that was revoked, or wiped, has been written to: {how}"
                )));
            }
        }
        Ok(())
    }
}

fn wipe(region: &MemoryRegion) -> Result<(), Failure> {
    Ok(region.write(0, &vec![GUARD; region.len()])?)
}
