//! Private data of the startup of a queue's connection (RDMA, "Connection Establishment").

use super::octets::{le16, put};

/// Octets of what a host sends, and of what it gets when it is accepted.
pub const LEN: usize = 32;

/// The format of all of them.
const FORMAT: u16 = 0;

/// The wishes of a host (`RDMA_CM_REQUEST`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The queue's number: 0 is the admin queue.
    pub qid: u16,
    /// Answers that the host can take at a time (HRQSIZE).
    pub answers: u16,
    /// Commands that the host sends at a time, less one (HSQSIZE).
    pub commands: u16,
    /// The controller that the queue is for; 0 if the host does not say.
    pub cntlid: u16,
}

/// The answer to an accepted host (`RDMA_CM_ACCEPT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Commands that the target can take at a time (CRQSIZE).
    pub commands: u16,
}

/// The reason for which a host is rejected (`RDMA_CM_REJECT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum Refusal {
    /// Private data of another length.
    #[error("private data of another length")]
    Length = 1,
    /// A format that is not known.
    #[error("private data of a format that is not known")]
    Format = 2,
    /// A queue that there is not.
    #[error("no queue has that number")]
    Qid = 3,
    /// A number of commands that is not allowed.
    #[error("the queue has a size that is not allowed")]
    CommandQueueSize = 4,
    /// A number of answers that is not allowed.
    #[error("the host takes fewer answers than it sends commands")]
    AnswerQueueSize = 5,
    /// The target has no room now.
    #[error("no room for another queue")]
    NoResources = 6,
    /// The IRD is not allowed.
    #[error("an IRD that is not allowed")]
    Ird = 7,
    /// The ORD is not allowed.
    #[error("an ORD that is not allowed")]
    Ord = 8,
}

impl Request {
    /// Parses what a host sent.
    ///
    /// # Errors
    /// What the host is to be told as it is rejected.
    pub fn parse(octets: &[u8]) -> Result<Self, Refusal> {
        let octets: &[u8; LEN] = octets.try_into().map_err(|_| Refusal::Length)?;
        if le16(octets, 0) != FORMAT {
            return Err(Refusal::Format);
        }
        Ok(Request {
            qid: le16(octets, 2),
            answers: le16(octets, 4),
            commands: le16(octets, 6),
            cntlid: le16(octets, 8),
        })
    }

    /// Returns the octets.
    #[must_use]
    pub fn emit(&self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        for (at, value) in [FORMAT, self.qid, self.answers, self.commands, self.cntlid].iter().enumerate() {
            put(&mut octets, 2 * at, value.to_le_bytes());
        }
        octets
    }
}

impl Reply {
    /// Parses what a target sent; `None` if it makes no sense.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let has_format = octets.len() >= 4 && le16(octets, 0) == FORMAT;
        has_format.then(|| Reply { commands: le16(octets, 2) })
    }

    /// Returns the octets.
    #[must_use]
    pub fn emit(&self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        put(&mut octets, 2, self.commands.to_le_bytes());
        octets
    }
}

impl Refusal {
    /// Parses what a target sent; `None` if it makes no sense.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        use Refusal::*;
        let all = [Length, Format, Qid, CommandQueueSize, AnswerQueueSize, NoResources, Ird, Ord];
        let has_format = octets.len() >= 4 && le16(octets, 0) == FORMAT;
        all.into_iter().find(|refusal| has_format && *refusal as u16 == le16(octets, 2))
    }

    /// Returns the octets.
    #[must_use]
    pub fn emit(&self) -> [u8; 4] {
        let [low, high] = (*self as u16).to_le_bytes();
        [0, 0, low, high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMA, "Connection Establishment": the octets as they are there.
    #[test]
    fn private_data_are_written_as_the_specification_has_them() {
        let request = Request { qid: 1, answers: 128, commands: 127, cntlid: 0x0203 };
        let octets = request.emit();
        assert_eq!(octets[..10], [0, 0, 1, 0, 128, 0, 127, 0, 3, 2]);
        assert_eq!(Request::parse(&octets), Ok(request));
        let reply = Reply { commands: 128 };
        assert_eq!((reply.emit()[2], Reply::parse(&reply.emit())), (128, Some(reply)));
        assert_eq!(Refusal::Qid.emit(), [0, 0, 3, 0]);
        for code in 0..=9 {
            let known = (1..=8).contains(&code);
            assert_eq!(Refusal::parse(&[0, 0, code, 0]).is_some(), known, "{code}");
        }
    }

    #[test]
    fn private_data_that_make_no_sense_are_refused() {
        assert_eq!(Request::parse(b""), Err(Refusal::Length));
        assert_eq!(Request::parse(&[0; LEN + 1]), Err(Refusal::Length));
        assert_eq!(Request::parse(&[1; LEN]), Err(Refusal::Format));
        assert_eq!((Reply::parse(b"\0\0\x01"), Refusal::parse(b"")), (None, None));
        assert_eq!((Reply::parse(&[1; LEN]), Refusal::parse(&[1; 4])), (None, None));
    }
}
