//! `rddp run`: runs a program with the socket switch in front of its C library, or with the verbs'
//! libraries replaced, or both.
//!
//! | file | what |
//! |---|---|
//! | `library` | where `librddp_sockets.so` and its like are |
//! | `verbs` | what `librddp_verbs.so` needs more |
//! | `paths` | what `librddp_paths.so` needs more: the files of devices |
//! | `program` | the file that will be run, and whether a library can be loaded into it |
//! | `elf`, `dynamic` | the kind of that file, and what it tells the dynamic linker |
//!
//! The program takes this process over, so that its exit code, its signals and its terminal are its
//! own.

pub(crate) mod dynamic;
mod elf;
pub(crate) mod library;
mod paths;
pub(crate) mod program;
pub(crate) mod verbs;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;

use clap::Args;
use rddp_command::device::Choice;
use rddp_command::failure::{Failure, FailureKind};
use rddp_command::out::complain;
use rddp_policy::{BadLine, Family, FaultRule, Policy, RoceDevice, RoceFault, Thresholds, VerbsSettings};
use rddp_switch::{placement, sdp, switch};

use self::library::Library;
use crate::logging;

const EXAMPLES: &str = "\
Examples:
  rddp run --ddp -- iperf3 -s                    all its TCP connections as iWARP
  rddp run --ddp -- iperf3 -c 192.0.2.1
  rddp run --sdp -- iperf3 -c 192.0.2.1          all its TCP connections as SDP
  rddp run --sdp --device mlx5_0 -- iperf3 -s    the same, over an RDMA device in place of TCP
  rddp run --policy switch.conf -- curl http://192.0.2.1/
  rddp run -- ./program                          unchanged, except that it can ask for DDPMODE
  rddp run --verbs -- rping -s                   an RDMA program, on a host without an RDMA device

  rddp run --roce -- ib_write_bw                 one that connects by numbers of queue pairs (MPI, perftest)
  rddp run --roce mlx5_0=192.0.2.1 -- ib_write_bw -d mlx5_0

Under --ddp and --sdp a server that speaks plain TCP is an error. A connection to a server that says nothing
fails after 30 seconds (RDDP_STARTUP_TIMEOUT in the environment, in milliseconds), with a line on
standard error; --both and --sdp-or-tcp fall back to plain TCP after 2.

A policy has the grammar of libsdp.conf; the first rule that matches counts, and without one it is plain TCP:
  use ddp client curl* 192.0.2.0/24:80           family (tcp, ddp, both, sdp, sdp-or-tcp), role, program,
                                                 address and port
  use ddp server *     [2001:db8::/32]:5000-5010
  threshold source 65536                         SDP: from this length on a call to send is advertised
  log destination stderr min-level 7             log what becomes of each connection

Under --verbs, librddp_verbs.so stands in for libibverbs and librdmacm, and the sockets of the program are
left alone unless it is told which are to be switched, too. rddp doctor --verbs PROGRAM looks whether it can.
A policy sets options of its connections by peer, whose port is the server's, and so do variables RDDP_VERBS_*:
  verbs * 192.0.2.0/24:* extensions=on crc=off   mpa, crc, markers, peer-to-peer, rtr, ird, ord, extensions,
                                                 speaks-first, large-fpdus

With -v the library tells on standard error what it switched, framed or refused, and why; -vv, or RDDP_LOG in the
environment (RDDP_LOG=rnic=debug,switch=info), tells more, and RDDP_LOG_FILE=/tmp/log-%p has it in files.
RDDP_CAPTURE=/tmp/%p.pcapng has each process write what goes over its iWARP connections, for Wireshark.

Without an option or RDDP_POLICY, files and variables of libsdp count: LIBSDP_CONFIG_FILE, in which both means
SDP or else TCP, SIMPLE_LIBSDP and ALWAYS_USE_SDP.

Exit codes:
  those of PROGRAM, and
  1    this host could not do it (no library, no such device)
  2    wrong arguments, or an invalid policy
  126  PROGRAM cannot be run with the library
  127  there is no PROGRAM";

