//! The contents of an epoll set, as `/proc` shows them.

use std::ffi::c_int;

use rddp_stream::SameErrno;

/// Returns the data that the set `epoll` has for the descriptor `fd`. Leaves errno as it was.
pub(super) fn data(epoll: c_int, fd: c_int) -> Option<u64> {
    let _same = SameErrno::here();
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).ok()?;
    text.lines().find_map(|line| data_of(line, fd))
}

/// Reads the data from a line like `tfd:        5 events:       19 data: 123456789abcdef0 pos:0
/// ino:1 sdev:9`.
fn data_of(line: &str, fd: c_int) -> Option<u64> {
    let mut words = line.strip_prefix("tfd:")?.split_whitespace();
    if words.next()?.parse() != Ok(fd) {
        return None;
    }
    let data = words.skip_while(|word| *word != "data:").nth(1)?;
    u64::from_str_radix(data, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::data_of;

    #[test]
    fn a_line_of_fdinfo_is_parsed() {
        let line = "tfd:       12 events:       19 data: 81234567abcdef01  pos:0 ino:1d60 sdev:8";
        assert_eq!(data_of(line, 12), Some(0x8123_4567_abcd_ef01));
        assert_eq!(data_of(line, 1), None);
        assert_eq!(data_of("pos:\t0", 0), None);
    }
}
