//! `mem_check`: registrations, windows, invalidations and accesses, compared with a naive model
//! (RFC 5041 §7.1, RFC 5042 §6, draft-hilland-rddp-verbs §7).
//!
//! The model holds the meaning of each STag as plain values, and finds each answer by going through
//! a list. The table has to give the same answers, and its grants have to reach the same octets.

use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Unstructured};
use rddp_ddp::Stag;
use rddp_rdmap::{AccessError, InvalidateError};
use rddp_rnic::mem::{BindWindow, Grant, MemError, MemLimits, MemTable, Region, RegionOptions, Window};
use rddp_rnic::{Access, PdId, QpNum};

use crate::input::{Tail, choice, inputs};

inputs! {
    /// A table, and the operations on it.
    pub struct Input {
        /// Limit of regions and windows, for a table of this input's own. Making a table takes
        /// long, so mostly one is used for all inputs.
        own_table: Option<u8>,
        /// The operations.
        steps: Tail<Step, 120>,
    }

    /// An STag, named by the object to which it belongs.
    pub struct Name {
        /// The object.
        object: u8,
        /// The object's present STag, one that it had earlier, or one with another key or index.
        twist: u8,
    }

    /// The one who asks for an access.
    pub struct Asker {
        /// The protection domain and QP of the one who asks.
        who: u8,
    }
}

choice! {
    /// An operation.
    pub enum Step {
        /// Registers a region of the table's own memory.
        Allocate { asker: Asker, len: u16, access: u8, for_one_qp: bool },
        /// Registers a region of the program's memory.
        Register { asker: Asker, at: u16, len: u16, access: u8 },
        /// Allocates a window.
        Window { asker: Asker },
        /// Binds a window.
        Bind { asker: Asker, window: Name, region: Name, at: u16, len: u16, access: u8, key: Option<u8> },
        /// Makes a peer's access, and places a pattern if that is granted.
        Remote { asker: Asker, name: Name, at: u64, len: u32, want: u8, fill: u8 },
        /// Makes a work request's access.
        Local { asker: Asker, name: Name, at: u64, len: u32, write: bool, fill: u8 },
        /// Invalidates an STag.
        Invalidate { asker: Asker, name: Name, remote: bool },
        /// Changes the rights of a region, or makes it valid again.
        Reregister { name: Name, access: u8 },
        /// Deregisters a region.
        Deregister { name: Name, windows_too: bool },
        /// Deallocates a window.
        Deallocate { name: Name },
    }
}

/// Runs one input; the module says what has to hold.
pub fn run(octets: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(octets)) else { return };
    let mut test = Test::new(&input);
    for step in &input.steps.0 {
        test.step(step);
        test.check_counts();
    }
    test.check_octets();
    test.clear();
}

/// The table that inputs share; each leaves it empty.
static TABLE: LazyLock<Arc<MemTable>> = LazyLock::new(|| Arc::new(MemTable::new(MemLimits { stags: LIMIT })));

const LIMIT: usize = 24;

/// The program's memory, with octets around it that belong to no region.
const OWN: usize = 2048;

/// The model of a region or window.
struct Object {
    /// The present STag first, then the earlier ones.
    stags: Vec<Stag>,
    pd: PdId,
    live: bool,
    valid: bool,
    access: Access,
    kind: Kind,
}

enum Kind {
    Region {
        handle: Arc<Region>,
        qp: Option<QpNum>,
        /// The octets that the region must have.
        octets: Octets,
        writable: bool,
        windows: usize,
    },
    Window {
        handle: Arc<Window>,
        /// The region, the offset in it, the length, the base, the QP.
        bound: Option<Bound>,
    },
}

#[derive(Clone, Copy)]
struct Bound {
    region: usize,
    offset: usize,
    len: usize,
    base: u64,
    qp: QpNum,
}

enum Octets {
    Ours(Vec<u8>),
    /// The offset in the program's memory, and the length.
    Own(usize, usize),
}

struct Test {
    table: Arc<MemTable>,
    limit: usize,
    objects: Vec<Object>,
    own: Box<[std::cell::UnsafeCell<u8>]>,
    own_model: Vec<u8>,
}

/// The result of an access: the object that is touched (a region), offset, length.
type Spot = (usize, usize, usize);