/// Run a program with its TCP connections switched, or an RDMA program without an RDMA device
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples and exit codes")]
pub(crate) struct RunArgs {
    /// Policy that says which connections travel how
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["ddp", "sdp", "sdp_or_tcp", "tcp", "both"])]
    policy: Option<PathBuf>,

    /// Use DDPMODE for all TCP connections
    #[arg(long, conflicts_with_all = ["sdp", "sdp_or_tcp", "tcp", "both"])]
    ddp: bool,

    /// Use SDP for all TCP connections
    #[arg(long, conflicts_with_all = ["sdp_or_tcp", "tcp", "both"])]
    sdp: bool,

    /// Use SDP for all connections to ends that support it, and plain TCP for others
    #[arg(long, conflicts_with_all = ["tcp", "both"])]
    sdp_or_tcp: bool,

    /// Use DDPMODE for all connections to ends that support it, and plain TCP for others
    #[arg(long, conflicts_with = "tcp")]
    both: bool,

    /// Use plain TCP for all, whatever the environment says
    #[arg(long)]
    tcp: bool,

    /// Use rddp's device for what the program does by libibverbs and librdmacm
    #[arg(long)]
    verbs: bool,

    /// Show devices that look like RoCE, for programs that connect by numbers of queue pairs
    #[arg(long, value_name = "NAME=ADDRESS,...", num_args = 0..=1, default_missing_value = "",
          conflicts_with = "verbs", value_parser = roce)]
    roce: Option<String>,

    /// SDP over this RDMA device of the host, such as rxe0, in place of TCP
    #[arg(long, value_name = "NAME", value_parser = Choice::parse)]
    device: Option<Choice>,

    /// SDP: the least call to send that is advertised to the peer, in octets [default: none]
    #[arg(long, value_name = "OCTETS|all|none", value_parser = threshold)]
    zcopy_threshold: Option<OsString>,

    /// SDP: the least call to receive that takes octets without a buffer [default: 16384]
    #[arg(long, value_name = "OCTETS|all|none", value_parser = threshold)]
    zcopy_sink_threshold: Option<OsString>,

    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the program. Returns only if that fails.
pub(crate) fn run(args: &RunArgs, verbose: u8) -> Result<(), Failure> {
    args.check_name()?;
    args.check_device()?;
    let policy = args.policy.as_deref().map(checked).transpose()?;
    args.check_thresholds(policy.as_ref().map(|(_, policy)| policy))?;
    if let Some(fault) = sdp::faults().next() {
        return Err(Failure::usage(fault.to_string()).remedy(fault.remedy()));
    }
    if let Some(fault) = placement::faults().first() {
        return Err(Failure::usage(fault.to_string()).remedy(fault.remedy()));
    }
    args.check_environment()?;
    if args.has_verbs() {
        check_verbs()?;
    }
    let (name, arguments) = args.command.split_first().ok_or_else(|| Failure::usage("no program"))?;
    let path = program::find(name)?;
    let device = args.device.as_ref().map(usable).transpose()?;
    let mut command = process::Command::new(&path);
    command.arg0(name).args(arguments);
    if args.does_nothing() {
        complain!(
            "rddp: nothing says which connections are to be switched: {} runs in plain TCP unless it asks for DDPMODE itself \
             (try: rddp run --ddp, --sdp, --both or --policy FILE)",
            name.display()
        );
    }
    let mut preloaded = Vec::new();
    if args.switches_sockets(policy.as_ref().map(|(_, policy)| policy)) {
        preloaded.push(Library::Sockets.find()?);
        program::takes_library(&path, Library::Sockets)?;
    }
    if args.has_verbs() {
        let library = verbs::library()?;
        let loads = program::takes_library(&path, Library::Verbs)?;
        verbs::refuse_own_copy(&loads)?;
        if let Some(real) = verbs::by_rpath(&loads) {
            let (program, real) = (loads.display(), real.display());
            complain!(
                "rddp: {program} has an RPATH to {real}: what it looks up there at run time is not rddp's"
            );
        }
        command.env("LD_LIBRARY_PATH", verbs::search_path(&verbs::folder_of_links(&library)?));
        preloaded.push(library);
    }
    if let Some(list) = &args.roce {
        preloaded.push(Library::Paths.find()?);
        command.env(RoceDevice::VARIABLE, list);
        command.env(RoceDevice::PATHS, paths::tree(&devices(list)?)?);
    }
    command.env("LD_PRELOAD", preload(preloaded));
    if policy.is_some() || args.family().is_some() {
        command.env_remove(switch::POLICY).env_remove(switch::FAMILY);
    }
    command.envs(policy.map(|(path, _)| (switch::POLICY, path.into_os_string())));
    command.envs(args.family().map(|family| (switch::FAMILY, OsString::from(family.word()))));
    command.envs(device.map(|name| (sdp::DEVICE, name)));
    command.envs(args.zcopy_threshold.as_ref().map(|octets| (sdp::SOURCE_THRESHOLD, octets)));
    command.envs(args.zcopy_sink_threshold.as_ref().map(|octets| (sdp::SINK_THRESHOLD, octets)));
    command.envs(logging::of_program(verbose).map(|filter| (rddp_log::VARIABLE, filter)));
    let error = command.exec();
    Err(Failure::new(FailureKind::CannotRun, format!("{}: {error}", path.display())))
}

