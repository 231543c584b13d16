//! Options that programs written for SDP in the kernel set, on sockets of kind sdp alone.
//!
//! Two generations of that code had numbers of their own: the later has them among those of TCP,
//! where Linux uses none of them, the earlier at a level of its own.

use std::ffi::c_int;

use libc::IPPROTO_TCP;
use rddp_policy::NO_THRESHOLD;
use rddp_real::Value;
use rddp_stream::Errno;

use super::settings::{KindId, Mode, Settings};

/// `SDP_ZCOPY_THRESH` at the level of TCP: 0 off, -1 the default, or a page to a mebibyte.
const SDP_ZCOPY_THRESH: c_int = 80;
/// `SDP_LAST_BIND_ERR` at the level of TCP: the errno of the last `bind`, for reading.
const SDP_LAST_BIND_ERR: c_int = 81;
/// The level of the earlier options.
const SOL_SDP: c_int = 1025;
/// Both thresholds.
const SDP_ZCOPY_THRSH: c_int = 256;
/// The threshold of the source.
const SDP_ZCOPY_THRSH_SRC: c_int = 257;
/// The threshold of the sink.
const SDP_ZCOPY_THRSH_SNK: c_int = 258;

const PAGE: c_int = 4096;
const LARGEST: c_int = 1 << 20;

/// Sets one of these options; `None`: it is none of them.
pub fn set(settings: &mut Settings, level: c_int, name: c_int, octets: &[u8]) -> Option<Result<(), Errno>> {
    if !has_them(settings) {
        return None;
    }
    let (source, sink) = match (level, name) {
        (IPPROTO_TCP, SDP_ZCOPY_THRESH) | (SOL_SDP, SDP_ZCOPY_THRSH) => (true, true),
        (SOL_SDP, SDP_ZCOPY_THRSH_SRC) => (true, false),
        (SOL_SDP, SDP_ZCOPY_THRSH_SNK) => (false, true),
        (IPPROTO_TCP, SDP_LAST_BIND_ERR) => return Some(Err(Errno(libc::ENOPROTOOPT))),
        _ => return None,
    };
    Some(threshold(octets).map(|threshold| {
        let sdp = &mut settings.sdp;
        sdp.source = if source { threshold } else { sdp.source };
        sdp.sink = if sink { threshold } else { sdp.sink };
    }))
}

/// Returns the value of one of these options; `None`: it is none of them.
pub fn get(settings: &Settings, level: c_int, name: c_int) -> Option<Value> {
    let value = |threshold: u32| if threshold == NO_THRESHOLD { 0 } else { threshold.cast_signed() };
    let answer = match (level, name) {
        (IPPROTO_TCP, SDP_ZCOPY_THRESH) | (SOL_SDP, SDP_ZCOPY_THRSH | SDP_ZCOPY_THRSH_SRC) => {
            value(settings.sdp.source())
        }
        (SOL_SDP, SDP_ZCOPY_THRSH_SNK) => value(settings.sdp.sink()),
        // There is no second `bind` behind the program's.
        (IPPROTO_TCP, SDP_LAST_BIND_ERR) => 0,
        _ => return None,
    };
    has_them(settings).then(|| Value::int(answer))
}

fn has_them(settings: &Settings) -> bool {
    settings.kind == KindId::Sdp && settings.mode != Mode::Off
}

fn threshold(octets: &[u8]) -> Result<Option<u32>, Errno> {
    let octets = octets.first_chunk().ok_or(Errno::INVALID)?;
    match c_int::from_ne_bytes(*octets) {
        0 => Ok(Some(NO_THRESHOLD)),
        -1 => Ok(None),
        value if (PAGE..=LARGEST).contains(&value) => Ok(Some(value.cast_unsigned())),
        _ => Err(Errno::INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sdp() -> Settings {
        Settings { kind: KindId::Sdp, mode: Mode::Asked, ..Settings::default() }
    }

    #[test]
    fn the_threshold_of_the_kernel_s_sdp_has_its_range() {
        let mut settings = sdp();
        let mut to = |value: c_int| set(&mut settings, IPPROTO_TCP, 80, &value.to_ne_bytes()).unwrap();
        assert_eq!([to(4096), to(1 << 20), to(0), to(-1)], [Ok(()); 4]);
        for wrong in [1, 4095, (1 << 20) + 1, -2] {
            assert_eq!(to(wrong), Err(Errno::INVALID), "{wrong}");
        }
        to(65536).unwrap();
        assert_eq!((settings.sdp.source, settings.sdp.sink), (Some(65536), Some(65536)));
        assert_eq!(get(&settings, IPPROTO_TCP, 80), Some(Value::int(65536)));
        assert_eq!(set(&mut settings, IPPROTO_TCP, 80, &[0; 3]), Some(Err(Errno::INVALID)));
        set(&mut settings, IPPROTO_TCP, 80, &0i32.to_ne_bytes()).unwrap().unwrap();
        assert_eq!(get(&settings, IPPROTO_TCP, 80), Some(Value::int(0)), "0 is off");
    }

    #[test]
    fn source_and_sink_have_numbers_of_their_own_at_the_earlier_level() {
        let mut settings = sdp();
        set(&mut settings, SOL_SDP, 257, &8192i32.to_ne_bytes()).unwrap().unwrap();
        set(&mut settings, SOL_SDP, 258, &16384i32.to_ne_bytes()).unwrap().unwrap();
        assert_eq!((settings.sdp.source, settings.sdp.sink), (Some(8192), Some(16384)));
        assert_eq!(get(&settings, SOL_SDP, 258), Some(Value::int(16384)));
        assert_eq!(set(&mut settings, SOL_SDP, 259, &[0; 4]), None, "UNBIND is not there");
    }

    #[test]
    fn other_sockets_have_none_of_these_options() {
        for settings in [
            Settings { kind: KindId::Framed, mode: Mode::Asked, ..Settings::default() },
            Settings { kind: KindId::Sdp, mode: Mode::Off, ..Settings::default() },
        ] {
            assert_eq!(set(&mut settings.clone(), IPPROTO_TCP, 80, &[0; 4]), None);
            assert_eq!(get(&settings, IPPROTO_TCP, 80), None);
            assert_eq!(get(&settings, IPPROTO_TCP, 81), None);
        }
        assert_eq!(get(&sdp(), IPPROTO_TCP, 81), Some(Value::int(0)));
        assert_eq!(set(&mut sdp(), IPPROTO_TCP, 81, &[0; 4]), Some(Err(Errno(libc::ENOPROTOOPT))));
    }
}
