//! Files that change at random moments while they are got: the right octets arrive, or an error
//! that names the file.
//!
//! `RDDP_TROUBLES=1000` has a thousand runs in place of 60, and `RDDP_TROUBLE=SEED` one.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::unistd::{Whence, lseek64};
use rddp_test_support::{Random, random_octets};

use crate::program::{Ended, command, until};
use crate::site::Site;
use crate::strategies::STRATEGIES;

/// A version of a file: its size, and the octets that are not 0, by blocks of 64 KiB.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    size: u64,
    blocks: Vec<(u64, u64)>,
}

const BLOCK: usize = 64 << 10;

impl Contents {
    /// Reads a file; `None` if there is none. Of holes nothing is read.
    fn of(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let size = file.metadata().unwrap().len();
        let (mut blocks, mut at) = (Vec::new(), 0);
        while let Ok(data) = lseek64(file.as_fd(), at, Whence::SeekData) {
            let start = data as u64 / BLOCK as u64 * BLOCK as u64;
            let mut octets = vec![0; BLOCK.min((size - start) as usize)];
            file.read_exact_at(&mut octets, start).unwrap();
            if octets.iter().any(|octet| *octet != 0) {
                let mut hasher = DefaultHasher::new();
                octets.hash(&mut hasher);
                blocks.push((start, hasher.finish()));
            }
            at = (start + BLOCK as u64) as i64;
        }
        Some(Contents { size, blocks })
    }
}

/// Makes a file of one of the kinds that are special to some strategy.
fn make(path: &Path, random: &mut Random) {
    let seed = random.number();
    let long = 1 << 20 | random.below(3 << 20);
    let kind = random.below(8);
    let octets = match kind {
        0 => Vec::new(),
        1 => random_octets(seed, 1 + random.below(100)),
        2 => random_octets(seed, (16 << 10) + random.below(2)),
        _ => random_octets(seed, long),
    };
    let file = File::create(path).unwrap();
    match kind {
        3 => {
            file.write_all_at(&octets[..BLOCK], 0).unwrap();
            file.write_all_at(&octets[..1], 4 << 30).unwrap();
        }
        4 => {
            for at in (0..octets.len() - 4096).step_by(3 * 4096) {
                file.write_all_at(&octets[at..at + 4096], at as u64).unwrap();
            }
            file.set_len(octets.len() as u64 + 100_000).unwrap();
        }
        _ => file.write_all_at(&octets, 0).unwrap(),
    }
}

/// Changes a file in one of the ways in which files change, by one call.
fn trouble(path: &Path, random: &mut Random) -> &'static str {
    let open = || File::options().write(true).open(path).unwrap();
    let len = fs::metadata(path).unwrap().len();
    let at = random.below(len.min(3 << 20) as usize) as u64;
    match random.below(7) {
        0 => "nothing",
        1 => {
            open().set_len(at).unwrap();
            "cut short"
        }
        2 => {
            // Within a page, so that no reader sees a half of it.
            open().write_all_at(&random_octets(at, 100), at / 4096 * 4096).unwrap();
            "rewritten"
        }
        3 => {
            open().write_all_at(b"more", len).unwrap();
            "longer"
        }
        4 => {
            let new = path.with_extension("new");
            make(&new, random);
            fs::rename(new, path).unwrap();
            "replaced"
        }
        5 => {
            fs::remove_file(path).unwrap();
            "unlinked"
        }
        _ => {
            open().set_len(0).unwrap();
            "emptied"
        }
    }
}

/// Gets a file, and has trouble meanwhile; then gets it once more.
fn one(seed: u64, sites: &[(&str, Site)]) {
    let mut random = Random::new(seed);
    let (strategy, site) = &sites[seed as usize % sites.len()];
    let name = format!("trouble-{seed}");
    let (served, here) = (site.served(&name), site.here(&name));
    make(&served, &mut random);
    let before = Contents::of(&served).unwrap();
    // Of 4 GiB of zeros SHA-256 takes its time.
    let checks = if before.size < 1 << 30 { 3 } else { 2 };
    let check = ["crc32c", "none", "sha256"][random.below(checks)];
    let limit = ["8M", "50M", "10G"][random.below(3)];
    let remote = site.remote(&name);
    let args = ["get", &remote, here.to_str().unwrap(), "--checksum", check, "--limit", limit];
    let mut get = command(&args);
    let get = get.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(random.below(120) as u64));
    let what = trouble(&served, &mut random);
    let ended = Ended::from(get.wait_with_output().unwrap());
    let after = Contents::of(&served);
    let arrived = Contents::of(&here);
    let told = format!("seed {seed}, {strategy}, {check}, {limit}, {what}: {ended:?}");
    if ended.code == 0 {
        assert!(arrived.as_ref() == Some(&before) || arrived == after, "{told}");
    } else {
        assert!([1, 3, 4, 5].contains(&ended.code) && ended.stderr.contains(&name), "{told}");
        assert!(!ended.stderr.contains("panicked") && arrived.is_none(), "{told}");
        assert!(what != "nothing", "{told}");
    }
    // What has arrived of one version is no part of another.
    let ended = Ended::from(command(&args[..5]).output().unwrap());
    match after {
        Some(after) => {
            assert_eq!(ended.code, 0, "{told}, then {ended:?}");
            assert_eq!(Contents::of(&here), Some(after), "{told}");
        }
        None => assert!(ended.code == 5 && ended.stderr.contains(&name), "{told}, then {ended:?}"),
    }
    for file in [served, here] {
        let _ = fs::remove_file(file);
    }
}

/// Returns the number of files in the directory that a server serves which it has open.
fn open_files(site: &Site) -> usize {
    let fds = fs::read_dir(format!("/proc/{}/fd", site.server.as_ref().unwrap().id())).unwrap();
    let of_site = |to: &Path| to.to_string_lossy().contains("trouble-");
    fds.filter(|fd| fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| of_site(&to))).count()
}

fn seeds() -> Range<u64> {
    let of = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match (of("RDDP_TROUBLE"), of("RDDP_TROUBLES")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(60),
    }
}

#[test]
fn files_that_change_at_random_moments_arrive_whole_or_not_at_all() {
    let of = |strategy| {
        let promised: &[&str] = if strategy == "map" { &["--immutable"] } else { &[] };
        (strategy, Site::new(&[&["--strategy", strategy], promised].concat()))
    };
    let sites = STRATEGIES.map(of);
    let (seeds, next) = (seeds(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(seed) = seeds.clone().nth(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    one(seed, &sites);
                }
            });
        }
    });
    for (strategy, site) in sites {
        until("no descriptor is left", || open_files(&site) == 0);
        assert_eq!(site.server.unwrap().stop(), 0, "{strategy}");
    }
}