/// Returns the name of a device that can be opened: the program would learn of it by an errno.
fn usable(device: &Choice) -> Result<String, Failure> {
    Ok(device.open()?.device().to_owned())
}

impl RunArgs {
    /// Returns whether the verbs' libraries are to be replaced.
    fn has_verbs(&self) -> bool {
        self.verbs || self.roce.is_some()
    }

    /// Returns whether neither an option nor the environment says what to do.
    fn does_nothing(&self) -> bool {
        let is_asked = self.has_verbs() || self.policy.is_some() || self.family().is_some();
        !is_asked && switch::of_environment().is_none()
    }

    /// Returns whether the socket switch is to be loaded: under `--verbs` only if asked for.
    fn switches_sockets(&self, policy: Option<&Policy>) -> bool {
        let of_file = policy.is_some_and(Policy::has_rules);
        let asked = self.family().is_some() || of_file;
        // The environment's policy counts where no option has taken its place.
        let of_environment = || switch::of_environment().is_some_and(|policy| policy.has_rules());
        !self.has_verbs() || asked || policy.is_none() && of_environment()
    }

    fn family(&self) -> Option<Family> {
        match self {
            RunArgs { ddp: true, .. } => Some(Family::Ddp),
            RunArgs { sdp: true, .. } => Some(Family::Sdp),
            RunArgs { sdp_or_tcp: true, .. } => Some(Family::SdpOrTcp),
            RunArgs { both: true, .. } => Some(Family::Both),
            RunArgs { tcp: true, .. } => Some(Family::Tcp),
            _ => None,
        }
    }

    /// Refuses an option that there is not, which stands where the program's name does.
    fn check_name(&self) -> Result<(), Failure> {
        let Some(word) = self.command.first().filter(|name| name.as_encoded_bytes().starts_with(b"-")) else {
            return Ok(());
        };
        let word = word.to_string_lossy();
        let (typed, _) = word.split_once('=').unwrap_or((&word, ""));
        let ours = Self::augment_args(clap::Command::new("run"));
        let options = ours.get_arguments().filter_map(clap::Arg::get_long).map(|name| format!("--{name}"));
        let nearest = options.map(|name| (strsim::osa_distance(&name, typed), name)).min();
        Err(match nearest {
            Some((distance, name)) if distance <= typed.len() / 4 + 1 => {
                Failure::usage(format!("unknown option {word}: did you mean {name}?"))
            }
            _ => Failure::usage(format!("unknown option {word}"))
                .remedy("rddp run --help lists the options; a program is named behind them"),
        })
    }

    /// Refuses the word by which other commands look for a device.
    fn check_device(&self) -> Result<(), Failure> {
        if self.device != Some(Choice::Auto) {
            return Ok(());
        }
        let what = "--device auto: a program has many peers, and none yet that a device could lead to";
        Err(Failure::usage(what).remedy("name the device, as in --device rxe0: rddp doctor lists them"))
    }