impl Test {
    fn new(input: &Input) -> Self {
        let (table, limit) = match input.own_table {
            None => (TABLE.clone(), LIMIT),
            Some(limit) => {
                let limit = usize::from(limit % 32) + 1;
                (Arc::new(MemTable::new(MemLimits { stags: limit })), limit)
            }
        };
        let own = (0..OWN).map(|at| std::cell::UnsafeCell::new(at as u8)).collect();
        Test { table, limit, objects: Vec::new(), own, own_model: (0..OWN).map(|at| at as u8).collect() }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Allocate { asker, len, access, for_one_qp } => {
                let qp = for_one_qp.then_some(asker.qp());
                self.allocate(asker.pd(), usize::from(len % 600), rights(*access), qp);
            }
            Step::Register { asker, at, len, access } => {
                self.register(asker.pd(), (*at).into(), (*len).into(), rights(*access));
            }
            Step::Window { asker } => self.window(asker.pd()),
            Step::Bind { asker, window, region, at, len, access, key } => {
                let request = BindWindow {
                    window: self.stag(window),
                    region: self.stag(region),
                    addr: self.base(region).wrapping_add((*at).into()).wrapping_sub(64),
                    len: (*len).into(),
                    access: rights(*access),
                    pd: asker.pd(),
                    qp: asker.qp(),
                    key: *key,
                };
                self.bind(&request);
            }
            Step::Remote { asker, name, at, len, want, fill } => {
                let want = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC]
                    .get(usize::from(want % 5))
                    .copied()
                    .unwrap_or(Access::from_bits_retain(*want));
                let (stag, at) = (self.stag(name), self.near(name, *at));
                // Accesses of no octets have nothing to compare.
                let len = length(*len).max(1);
                self.remote(stag, at, len, want, asker, *fill);
            }
            Step::Local { asker, name, at, len, write, fill } => {
                let (stag, at) = (self.stag(name), self.near(name, *at));
                self.local(stag, at, length(*len), *write, asker, *fill);
            }
            Step::Invalidate { asker, name, remote } => self.invalidate(self.stag(name), asker, *remote),
            Step::Reregister { name, access } => self.reregister(self.stag(name), rights(*access)),
            Step::Deregister { name, windows_too } => self.deregister(self.stag(name), *windows_too),
            Step::Deallocate { name } => self.deallocate(self.stag(name)),
        }
    }

    /// Returns the STag that a name stands for: present, earlier, or none at all.
    fn stag(&self, name: &Name) -> Stag {
        let Some(object) = self.named(name) else { return Stag(u32::from(name.twist) << 9 | 0x100) };
        match name.twist {
            0..160 => object.stags[0],
            160..200 => object.stags[usize::from(name.twist) % object.stags.len()],
            200..230 => Stag(object.stags[0].0 ^ u32::from(name.twist - 199)),
            _ => Stag(object.stags[0].0 ^ 0x100 << (name.twist % 24)),
        }
    }

    fn named(&self, name: &Name) -> Option<&Object> {
        self.objects.get(usize::from(name.object).checked_rem(self.objects.len())?)
    }

    /// Returns the first TO of what a name stands for.
    fn base(&self, name: &Name) -> u64 {
        match self.named(name) {
            Some(Object { kind: Kind::Region { handle, .. }, .. }) => handle.base_to(),
            Some(Object { kind: Kind::Window { bound: Some(bound), .. }, .. }) => bound.base,
            _ => 0x1000,
        }
    }

    /// Returns a TO near the base, or anywhere.
    fn near(&self, name: &Name, at: u64) -> u64 {
        if at >> 56 < 0xf0 { self.base(name).wrapping_add(at % 700).wrapping_sub(32) } else { at << 8 | 0xff }
    }

    /// Returns the live object with the index of this STag.
    fn find(&self, stag: Stag) -> Option<usize> {
        self.objects.iter().position(|object| object.live && object.stags[0].0 >> 8 == stag.0 >> 8)
    }

    fn live(&self) -> usize {
        self.objects.iter().filter(|object| object.live).count()
    }

    fn add(&mut self, stag: Stag, pd: PdId, valid: bool, access: Access, kind: Kind) {
        assert_eq!(self.find(stag), None, "an index is given out twice");
        self.objects.push(Object { stags: vec![stag], pd, live: true, valid, access, kind });
    }

    fn allocate(&mut self, pd: PdId, len: usize, access: Access, qp: Option<QpNum>) {
        let options = RegionOptions { qp, ..RegionOptions::default() };
        let result = self.table.allocate(pd, len, access, &options);
        if let Some(handle) = self.expect_region(result, access) {
            let octets = Octets::Ours(vec![0; len]);
            let kind = Kind::Region { handle: handle.clone(), qp, octets, writable: true, windows: 0 };
            self.add(handle.stag(), pd, true, access, kind);
        }
    }

    fn register(&mut self, pd: PdId, at: usize, len: usize, access: Access) {
        let at = at % OWN;
        let len = len % (OWN - at + 1);
        let ptr = std::ptr::NonNull::new(self.own[at..].as_ptr().cast_mut().cast::<u8>()).unwrap();
        // SAFETY: `clear` ends all registrations before `own` is dropped, and `own` is accessed
        // through raw pointers only.
        let result = unsafe { self.table.register(pd, ptr, len, access, &RegionOptions::default()) };
        if let Some(handle) = self.expect_region(result, access) {
            let octets = Octets::Own(at, len);
            let writable = access.intersects(Access::LOCAL_WRITE);
            let kind = Kind::Region { handle: handle.clone(), qp: None, octets, writable, windows: 0 };
            self.add(handle.stag(), pd, true, access, kind);
        }
    }

    /// Registers a region, and returns it if the model says that it must exist.
    fn expect_region(&self, result: Result<Arc<Region>, MemError>, access: Access) -> Option<Arc<Region>> {
        let remote_write = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        match result {
            Err(MemError::RemoteWriteNeedsLocalWrite) => {
                assert!(remote_write && !access.contains(Access::LOCAL_WRITE));
                None
            }
            Err(MemError::BindNeedsAddresses) => {
                assert!(access.contains(Access::BIND | Access::ZERO_BASED));
                None
            }
            Err(MemError::NotStable) => {
                assert!(access.contains(Access::STABLE) && access.writes());
                None
            }
            Err(MemError::TooManyStags { .. }) => {
                assert_eq!(self.live(), self.limit);
                None
            }
            Ok(region) => {
                assert!(self.live() < self.limit && region.is_valid());
                assert!(!remote_write || access.contains(Access::LOCAL_WRITE));
                assert!(!access.contains(Access::BIND | Access::ZERO_BASED));
                assert!(!access.contains(Access::STABLE) || !access.writes());
                assert_ne!(region.stag().0 >> 8, 0);
                Some(region)
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn window(&mut self, pd: PdId) {
        match self.table.allocate_window(pd) {
            Ok(handle) => {
                assert!(self.live() < self.limit && !handle.is_valid());
                let stag = handle.stag();
                self.add(stag, pd, false, Access::empty(), Kind::Window { handle, bound: None });
            }
            Err(error) => {
                assert!(matches!(error, MemError::TooManyStags { .. }), "{error}");
                assert_eq!(self.live(), self.limit);
            }
        }
    }

    fn bind(&mut self, request: &BindWindow) {
        let may = self.may_bind(request);
        let result = self.table.bind(request);
        let Some((window, bound)) = may else {
            let error = result.expect_err("a bind that must be refused");
            assert!(!error.to_string().is_empty());
            return;
        };
        let stag = result.expect("a bind that must succeed");
        assert_eq!(stag.0 >> 8, request.window.0 >> 8);
        match request.key {
            Some(key) => assert_eq!(stag.0 as u8, key),
            None => assert_ne!(stag, request.window),
        }
        if let Kind::Region { windows, .. } = &mut self.objects[bound.region].kind {
            *windows += 1;
        }
        let object = &mut self.objects[window];
        (object.valid, object.access) = (true, request.access);
        object.stags.insert(0, stag);
        if let Kind::Window { bound: now, .. } = &mut object.kind {
            *now = Some(bound);
        }
    }

    /// Binds a window (draft-hilland-rddp-verbs §7.10.2).
    fn may_bind(&self, request: &BindWindow) -> Option<(usize, Bound)> {
        let window = self.exact(request.window)?;
        let region = self.exact(request.region)?;
        let Kind::Window { bound: None, .. } = self.objects[window].kind else { return None };
        let object = &self.objects[region];
        let Kind::Region { handle, octets, .. } = &object.kind else { return None };
        if self.objects[window].pd != request.pd || object.pd != request.pd || !object.valid {
            return None;
        }
        if !object.access.contains(Access::BIND)
            || request.access.intersects(Access::LOCAL_WRITE | Access::BIND)
        {
            return None;
        }
        let writes = request.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if writes && !object.access.contains(Access::LOCAL_WRITE) {
            return None;
        }
        if request.access.contains(Access::STABLE) && !object.access.contains(Access::STABLE) {
            return None;
        }
        let offset = inside(handle.base_to(), octets.len(), request.addr, request.len).ok()?;
        let base = if request.access.contains(Access::ZERO_BASED) { 0 } else { request.addr };
        let len = request.len as usize;
        Some((window, Bound { region, offset, len, base, qp: request.qp }))
    }

    /// Returns the live object that has exactly this STag.
    fn exact(&self, stag: Stag) -> Option<usize> {
        self.find(stag).filter(|object| self.objects[*object].stags[0] == stag)
    }

    fn remote(&mut self, stag: Stag, at: u64, len: u64, want: Access, asker: &Asker, fill: u8) {
        let expected = self.may_remote(stag, at, len, want, asker);
        let got = self.table.check_remote(stag, at, len, want, asker.pd(), asker.qp());
        let writes = want.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        self.use_grant(got, expected, writes, fill);
    }

    /// Checks an access by the model (RFC 5041 §7.1, in the order of its checks).
    fn may_remote(
        &self,
        stag: Stag,
        at: u64,
        len: u64,
        want: Access,
        asker: &Asker,
    ) -> Result<Spot, AccessError> {
        let number = self.exact(stag).ok_or(AccessError::Stag)?;
        let object = &self.objects[number];
        if !object.valid {
            return Err(AccessError::Stag);
        }
        let (other, base, len_there, region, offset) = match &object.kind {
            Kind::Region { handle, qp, octets, .. } => {
                let other = object.pd != asker.pd() || qp.is_some_and(|qp| qp != asker.qp());
                (other, handle.base_to(), octets.len(), number, 0)
            }
            Kind::Window { bound, .. } => {
                let bound = bound.expect("a valid window is bound");
                (bound.qp != asker.qp(), bound.base, bound.len, bound.region, bound.offset)
            }
        };
        if other {
            return Err(AccessError::Pd);
        }
        if want.is_empty() || !(object.access & Access::REMOTE).contains(want) {
            return Err(AccessError::Rights);
        }
        let at = inside(base, len_there, at, len)?;
        Ok((region, offset + at, len as usize))
    }

    fn local(&mut self, stag: Stag, at: u64, len: u64, write: bool, asker: &Asker, fill: u8) {
        let expected = self.may_local(stag, at, len, write, asker);
        let got = self.table.check_local(stag, at, len, write, asker.pd());
        self.use_grant(got, expected, write, fill);
    }

    fn may_local(
        &self,
        stag: Stag,
        at: u64,
        len: u64,
        write: bool,
        asker: &Asker,
    ) -> Result<Spot, AccessError> {
        let number = self.exact(stag).ok_or(AccessError::Stag)?;
        let object = &self.objects[number];
        let Kind::Region { handle, octets, .. } = &object.kind else { return Err(AccessError::Stag) };
        if !object.valid {
            return Err(AccessError::Stag);
        }
        if object.pd != asker.pd() {
            return Err(AccessError::Pd);
        }
        if write && !object.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Rights);
        }
        let at = inside(handle.base_to(), octets.len(), at, len)?;
        Ok((number, at, len as usize))
    }

    /// Checks that a grant reaches the octets of the spot: it reads what is there, and what it
    /// places stays there.
    fn use_grant(
        &mut self,
        got: Result<Grant, AccessError>,
        spot: Result<Spot, AccessError>,
        writes: bool,
        fill: u8,
    ) {
        let (grant, (region, offset, len)) = match (got, spot) {
            (Ok(grant), Ok(spot)) => (grant, spot),
            (got, expected) => return assert_eq!(got.map(drop), expected.map(drop)),
        };
        assert_eq!((grant.len(), grant.is_writable()), (len, writes));
        let mut found = vec![0; len];
        grant.copy_to(0, &mut found).expect("the memory stays");
        assert_eq!(found, self.octets(region)[offset..offset + len]);
        let half = grant.slice(len / 2..len);
        assert_eq!(half.crc32c_append(0, half.len(), 0), Ok(rddp_mpa::crc32c(&found[len / 2..])));
        drop(half);
        if writes {
            let data: Vec<u8> = (0..len).map(|at| fill.wrapping_add(at as u8)).collect();
            assert_eq!(grant.place_with_crc(0, &data, 0), Ok(rddp_mpa::crc32c(&data)));
            drop(grant);
            self.octets_mut(region)[offset..offset + len].copy_from_slice(&data);
        }
    }

    fn octets(&self, region: usize) -> &[u8] {
        match &self.objects[region].kind {
            Kind::Region { octets: Octets::Ours(octets), .. } => octets,
            Kind::Region { octets: Octets::Own(at, len), .. } => &self.own_model[*at..at + len],
            Kind::Window { .. } => panic!("a window has no octets of its own"),
        }
    }

    fn octets_mut(&mut self, region: usize) -> &mut [u8] {
        match &mut self.objects[region].kind {
            Kind::Region { octets: Octets::Ours(octets), .. } => octets,
            Kind::Region { octets: Octets::Own(at, len), .. } => &mut self.own_model[*at..*at + *len],
            Kind::Window { .. } => panic!("a window has no octets of its own"),
        }
    }

    fn invalidate(&mut self, stag: Stag, asker: &Asker, remote: bool) {
        let (pd, qp) = (asker.pd(), asker.qp());
        let expected = self.may_invalidate(stag, pd, qp, remote);
        let got = if remote {
            self.table.invalidate_remote(stag, pd, qp)
        } else {
            self.table.invalidate_local(stag, pd, qp)
        };
        assert_eq!(got, expected.map(drop));
        if let Ok(object) = expected {
            self.close(object);
        }
    }

    /// Invalidates an STag in the model (draft-hilland-rddp-verbs §7.8, §7.10.6).
    fn may_invalidate(
        &self,
        stag: Stag,
        pd: PdId,
        qp: QpNum,
        remote: bool,
    ) -> Result<usize, InvalidateError> {
        let number = self.find(stag).ok_or(InvalidateError::Unknown)?;
        let object = &self.objects[number];
        if object.stags[0] != stag {
            return Err(InvalidateError::Key);
        }
        let may = object.access.contains(Access::REMOTE_INVALIDATE) || !remote;
        match &object.kind {
            Kind::Region { qp: only, .. } if object.pd != pd || only.is_some_and(|only| only != qp) => {
                Err(InvalidateError::Pd)
            }
            Kind::Region { windows: 1.., .. } => Err(InvalidateError::WindowsBound),
            Kind::Window { bound: Some(bound), .. } if bound.qp != qp => Err(InvalidateError::Pd),
            Kind::Window { bound: None, .. } if object.pd != pd => Err(InvalidateError::Pd),
            Kind::Window { bound: None, .. } => Ok(number),
            _ if !may => Err(InvalidateError::Rights),
            _ => Ok(number),
        }
    }

    /// Makes an object invalid; a window is unbound by that.
    fn close(&mut self, number: usize) {
        self.objects[number].valid = false;
        if let Kind::Window { bound, .. } = &mut self.objects[number].kind
            && let Some(bound) = bound.take()
            && let Kind::Region { windows, .. } = &mut self.objects[bound.region].kind
        {
            *windows -= 1;
        }
    }

    fn reregister(&mut self, stag: Stag, access: Access) {
        let result = self.table.reregister(stag, access);
        let remote_write = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let unsound = remote_write && !access.contains(Access::LOCAL_WRITE)
            || access.contains(Access::BIND | Access::ZERO_BASED)
            || access.contains(Access::STABLE) && access.writes();
        let number = self.exact(stag).filter(|number| match self.objects[*number].kind {
            Kind::Region { writable, windows, .. } => {
                windows == 0 && !unsound && (writable || !access.contains(Access::LOCAL_WRITE))
            }
            Kind::Window { .. } => false,
        });
        match (number, result) {
            (Some(number), Ok(changed)) => {
                assert!(changed != stag && changed.0 >> 8 == stag.0 >> 8);
                let object = &mut self.objects[number];
                (object.valid, object.access) = (true, access);
                object.stags.insert(0, changed);
            }
            (None, Err(_)) => {}
            (number, result) => panic!("{number:?} but {result:?}"),
        }
    }

    fn deregister(&mut self, stag: Stag, windows_too: bool) {
        let result =
            if windows_too { self.table.deregister_with_windows(stag) } else { self.table.deregister(stag) };
        let number = self.exact(stag).filter(|number| match self.objects[*number].kind {
            Kind::Region { windows, .. } => windows == 0 || windows_too,
            Kind::Window { .. } => false,
        });
        assert_eq!(result.is_ok(), number.is_some(), "{result:?}");
        let Some(number) = number else { return };
        let bound_to_it = |object: &Object| matches!(object.kind, Kind::Window { bound: Some(bound), .. } if bound.region == number);
        let windows: Vec<usize> =
            (0..self.objects.len()).filter(|window| bound_to_it(&self.objects[*window])).collect();
        windows.into_iter().for_each(|window| self.close(window));
        (self.objects[number].live, self.objects[number].valid) = (false, false);
    }

    fn deallocate(&mut self, stag: Stag) {
        let result = self.table.deallocate_window(stag);
        let number =
            self.exact(stag).filter(|number| matches!(self.objects[*number].kind, Kind::Window { .. }));
        assert_eq!(result.is_ok(), number.is_some(), "{result:?}");
        if let Some(number) = number {
            self.close(number);
            self.objects[number].live = false;
        }
    }

    /// Checks that the table counts as many objects as the model.
    fn check_counts(&self) {
        assert_eq!(self.table.len(), self.live());
        for pd in [PdId(1), PdId(2)] {
            let count = self.objects.iter().filter(|object| object.live && object.pd == pd).count();
            assert_eq!(self.table.objects_of(pd), count);
        }
        for qp in [QpNum(1), QpNum(2)] {
            let bound = |object: &&Object| matches!(object.kind, Kind::Window { bound: Some(bound), .. } if bound.qp == qp);
            assert_eq!(self.table.windows_of(qp), self.objects.iter().filter(bound).count());
        }
        for object in self.objects.iter().filter(|object| object.live) {
            let (stag, valid) = match &object.kind {
                Kind::Region { handle, .. } => (handle.stag(), handle.is_valid()),
                Kind::Window { handle, .. } => (handle.stag(), handle.is_valid()),
            };
            assert_eq!((stag, valid), (object.stags[0], object.valid));
        }
    }

    /// Deregisters all regions, and deallocates the windows of the shared table. A table of this
    /// input's own is dropped with its windows.
    fn clear(&mut self) {
        for number in 0..self.objects.len() {
            let Object { live: true, stags, kind, .. } = &self.objects[number] else { continue };
            match kind {
                Kind::Region { .. } => self.deregister(stags[0], true),
                Kind::Window { .. } if Arc::strong_count(&self.table) > 1 => self.deallocate(stags[0]),
                Kind::Window { .. } => {}
            }
        }
        if Arc::strong_count(&self.table) > 1 {
            assert!(self.table.is_empty());
        }
    }

    /// Checks that every octet is as in the model, in regions and outside of them.
    fn check_octets(&self) {
        for object in &self.objects {
            if let Kind::Region { handle, octets: Octets::Ours(octets), .. } = &object.kind {
                let mut found = vec![0; handle.len()];
                handle.read_at(0, &mut found).expect("our own memory stays");
                assert_eq!(&found, octets);
            }
        }
        // SAFETY: no grant is out, so nothing else accesses these octets now.
        let found: Vec<u8> = self.own.iter().map(|octet| unsafe { *octet.get() }).collect();
        assert_eq!(found, self.own_model);
    }
}

impl Octets {
    fn len(&self) -> usize {
        match self {
            Octets::Ours(octets) => octets.len(),
            Octets::Own(_, len) => *len,
        }
    }
}

impl Asker {
    fn pd(&self) -> PdId {
        PdId(1 + u64::from(self.who % 8 == 7))
    }

    fn qp(&self) -> QpNum {
        QpNum(1 + u32::from(self.who / 8 % 8 == 7))
    }
}

fn rights(octet: u8) -> Access {
    Access::from_bits_truncate(octet)
}

/// Returns a length, mostly a short one.
fn length(len: u32) -> u64 {
    if len >> 28 == 0xf { u64::from(len) << 32 | u64::from(len) } else { u64::from(len % 80) }
}

/// Returns the offset of a TO in a range of `room` octets from `base` on (RFC 5041 §7.1).
fn inside(base: u64, room: usize, at: u64, len: u64) -> Result<usize, AccessError> {
    let (base, room, at, len) = (u128::from(base), room as u128, u128::from(at), u128::from(len));
    if at + len > 1 << 64 {
        return Err(AccessError::Wrap);
    }
    if at < base || at + len > base + room {
        return Err(AccessError::Bounds);
    }
    Ok((at - base) as usize)
}
