//! Two network namespaces, and between them a middle that loses, reorders, repeats, corrupts and
//! delays frames by seed.
//!
//! Each namespace has a TAP device, which has no offloads: every frame is a segment as TCP cut it,
//! with a checksum of its own. The receiver's kernel may join segments that follow each other
//! (GRO), and the connection may go by a VLAN: [`Way`].

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rddp_kernel_patch::segment::TAGGED_FRONT;
use rddp_test_support::Random;

use super::frame::{TCP, TCP_V6, seal};
use super::net::{enter_new, ip, set};

const SENDER: [&str; 2] = ["10.23.0.1/24", "fd23::1/64"];
/// The receiver's addresses.
pub const RECEIVER: &str = "10.23.0.2";
pub const RECEIVER_V6: &str = "fd23::2";
pub const DEVICE: &str = "tap0";

/// Chances, of 10,000, that something happens to a segment with payload on its way to the
/// receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub drop: usize,
    pub repeat: usize,
    pub reorder: usize,
    /// Segments that come some milliseconds later.
    pub delay: usize,
    /// Segments in which a bit is changed, while the checksum stays as it is.
    pub corrupt: usize,
    /// Segments behind which comes one that somebody else has made: other octets, the same place,
    /// a right checksum, and a sequence number that TCP does not wait for.
    pub forge: usize,
    /// Segments lost once each, by number from 1 on.
    pub lose: &'static [u64],
}

/// A bad path: each of these to one segment of a hundred.
pub const BAD_PATH: Faults =
    Faults { drop: 100, repeat: 100, reorder: 100, delay: 100, corrupt: 100, forge: 100, lose: &[] };

/// The way that segments take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Each segment as the sender's TCP cut it.
    #[default]
    Plain,
    /// Joined by the receiver's kernel: GRO.
    Joined,
    /// With a VLAN tag, by devices of their own above the TAP devices.
    Tagged,
}

impl Way {
    /// Returns the device that connections go by.
    pub fn device(self) -> &'static str {
        if self == Way::Tagged { "tap0.5" } else { DEVICE }
    }
}

/// Makes a TAP device in the calling thread's network namespace, with these addresses.
pub fn tap(addrs: [&str; 2], way: Way) -> File {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").expect("/dev/net/tun");
    let mut request = [0_u8; 40];
    request[..DEVICE.len()].copy_from_slice(DEVICE.as_bytes());
    const IFF_TAP: u16 = 2;
    const IFF_NO_PI: u16 = 0x1000;
    const IFF_NAPI: u16 = 0x10;
    let flags = if way == Way::Joined { IFF_TAP | IFF_NO_PI | IFF_NAPI } else { IFF_TAP | IFF_NO_PI };
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    // SAFETY: the kernel reads and writes a `struct ifreq`, which has 40 octets.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, request.as_mut_ptr()) };
    assert_eq!(made, 0, "TUNSETIFF: {}", io::Error::last_os_error());
    ip(&format!("link set {DEVICE} up"));
    if way == Way::Tagged {
        ip(&format!("link add link {DEVICE} name {} type vlan id 5", way.device()));
    }
    if way == Way::Joined {
        hold_segments();
    }
    let device = way.device();
    set(&format!("ipv6/conf/{device}/accept_dad"), "0");
    set(&format!("ipv6/conf/{device}/router_solicitations"), "0");
    for addr in addrs {
        // Nobody else has them, and they can be used at once.
        let nodad = if addr.contains(':') { " nodad" } else { "" };
        ip(&format!("addr add {addr} dev {device}{nodad}"));
    }
    ip(&format!("link set {device} up"));
    file
}

/// Has the kernel keep segments for twenty milliseconds, so that those that come one by one are
/// joined. `/sys` shows devices of the network namespace in which it was mounted, so this thread
/// gets one of its own.
fn hold_segments() {
    let setting = format!("/sys/class/net/{DEVICE}/gro_flush_timeout");
    // A path before this one may have been of the same thread.
    if !std::fs::exists(&setting).unwrap() {
        // SAFETY: changes this thread's mount namespace alone.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) }, "unshare");
        mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE);
        mount(c"rddp", c"/sys", c"sysfs", 0);
    }
    std::fs::write(setting, "20000000").unwrap();
}

