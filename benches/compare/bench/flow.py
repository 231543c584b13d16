"""Bandwidth of a slice, and the processor time that it took."""

from dataclasses import dataclass


@dataclass
class Flow:
    """One slice of bandwidth."""

    # Octets a second.
    rate: float
    # Seconds of processor time for an octet: of the end whose memory the octets leave, and of the
    # other.
    sender: float
    receiver: float

    @classmethod
    def of(cls, report, op):
        """Takes the instrument's report about a slice of that operation."""
        sender, receiver = ("passive", "active") if op == "read" else ("active", "passive")
        costs = (report[end]["cpu_s"] / report["octets"] for end in (sender, receiver))
        return cls(report["octets"] / report["seconds"], *costs)

    @property
    def cost(self):
        """Returns the processor time of both ends."""
        return self.sender + self.receiver
