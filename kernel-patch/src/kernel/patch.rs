//! [`Patch`]: the program, loaded.

use std::mem::offset_of;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions, qdisc_add_clsact};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType, TestRun, TestRunOptions};
use aya::util::KernelVersion;
use aya::{Btf, Ebpf, EbpfLoader};

use super::classifier::{self, Handle};
use super::connection::SIZE;
use super::sys::Shared;
use super::{Opening, PatchError, Pieces, Placing, Stags};
use crate::layout::{Answer, CONNECTIONS, Entry, STAGS, Tuple};

/// The compiled program.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/ddp.bpf.o"));

/// The program, loaded into the kernel, with its maps.
#[derive(Debug)]
pub struct Patch {
    programs: Mutex<Programs>,
    pieces: Arc<Pieces>,
    stags: Arc<Stags>,
    table: Arc<Table>,
}

#[derive(Debug)]
struct Programs {
    ebpf: Ebpf,
    answers: Shared,
}

/// The program on the ingress of an interface. Dropping this takes it off: a classifier only in a
/// thread of the interface's network namespace.
#[derive(Debug)]
pub struct Attached {
    _link: SchedClassifierLink,
    /// A classifier's handle. Dropped behind the link, as its owner holds it until that is gone.
    _handle: Option<Handle>,
}

impl Patch {
    /// Loads the program. Nothing is attached yet.
    ///
    /// # Errors
    /// A right is missing, or the kernel is too old or built without what is needed.
    pub fn load() -> Result<Self, PatchError> {
        let btf = Btf::from_sys_fs()?;
        let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(OBJECT)?;
        for name in [PLACE, ASK] {
            program(&mut ebpf, name)?.load()?;
        }
        let Map::ArrayOfMaps(pieces) = map(&mut ebpf, "pieces")? else {
            return Err(PatchError::Missing("pieces"));
        };
        let stags = array(&mut ebpf, "stags", STAGS as usize * size_of::<Entry>())?;
        let shared = array(&mut ebpf, "connections", CONNECTIONS as usize * SIZE)?;
        let answers = array(&mut ebpf, "answers", size_of::<Answer>())?;
        let names = Names {
            tuples: HashMap::try_from(map(&mut ebpf, "tuples")?)?,
            taken: vec![false; CONNECTIONS as usize],
        };
        Ok(Self {
            programs: Mutex::new(Programs { ebpf, answers }),
            pieces: Arc::new(Pieces::new(pieces)),
            stags: Arc::new(Stags::new(stags)),
            table: Arc::new(Table { shared, names: Mutex::new(names) }),
        })
    }

    /// Puts the program on the ingress of an interface of this thread's network namespace: by tcx,
    /// or by a classifier where the kernel has none (before 6.6).
    ///
    /// # Errors
    /// There is no such interface, or as [`attach_by_classifier`](Self::attach_by_classifier).
    pub fn attach(&self, interface: &str) -> Result<Attached, PatchError> {
        if KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0)) {
            self.attach_with(interface, TcAttachOptions::TcxOrder(LinkOrder::default()), None)
        } else {
            self.attach_by_classifier(interface)
        }
    }

    /// Puts the program there by a classifier, whatever the kernel has: for tests, and for
    /// [`attach`](Self::attach). A classifier stays when its process dies, so those that dead
    /// processes have left there are removed first.
    ///
    /// # Errors
    /// The kernel lacks the modules `sch_ingress` and `cls_bpf`, or others have a filter of another
    /// kind at the program's priority.
    pub fn attach_by_classifier(&self, interface: &str) -> Result<Attached, PatchError> {
        // There already, if others have classifiers.
        let _ = qdisc_add_clsact(interface);
        classifier::remove_dead(interface)?;
        let handle = Handle::take_free(interface)?;
        self.attach_with(interface, TcAttachOptions::Netlink(handle.options()), Some(handle))
    }

    fn attach_with(
        &self,
        interface: &str,
        options: TcAttachOptions,
        handle: Option<Handle>,
    ) -> Result<Attached, PatchError> {
        let mut programs = lock(&self.programs);
        let program = program(&mut programs.ebpf, PLACE)?;
        let link = program.attach_with_options(interface, TcAttachType::Ingress, options)?;
        Ok(Attached { _link: program.take_link(link)?, _handle: handle })
    }

    /// Returns the places for memory.
    #[must_use]
    pub fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }

    /// Returns the mirror of STags.
    #[must_use]
    pub fn stags(&self) -> &Arc<Stags> {
        &self.stags
    }

    /// Returns what TCP knows of a connection in this thread's network namespace.
    ///
    /// # Errors
    /// There is no such connection in state ESTABLISHED, or the program cannot be run.
    pub fn ask(&self, tuple: Tuple) -> Result<Answer, PatchError> {
        let mut programs = lock(&self.programs);
        run(program(&mut programs.ebpf, ASK)?, &frame(tuple), 0)?;
        let of = |offset| programs.answers.u32(offset).load(Ordering::Acquire);
        let answer = Answer {
            found: of(offset_of!(Answer, found)),
            copied_seq: of(offset_of!(Answer, copied_seq)),
            rcv_nxt: of(offset_of!(Answer, rcv_nxt)),
            window_end: of(offset_of!(Answer, window_end)),
            ts_recent: of(offset_of!(Answer, ts_recent)),
            last_ack: of(offset_of!(Answer, last_ack)),
            has_more: of(offset_of!(Answer, has_more)),
        };
        if answer.found == 1 { Ok(answer) } else { Err(PatchError::NoConnection) }
    }

    /// Runs the program once on a frame, as if it had come by the loopback of this thread's network
    /// namespace. For tests.
    ///
    /// # Errors
    /// The kernel does not take a frame of this size.
    pub fn run(&self, frame: &[u8]) -> Result<(), PatchError> {
        let mut programs = lock(&self.programs);
        Ok(run(program(&mut programs.ebpf, PLACE)?, frame, 0)?)
    }

    /// Does as [`run`](Self::run), with a frame into which so many segments have been joined. For
    /// tests.
    ///
    /// # Errors
    /// As `run`.
    pub fn run_joined(&self, frame: &[u8], segments: u32) -> Result<(), PatchError> {
        let mut programs = lock(&self.programs);
        Ok(run(program(&mut programs.ebpf, PLACE)?, frame, segments)?)
    }

    /// Begins to place the segments of a connection: those that come from now on, and begin at or
    /// behind the octet that the next read returns. Nobody may read meanwhile.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), or there are too many connections.
    pub fn place(&self, opening: &Opening) -> Result<Placing, PatchError> {
        let answer = self.ask(opening.tuple)?;
        let number = self.table.take_number()?;
        let mut placing = Placing::begin(self.table.clone(), number, opening, &answer)?;
        // What has come meanwhile was not seen, and that is nobody's fault.
        if let Ok(now) = self.ask(opening.tuple) {
            placing.skip(&now);
        }
        Ok(placing)
    }
}

