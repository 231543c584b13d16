//! Names of what events and Terminates tell, for programs to print.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use rddp_rnic::TerminateCode;

use super::event::{CLOSED, CONNECTED, LIMIT, REQUESTED};
use super::work::op;

/// Returns the name of a kind of events: `ddp_kind_name`. Messages have the names of RFC 5040 §1.2
/// and RFC 7306.
#[must_use]
pub fn kind(kind: u32) -> &'static CStr {
    match kind {
        op::RECEIVE => c"Receive",
        op::SEND => c"Send",
        op::SEND_INVALIDATE => c"Send with Invalidate",
        op::WRITE => c"RDMA Write",
        op::WRITE_IMMEDIATE => c"RDMA Write with Immediate Data",
        op::IMMEDIATE => c"Immediate Data",
        op::READ => c"RDMA Read",
        op::READ_INVALIDATE => c"RDMA Read with Local Invalidate",
        op::FETCH_ADD => c"FetchAdd",
        op::CMP_SWAP => c"CmpSwap",
        op::BIND => c"Bind",
        op::INVALIDATE => c"Local Invalidate",
        CONNECTED => c"connected",
        CLOSED => c"closed",
        REQUESTED => c"connection requested",
        LIMIT => c"limit of shared receives",
        _ => c"unknown event",
    }
}

/// Returns what a status means in an event of this kind: `ddp_strerror`. `None`: an errno with no
/// meaning of its own here.
#[must_use]
pub fn status(kind: u32, status: i32) -> Option<&'static CStr> {
    if status == 0 {
        return Some(c"success");
    }
    match kind {
        op::RECEIVE..=op::INVALIDATE => of_work(status),
        _ => of_end(status),
    }
}

fn of_work(status: i32) -> Option<&'static CStr> {
    Some(match status {
        libc::EFAULT => c"memory of the work was deregistered or invalidated meanwhile",
        libc::EOPNOTSUPP => c"not allowed on this connection",
        libc::EACCES => c"the bind or invalidation was refused",
        libc::EMSGSIZE => c"the receive was too short for the message",
        libc::EPERM => c"the peer named an STag that it may not invalidate",
        libc::EREMOTEIO => c"the peer refused the Read or atomic",
        libc::ECANCELED => c"the connection ended first",
        _ => return None,
    })
}

fn of_end(status: i32) -> Option<&'static CStr> {
    Some(match status {
        libc::ECONNREFUSED => c"refused, by TCP or by the peer's program",
        libc::ETIMEDOUT => c"no answer in time",
        libc::EPROTO => c"the peer broke a rule of iWARP",
        libc::EPROTONOSUPPORT => c"the peer does not speak MPA",
        libc::EREMOTEIO => c"the peer sent a Terminate",
        libc::ECONNRESET => c"TCP lost the connection, or the peer closed over outstanding work",
        libc::ECONNABORTED => {
            c"closed by this end over outstanding work, or because a work of its own failed"
        }
        libc::EIO => c"a defect of the library, or a descriptor of its own that the program has closed",
        libc::ECANCELED => c"given up or rejected by this end",
        _ => return None,
    })
}

/// Returns layer, error type and error code of a Terminate in words (RFC 5040 §4.8, RFC 5041 §7.2,
/// RFC 5044 chapter 8): `ddp_terminate_name`.
#[must_use]
pub fn terminate(code: u32) -> &'static CStr {
    static NAMES: OnceLock<Vec<(TerminateCode, CString)>> = OnceLock::new();
    let Ok(code) = u16::try_from(code).map(TerminateCode) else { return c"none" };
    let names = NAMES.get_or_init(terminates);
    match names.iter().find(|(known, _)| *known == code) {
        Some((_, name)) => name,
        None => of_no_table(code),
    }
}

fn terminates() -> Vec<(TerminateCode, CString)> {
    let all = TerminateCode::ALL.iter();
    all.map(|code| (*code, CString::new(words(*code)).unwrap_or_default())).collect()
}

fn words(code: TerminateCode) -> String {
    match code.name() {
        // The code octet of a local catastrophic error means nothing: the type is all.
        Some(name) if !is_local_catastrophic(code) => format!("{}: {name}", code.kind()),
        _ => code.kind().to_owned(),
    }
}

fn is_local_catastrophic(code: TerminateCode) -> bool {
    code.etype() == 0 && code.layer() < 2
}

fn of_no_table(code: TerminateCode) -> &'static CStr {
    match (code.layer(), code.etype()) {
        (0, 0) => c"RDMAP local catastrophic error",
        (0, 1) => c"RDMAP remote protection error: unknown code",
        (0, 2) => c"RDMAP remote operation error: unknown code",
        (0, _) => c"RDMAP error of an unknown type",
        (1, 0) => c"DDP local catastrophic error",
        (1, 1) => c"DDP tagged buffer error: unknown code",
        (1, 2) => c"DDP untagged buffer error: unknown code",
        (1, _) => c"DDP error of an unknown type",
        (2, 0) => c"MPA error: unknown code",
        (2, _) => c"LLP error of an unknown type",
        _ => c"error of an unknown layer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(code: u32) -> &'static str {
        terminate(code).to_str().unwrap()
    }

    #[test]
    fn a_terminate_is_named_by_layer_type_and_code() {
        // RFC 5040 §4.8 Figure 9, RFC 5041 §7.2, RFC 5044 chapter 8
        assert_eq!(show(0x0101), "RDMAP remote protection error: base or bounds violation");
        assert_eq!(show(0x1203), "DDP untagged buffer error: invalid MSN, MSN range is not valid");
        assert_eq!(show(0x2002), "MPA error: MPA CRC error");
        assert_eq!(show(0x0000), "RDMAP local catastrophic error");
        for code in TerminateCode::ALL {
            assert_eq!(show(code.0.into()), words(*code));
        }
    }

    #[test]
    fn a_terminate_of_no_table_is_named_as_far_as_it_is_known() {
        for code in 0..=u16::MAX {
            let code = TerminateCode(code);
            if code.name().is_none() && !matches!((code.layer(), code.etype()), (0..2, 3..) | (2, 1..)) {
                assert!(show(code.0.into()).starts_with(code.kind()), "{code}");
            }
        }
        assert_eq!(show(0x0042), "RDMAP local catastrophic error");
        assert_eq!(show(0x0301), "RDMAP error of an unknown type");
        assert_eq!(show(0x1_0000), "none");
        assert_eq!(show(u32::MAX), "none"); // -1, as `ddp_info` has it
    }

    #[test]
    fn a_status_means_what_it_means_for_its_kind() {
        let shown = |kind, errno| status(kind, errno).map(|name| name.to_str().unwrap());
        assert_eq!(shown(op::READ, libc::EREMOTEIO), Some("the peer refused the Read or atomic"));
        assert_eq!(shown(CLOSED, libc::EREMOTEIO), Some("the peer sent a Terminate"));
        assert_eq!(shown(op::SEND, libc::ECANCELED), Some("the connection ended first"));
        assert_eq!(shown(CLOSED, 0), Some("success"));
        assert_eq!(shown(CLOSED, libc::EHOSTUNREACH), None);
    }
}
