//! Counters: their names, and a set of their values.

use core::fmt;

use crate::layout::COUNTS;

macro_rules! counters {
    ($($(#[$doc:meta])* $ident:ident, $name:literal, $help:literal;)*) => {
        /// A count of what a connection has done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $ident,)*
        }

        impl Counter {
            /// All counters, in the order of their places.
            pub const ALL: &'static [Counter] = &[$(Counter::$ident),*];

            /// Returns the name, as JSON and OpenMetrics have it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$ident => $name,)* }
            }

            /// Returns what is counted, in one line.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Counter::$ident => $help,)* }
            }
        }
    };
}

// The place of a counter is its place here: new ones go to the end.
counters! {
    /// Octets handed to TCP behind the startup.
    OctetsSent, "octets_sent", "Octets handed to TCP, headers and all, without the startup frames";
    /// Octets taken from TCP behind the startup.
    OctetsReceived, "octets_received", "Octets taken from TCP, headers and all, without the startup frames";
    /// FPDUs sent.
    FpdusSent, "fpdus_sent", "FPDUs sent";
    /// FPDUs received with nothing wrong in MPA.
    FpdusReceived, "fpdus_received", "FPDUs received with nothing wrong in MPA";
    /// Calls that handed octets to TCP.
    SendCalls, "send_calls", "Calls that handed octets to TCP";
    /// Calls that took octets from TCP, or found none.
    ReceiveCalls, "receive_calls", "Calls that took octets from TCP, or found none";
    /// Sends and Immediate Data of the peer that are complete.
    SendsReceived, "sends_received", "Sends of the peer that are complete, Immediate Data among them";
    /// Writes of the peer that are complete.
    WritesReceived, "writes_received", "Writes of the peer that are complete";
    /// Reads and atomics that the peer has asked for.
    ReadsReceived, "reads_received", "Reads and atomic operations that the peer has asked for";
    /// Sends and Immediate Data of this end that TCP has taken.
    SendsSent, "sends_sent", "Sends of this end that TCP has taken, Immediate Data among them";
    /// Writes of this end that TCP has taken.
    WritesSent, "writes_sent", "Writes of this end that TCP has taken";
    /// Reads of this end that are complete.
    ReadsSent, "reads_sent", "Reads of this end that are complete";
    /// Atomic operations of this end that are complete.
    AtomicsSent, "atomics_sent", "Atomic operations of this end that are complete";
    /// Windows that were bound.
    Binds, "binds", "Memory windows that this end has bound";
    /// STags that this end has invalidated by a request of its own.
    Invalidations, "invalidations", "STags that this end has invalidated by requests of its own";
    /// Requests that ended with an error of their own, and were not flushed.
    RequestsFailed, "requests_failed", "Requests of this end that failed; those flushed behind them do not count";
    /// Payload received straight into registered memory.
    OctetsPlacedDirectly, "octets_placed_directly", "Octets of payload received straight into their place";
    /// Payload that was copied before it was sent.
    OctetsCopied, "octets_copied", "Octets of payload of long segments that were copied before they were sent";
    /// Terminates sent.
    TerminatesSent, "terminates_sent", "Terminates sent";
    /// Terminates received.
    TerminatesReceived, "terminates_received", "Terminates received";
    /// Connections lost: without an end in order, and not by a Terminate.
    Lost, "lost", "Connections lost: reset by either end, or by TCP";
    /// Payload that the kernel had placed, and rightly.
    OctetsPlacedByKernel, "octets_placed_by_kernel", "Octets of payload that the kernel had put into their place";
    /// Reads of a registered file for Responses that found their octets in memory.
    FileReadsAtOnce, "file_reads_at_once", "Reads of a registered file for the peer that found the octets in memory";
    /// Reads of a registered file for Responses that other threads made.
    FileReadsByPool, "file_reads_by_pool", "Reads of a registered file for the peer that were left to other threads";
    /// Reads and atomics of the peer that came while no other was being answered.
    ReadsBeside0, "reads_beside_0", "Reads and atomic operations that came while no other was being answered";
    /// Reads and atomics of the peer that came while one other was being answered.
    ReadsBeside1, "reads_beside_1", "Reads and atomic operations that came while one other was being answered";
    /// Reads and atomics of the peer that came while two others were being answered.
    ReadsBeside2, "reads_beside_2", "Reads and atomic operations that came while two others were being answered";
    /// Reads and atomics of the peer that came while three others were being answered.
    ReadsBeside3, "reads_beside_3", "Reads and atomic operations that came while three others were being answered";
    /// Reads and atomics of the peer that came while four others were being answered.
    ReadsBeside4, "reads_beside_4", "Reads and atomic operations that came while four others were being answered";
    /// Reads and atomics of the peer that came while five others were being answered.
    ReadsBeside5, "reads_beside_5", "Reads and atomic operations that came while five others were being answered";
    /// Reads and atomics of the peer that came while six others were being answered.
    ReadsBeside6, "reads_beside_6", "Reads and atomic operations that came while six others were being answered";
    /// Reads and atomics of the peer that came while seven others, or more, were being answered.
    ReadsBeside7, "reads_beside_7", "Reads and atomic operations that came while seven others, or more were being answered";
    /// Octets of single files that `rddp serve` has given in answers.
    OctetsByAnswer, "octets_by_answer", "Octets of single files that rddp serve has given in answers";
    /// Octets of single files that `rddp serve` has given by the strategy naive.
    OctetsByNaive, "octets_by_naive", "Octets of single files that rddp serve has given by the strategy naive";
    /// Octets of single files that `rddp serve` has given by the strategy slots.
    OctetsBySlots, "octets_by_slots", "Octets of single files that rddp serve has given by the strategy slots";
    /// Octets of single files that `rddp serve` has given by the strategy pipelined.
    OctetsByPipelined, "octets_by_pipelined", "Octets of single files that rddp serve has given by the strategy pipelined";
    /// Octets of single files that `rddp serve` has given by the strategy region.
    OctetsByRegion, "octets_by_region", "Octets of single files that rddp serve has given by the strategy region";
    /// Octets of single files that `rddp serve` has given by the strategy map.
    OctetsByMap, "octets_by_map", "Octets of single files that rddp serve has given by the strategy map";
    /// Registrations for one client of `rddp serve`.
    Registrations, "registrations", "Regions that rddp serve has registered for its clients";
    /// Datagrams that were dropped here: no receive, no room in the socket, or not for the QP.
    Dropped, "dropped", "Datagrams dropped by this end: without a receive, without room in the socket, or for another queue pair";
    /// Messages of the network that datagrams have not reached their peer.
    Unreachable, "unreachable", "Messages of the network that a datagram did not reach its peer";
    /// Datagrams that were longer than the path's MTU.
    TooLongForPath, "too_long_for_path", "Datagrams longer than what the path to their peer takes";
}