/// The connections that the program knows.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) shared: Shared,
    names: Mutex<Names>,
}

#[derive(Debug)]
struct Names {
    tuples: HashMap<MapData, Tuple, u32>,
    taken: Vec<bool>,
}

impl Table {
    fn take_number(&self) -> Result<u32, PatchError> {
        let mut names = lock(&self.names);
        let free = names.taken.iter().position(|taken| !taken).ok_or(PatchError::Full("connections"))?;
        names.taken[free] = true;
        Ok(free as u32)
    }

    pub(super) fn name(&self, tuple: Tuple, number: u32) -> Result<(), PatchError> {
        Ok(lock(&self.names).tuples.insert(tuple, number, 0)?)
    }

    pub(super) fn forget(&self, tuple: Tuple, number: u32) {
        let mut names = lock(&self.names);
        // A program that has found the name already meets a closed gate. A newer connection may
        // have it by now.
        if names.tuples.get(&tuple, 0).is_ok_and(|its| its == number) {
            let _ = names.tuples.remove(&tuple);
        }
        names.taken[number as usize] = false;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier, PatchError> {
    Ok(ebpf.program_mut(name).ok_or(PatchError::Missing(name))?.try_into()?)
}

fn map(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, PatchError> {
    ebpf.take_map(name).ok_or(PatchError::Missing(name))
}

/// Maps the values of an array.
fn array(ebpf: &mut Ebpf, name: &'static str, len: usize) -> Result<Shared, PatchError> {
    match map(ebpf, name)? {
        Map::Array(array) => Shared::map(array.fd().as_fd(), len),
        _ => Err(PatchError::Missing(name)),
    }
}

fn run(program: &SchedClassifier, frame: &[u8], segments: u32) -> Result<(), ProgramError> {
    // A `struct __sk_buff`, of which the kernel takes a few fields.
    let mut context = [0; 192];
    context[GSO_SEGS..][..4].copy_from_slice(&segments.to_ne_bytes());
    let ctx_in = (segments > 0).then_some(&context[..]);
    program.test_run(TestRunOptions { data_in: Some(frame), ctx_in, ..Default::default() }).map(drop)
}

/// Offset of the number of joined segments in a `struct __sk_buff`.
const GSO_SEGS: usize = 164;

/// Returns a segment that names a connection, and has nothing else.
fn frame(tuple: Tuple) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match [tuple.peer_addr, tuple.own_addr].map(|addr| Ipv6Addr::from(addr).to_ipv4_mapped()) {
        [Some(peer), Some(own)] => {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
            frame.extend([peer.octets(), own.octets()].concat());
        }
        _ => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.extend([tuple.peer_addr, tuple.own_addr].concat());
        }
    }
    frame.extend([tuple.peer_port, tuple.own_port].concat());
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    frame
}

/// The program's name, which a classifier has, too.
pub(super) const PLACE: &str = "place_ingress";
const ASK: &str = "ask";
