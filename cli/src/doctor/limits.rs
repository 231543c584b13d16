//! The resource limits of this process.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t};
use rddp_command::failure::Failure;
use rddp_command::units::about;

use super::finding::{Finding, Level, Topic};

/// Numbers of descriptors: needed by the command itself, and desirable for a server with many
/// clients.
const FEW: rlim_t = 64;
const MANY: rlim_t = 4096;

pub(super) fn inspect() -> Result<Vec<Finding>, Failure> {
    let limit = |resource, name: &str| {
        getrlimit(resource)
            .map_err(|error| Failure::failed(format!("asking for the limit of {name}: {error}")))
    };
    let (soft, hard) = limit(Resource::RLIMIT_NOFILE, "open files")?;
    let (locked, _) = limit(Resource::RLIMIT_MEMLOCK, "locked memory")?;
    let (memory, _) = limit(Resource::RLIMIT_AS, "memory")?;
    Ok(vec![files(soft, hard), lockable(locked), address_space(memory)])
}

fn files(soft: rlim_t, hard: rlim_t) -> Finding {
    let takes = "each connection takes one, and each of rddp gateway six";
    let value = format!("{}, may be raised to {}; {takes}", number(soft), number(hard));
    let advice = if hard > soft && hard >= MANY {
        format!("for thousands of connections: ulimit -n {}", hard.min(65_536))
    } else {
        "for thousands of connections: LimitNOFILE= of a systemd unit, or /etc/security/limits.conf"
            .to_owned()
    };
    let level = if soft < FEW { Level::Bad } else { Level::Warn };
    Finding::ok(Topic::Limits, "open files (RLIMIT_NOFILE)", value).but_if(soft < MANY, level, advice)
}

fn lockable(soft: rlim_t) -> Finding {
    let advice = "counts for what is registered with an RDMA device (--device), and for regions that a program \
         registers locked: ulimit -l";
    Finding::ok(Topic::Limits, "locked memory (RLIMIT_MEMLOCK)", octets(soft)).but_if(
        soft != RLIM_INFINITY,
        Level::Note,
        advice,
    )
}

fn address_space(soft: rlim_t) -> Finding {
    let advice = "registered memory counts against it: ulimit -v unlimited";
    Finding::ok(Topic::Limits, "memory (RLIMIT_AS)", octets(soft)).but_if(
        soft != RLIM_INFINITY,
        Level::Note,
        advice,
    )
}

fn octets(limit: rlim_t) -> String {
    if limit == RLIM_INFINITY { "no limit".to_owned() } else { about(limit) }
}

fn number(limit: rlim_t) -> String {
    if limit == RLIM_INFINITY { "any number".to_owned() } else { limit.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_a_warning_and_very_few_are_bad() {
        let level = |soft, hard| files(soft, hard).level;
        assert_eq!(level(16, 4096), Level::Bad);
        assert_eq!(level(1024, 1_048_576), Level::Warn);
        assert_eq!(level(65_536, 65_536), Level::Ok);
        assert_eq!(level(RLIM_INFINITY, RLIM_INFINITY), Level::Ok);
        assert!(files(1024, 1_048_576).advice.unwrap().ends_with("ulimit -n 65536"));
        assert!(files(1024, 1024).value.contains("takes one, and each of rddp gateway six"));
        assert!(files(1024, 1024).advice.unwrap().contains("limits.conf"));
    }
}