impl Counter {
    /// Counters of Reads and atomics that came while so many others, or more at the end, were being
    /// answered.
    pub const READS_BESIDE: [Counter; 8] = [
        Counter::ReadsBeside0,
        Counter::ReadsBeside1,
        Counter::ReadsBeside2,
        Counter::ReadsBeside3,
        Counter::ReadsBeside4,
        Counter::ReadsBeside5,
        Counter::ReadsBeside6,
        Counter::ReadsBeside7,
    ];
}

/// Values of all counters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; COUNTS]);

impl Counts {
    /// Makes counts of words in the order of [`Counter::ALL`]; what is missing is 0.
    #[must_use]
    pub fn of_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut counts = Self::default();
        counts.0.iter_mut().zip(words).for_each(|(count, word)| *count = word);
        counts
    }

    /// Returns the words that [`of_words`](Self::of_words) takes.
    #[must_use]
    pub fn words(&self) -> &[u64; COUNTS] {
        &self.0
    }

    /// Returns the value of a counter.
    #[must_use]
    pub fn of(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Sets the value of a counter.
    pub fn set(&mut self, counter: Counter, value: u64) {
        self.0[counter as usize] = value;
    }

    /// Adds the values of others; beyond 2^64 they begin anew, as each does.
    pub fn add(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(count, other)| *count = count.wrapping_add(other));
    }

    /// Returns by how much these have grown since `before`; 0 where they have begun anew.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self::of_words(self.0.iter().zip(before.0).map(|(now, then)| now.saturating_sub(then)))
    }

    /// Returns all counters with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|counter| (*counter, self.of(*counter)))
    }
}

impl Default for Counts {
    fn default() -> Self {
        Counts([0; COUNTS])
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|(_, value)| *value > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A QP of the same number may be another one, with counters of its own.
    #[test]
    fn counters_that_have_begun_anew_have_not_grown() {
        let [mut before, mut now] = [Counts::default(); 2];
        before.set(Counter::OctetsSent, 5);
        now.set(Counter::OctetsSent, 3);
        before.set(Counter::OctetsReceived, 5);
        now.set(Counter::OctetsReceived, 9);
        let since = now.since(&before);
        assert_eq!((since.of(Counter::OctetsSent), since.of(Counter::OctetsReceived)), (0, 4));
    }
}