fn mount(what: &CStr, place: &CStr, kind: &CStr, flags: libc::c_ulong) {
    let [what, to, kind] = [what, place, kind].map(CStr::as_ptr);
    // SAFETY: strings that live, and no data. Of this thread's mount namespace alone.
    done(unsafe { libc::mount(what, to, kind, flags, std::ptr::null()) }, "mount");
}

fn done(result: i32, call: &str) {
    assert_eq!(result, 0, "{call}: {}", io::Error::last_os_error());
}

/// Returns whether this kernel has VLANs; says so if it has not.
pub fn has_vlans() -> bool {
    let made = Command::new("ip").args("link add link lo name vlan5 type vlan id 5".split(' ')).output();
    let has = made.expect("iproute2").status.success();
    if has {
        ip("link delete vlan5");
    } else {
        eprintln!("SKIPPED: this kernel has no VLANs (module 8021q)");
    }
    has
}

/// The middle, a thread.
pub struct Middle {
    over: Arc<AtomicBool>,
    receiver: File,
    thread: Option<JoinHandle<()>>,
    pub faults: Arc<AtomicU64>,
}

impl Middle {
    /// Carries frames between the sender's device and the receiver's.
    pub fn start(sender: File, receiver: File, faults: Faults, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let to_receiver = receiver.try_clone().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let mut carrier = Carrier {
            sender,
            receiver,
            faults,
            random: Random::new(seed),
            held: None,
            late: Vec::new(),
            seen: 0,
            count: count.clone(),
        };
        let thread = std::thread::spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Relaxed) {
                    carrier.turn();
                }
            }
        });
        Self { over, receiver: to_receiver, thread: Some(thread), faults: count }
    }

    /// Delivers a frame of somebody else's. When this returns, the program has seen it.
    pub fn inject(&self, frame: &[u8]) {
        let written = (&self.receiver).write(frame).unwrap();
        assert_eq!(written, frame.len());
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Carrier {
    sender: File,
    receiver: File,
    faults: Faults,
    random: Random,
    /// A frame that waits until another has passed it.
    held: Option<Vec<u8>>,
    /// Frames that are to come later, and when.
    late: Vec<(Instant, Vec<u8>)>,
    seen: u64,
    count: Arc<AtomicU64>,
}

impl Carrier {
    fn turn(&mut self) {
        let ready = ready([self.sender.as_raw_fd(), self.receiver.as_raw_fd()]);
        let now = Instant::now();
        let due: Vec<_> = self.late.extract_if(.., |(due, _)| *due <= now).collect();
        due.iter().for_each(|(_, frame)| self.deliver(frame));
        let mut frame = vec![0; 10_000];
        if ready[1] {
            let len = self.receiver.read(&mut frame).unwrap();
            let _ = self.sender.write(&frame[..len]);
        }
        if ready[0] {
            let len = self.sender.read(&mut frame).unwrap();
            frame.truncate(len);
            self.pass(frame);
        } else if let Some(held) = self.held.take() {
            self.deliver(&held);
        }
    }

    fn pass(&mut self, mut frame: Vec<u8>) {
        // What has no more than headers is not interesting.
        let tcp = tcp_at(&frame);
        if frame.len() < tcp + 100 {
            return self.deliver(&frame);
        }
        self.seen += 1;
        if self.faults.lose.contains(&self.seen) || self.happens(self.faults.drop) {
            self.count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.happens(self.faults.repeat) {
            self.deliver(&frame);
        }
        // Made of the sound frame: one whose sequence number was changed before could be taken.
        let forged = self.happens(self.faults.forge).then(|| frame.clone());
        if self.happens(self.faults.corrupt) {
            // The headers of DDP as often as all the rest.
            let (from, len) =
                if self.random.below(2) == 0 { (tcp + 20, 40) } else { (tcp, frame.len() - tcp) };
            frame[from + self.random.below(len)] ^= 1 << self.random.below(8);
        }
        if self.happens(self.faults.delay) {
            let later = Duration::from_millis(1 + self.random.below(10) as u64);
            return self.late.push((Instant::now() + later, frame));
        }
        if self.held.is_none() && self.happens(self.faults.reorder) {
            self.held = Some(frame);
            return;
        }
        self.deliver(&frame);
        if let Some(held) = self.held.take() {
            self.deliver(&held);
        }
        if let Some(frame) = forged {
            self.forge(frame);
        }
    }

    /// Delivers a segment for the same place with other octets, far before or behind the window.
    fn forge(&mut self, mut frame: Vec<u8>) {
        let tcp = tcp_at(&frame);
        let seq = &mut frame[tcp + 4..tcp + 8];
        let own = u32::from_be_bytes(seq.try_into().expect("four octets"));
        let far =
            if self.random.below(2) == 0 { own.wrapping_sub(1 << 26) } else { own.wrapping_add(1 << 26) };
        seq.copy_from_slice(&far.to_be_bytes());
        let payload = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
        frame[payload + TAGGED_FRONT..].iter_mut().for_each(|octet| *octet ^= 0xff);
        match frame[12..14] == VLAN_TAG {
            // Where nothing that is forged is looked for.
            true => return,
            false => seal(&mut frame),
        }
        self.deliver(&frame);
    }

    fn happens(&mut self, of_10_000: usize) -> bool {
        let happens = self.random.below(10_000) < of_10_000;
        self.count.fetch_add(u64::from(happens), Ordering::Relaxed);
        happens
    }

    fn deliver(&mut self, frame: &[u8]) {
        let _ = self.receiver.write(frame);
    }
}

/// Returns the offset of TCP's header.
fn tcp_at(frame: &[u8]) -> usize {
    let tag = if frame[12..14] == VLAN_TAG { 4 } else { 0 };
    tag + if frame[12 + tag..14 + tag] == [0x86, 0xdd] { TCP_V6 } else { TCP }
}

const VLAN_TAG: [u8; 2] = [0x81, 0x00];

/// Waits a moment until one of these can be read.
fn ready(fds: [RawFd; 2]) -> [bool; 2] {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: two entries, as said.
    unsafe { libc::poll(polled.as_mut_ptr(), 2, 5) };
    polled.map(|entry| entry.revents & libc::POLLIN != 0)
}

/// Makes the two namespaces and the middle. `send` runs in a thread of its own in the sender's;
/// the calling thread goes into the receiver's.
pub fn path<T: Send + 'static>(
    faults: Faults,
    seed: u64,
    send: impl FnOnce() -> T + Send + 'static,
) -> (Middle, JoinHandle<T>) {
    path_by(Way::Plain, faults, seed, send)
}

/// Makes a [`path`] that segments go by this way.
pub fn path_by<T: Send + 'static>(
    way: Way,
    faults: Faults,
    seed: u64,
    send: impl FnOnce() -> T + Send + 'static,
) -> (Middle, JoinHandle<T>) {
    let (to, from) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let sender = std::thread::spawn(move || {
        enter_new();
        // A sender that runs into the end of the receiver's window cuts a segment there, and FPDUs
        // are no longer aligned.
        set("ipv4/tcp_wmem", "4096 131072 131072");
        let sender_way = if way == Way::Joined { Way::Plain } else { way };
        to.send(tap(SENDER, sender_way)).unwrap();
        gone.recv().unwrap();
        send()
    });
    set("ipv4/tcp_rmem", "4096 4194304 8388608");
    let left = from.recv().unwrap();
    let right = tap([&format!("{RECEIVER}/24"), &format!("{RECEIVER_V6}/64")], way);
    let middle = Middle::start(left, right, faults, seed);
    go.send(()).unwrap();
    (middle, sender)
}