    /// Refuses a policy or a family of the environment that makes no sense, where it counts: the
    /// library would report it, and leave the program in plain TCP.
    fn check_environment(&self) -> Result<(), Failure> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if self.policy.is_some() || self.family().is_some() {
            return Ok(());
        }
        if let Some(path) = variable(switch::POLICY) {
            return checked(Path::new(&path)).map(drop);
        }
        let word = variable(switch::FAMILY);
        match word.filter(|word| word.to_str().and_then(Policy::family_of).is_none()) {
            Some(word) => Err(Failure::usage(format!("{}={}: not a family", switch::FAMILY, word.display()))
                .remedy("it is one of ddp, sdp, both, sdp-or-tcp and tcp")),
            None => Ok(()),
        }
    }

    /// Refuses a device and thresholds of SDP where neither an option nor the policy gives any
    /// connection SDP.
    fn check_thresholds(&self, policy: Option<&Policy>) -> Result<(), Failure> {
        let (option, variable) = match self {
            // Sockets that the program itself makes SDP's go over TCP.
            RunArgs { device: Some(_), .. } => ("--device", None),
            RunArgs { zcopy_threshold: Some(_), .. } => ("--zcopy-threshold", Some(sdp::SOURCE_THRESHOLD)),
            RunArgs { zcopy_sink_threshold: Some(_), .. } => {
                ("--zcopy-sink-threshold", Some(sdp::SINK_THRESHOLD))
            }
            _ => return Ok(()),
        };
        let gives_sdp = match (self.family(), policy) {
            (Some(family), _) => family.may_be_sdp(),
            (None, Some(policy)) => policy.may_give_sdp(),
            (None, None) => switch::of_environment().is_some_and(|policy| policy.may_give_sdp()),
        };
        if gives_sdp {
            return Ok(());
        }
        let what = format!("{option} is SDP's, and no connection of this program would speak SDP");
        let instead = variable.map_or(String::new(), |variable| {
            format!("; for a program that asks for SDP itself, set {variable} instead")
        });
        Err(Failure::usage(what).remedy(format!("add --sdp or --sdp-or-tcp{instead}")))
    }
}

/// Refuses settings of RDMA connections that make no sense, where the environment has them: with
/// those the device would not open. One that there is not would have no effect.
fn check_verbs() -> Result<(), Failure> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let known = || VerbsSettings::variables().chain([FaultRule::VARIABLE]);
    let unknown = |name: &String| name.starts_with("RDDP_VERBS_") && known().all(|known| known != name);
    if let Some(name) = names.into_iter().find(unknown) {
        let nearest = known().min_by_key(|known| strsim::osa_distance(known, &name));
        let remedy = nearest.map(|nearest| format!("{nearest}, or unset it")).unwrap_or_default();
        return Err(Failure::usage(format!("{name}: there is no such setting")).remedy(remedy));
    }
    let variable = |name: &str| std::env::var_os(name).map(OsString::into_vec);
    let (_, faults) = VerbsSettings::of_variables(variable);
    let strict = VerbsSettings::is_strict(variable);
    if let Some(fault) = faults.first().or(strict.as_ref().err()) {
        return Err(Failure::usage(fault.to_string()).remedy(fault.remedy()));
    }
    let rules = std::env::var(FaultRule::VARIABLE).unwrap_or_default();
    match FaultRule::list(&rules).1.first() {
        Some(bad) => Err(Failure::usage(format!("{}: {bad}", FaultRule::VARIABLE)).remedy(bad.remedy())),
        None => Ok(()),
    }
}

/// Returns the devices of a list.
pub(crate) fn devices(list: &str) -> Result<Vec<RoceDevice>, Failure> {
    RoceDevice::list(list).map_err(|fault| Failure::usage(fault.to_string()).remedy(RoceFault::REMEDY))
}

/// Checks a list of devices.
pub(crate) fn roce(list: &str) -> Result<String, String> {
    match RoceDevice::list(list) {
        Ok(_) => Ok(list.to_owned()),
        Err(fault) => Err(format!("{fault}; {}", RoceFault::REMEDY)),
    }
}

/// Checks a threshold, and returns it as the library takes it.
fn threshold(word: &str) -> Result<OsString, String> {
    let known = Thresholds::of_word(word).is_some();
    known.then(|| word.into()).ok_or_else(|| "not a number of octets, all or none".to_owned())
}

/// Checks the policy, and returns it behind its path in a form that is valid wherever the program
/// goes.
fn checked(path: &Path) -> Result<(PathBuf, Policy), Failure> {
    let unreadable = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let octets = std::fs::read(path).map_err(unreadable)?;
    let (policy, faults) = Policy::parse(&octets);
    let told =
        |fault: &BadLine| Failure::usage(format!("{}: {fault}", path.display())).remedy(fault.remedy());
    let Some((last, others)) = faults.split_last() else {
        return Ok((path.canonicalize().map_err(unreadable)?, policy));
    };
    for fault in others {
        told(fault).report();
    }
    Err(told(last))
}

/// Returns the value of `LD_PRELOAD`: our libraries first, then what the environment had.
fn preload(ours: Vec<PathBuf>) -> OsString {
    let others = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty());
    let all: Vec<_> = ours.into_iter().map(PathBuf::into_os_string).chain(others).collect();
    all.join(OsStr::new(":"))
}
