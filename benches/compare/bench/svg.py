"""Line charts over message size, as SVG."""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 518
# Margins of the plot: left, top (two lines of legend), right, bottom.
LEFT, TOP, RIGHT, BOTTOM = 96, 96, 24, 62
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
INK, FAINT, GRID = "#24292f", "#57606a", "#e6e8eb"

# Style of each line, the same on all charts: colour, dashes, marker. Colours that the
# colour-blind tell apart.
STYLES = {
    "TCP": ("#57606a", "", "square"),
    "rddp Write": ("#0072b2", "", "circle"),
    "rddp Write, CRC off": ("#56b4e9", "6 4", "circle"),
    "rddp Send": ("#0072b2", "", "circle"),
    "rddp Send, CRC off": ("#56b4e9", "6 4", "circle"),
    "libfabric tcp": ("#d55e00", "", "diamond"),
    "UCX tcp": ("#009e73", "", "triangle"),
    "TCP, polling": ("#57606a", "", "square"),
    "polling, CRC on": ("#0072b2", "", "circle"),
    "polling, CRC off": ("#0072b2", "6 4", "circle"),
    "TCP, blocking": ("#57606a", "6 4", "diamond"),
    "blocking, CRC on": ("#d55e00", "", "diamond"),
    "blocking on two processors, CRC on": ("#d55e00", "2 3", "diamond"),
    "threads, CRC on": ("#009e73", "", "triangle"),
    "threads on two processors, CRC on": ("#009e73", "2 3", "triangle"),
    "DDPMODE": ("#009e73", "", "triangle"),
    "in-call BCopy": ("#0072b2", "", "circle"),
    "SDP, threshold infinity": ("#0072b2", "", "circle"),
    "private BCopy": ("#56b4e9", "6 4", "circle"),
    "ZCopy": ("#d55e00", "", "diamond"),
    "SDP, threshold 0": ("#d55e00", "", "diamond"),
    "default": ("#cc79a7", "6 4", "triangle"),
    "placed at user level": ("#0072b2", "", "circle"),
    "placed in the kernel behind holes": ("#d55e00", "", "diamond"),
    "placed in the kernel": ("#009e73", "6 4", "triangle"),
    "the report's": ("#cc79a7", "2 3", "square"),
    "latency, on one processor, asleep": ("#0072b2", "", "circle"),
    "latency, each on its own, polling": ("#0072b2", "6 4", "circle"),
    "bandwidth, on one processor, asleep": ("#d55e00", "", "diamond"),
    "bandwidth, each on its own, polling": ("#d55e00", "6 4", "diamond"),
}
OTHER = ("#cc79a7", "2 3", "circle")


@dataclass
class Chart:
    title: str
    subtitle: str
    y_title: str
    # name -> [(size, value)]
    lines: dict
    x_name: callable
    y_name: callable
    log_y: bool = True
    # The axis does not begin at zero, but leaves as much space as there is around this value.
    around: float | None = None
    x_title: str = "message size"

    def draw(self):
        self.scale = self.make_scale()
        parts = [self.frame(), self.y_axis(), self.x_axis(), self.legend()]
        # TCP is drawn last, on top, because the others are compared with it.
        for name in sorted(self.lines, key=lambda name: name == "TCP"):
            parts.append(self.line(name))
        return "\n".join([*parts, "</svg>", ""])

    def make_scale(self):
        sizes = [size for points in self.lines.values() for size, _ in points]
        values = [value for points in self.lines.values() for _, value in points]
        low, high = self.log_range(values) if self.log_y else self.range(values)
        return Scale(min(sizes), max(sizes), low, high, self.log_y)

    def range(self, values):
        if self.around is None:
            return 0.0, nice_top(max(values))
        most = nice_above(max([0.01, *(abs(value - self.around) for value in values)]))
        return self.around - most, self.around + most

    @staticmethod
    def log_range(values):
        low, high = nice_below(min(values)), nice_above(max(values))
        return (low, high) if low < high else (low / 2, high * 2)

    def frame(self):
        return "\n".join([
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' "
            f"role='img' {FONT}>",
            f"<title>{escape(self.title)}</title>",
            f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
            text(LEFT, 26, self.title, size=17, weight=600),
            text(LEFT, 46, self.subtitle, size=12, fill=FAINT),
        ])

    def y_axis(self):
        parts = []
        for value in self.scale.y_ticks():
            y = self.scale.y(value)
            parts.append(f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}' stroke='{GRID}'/>")
            parts.append(text(LEFT - 10, y + 4, self.y_name(value), anchor="end", fill=FAINT))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(text(18, middle, self.y_title, anchor="middle", fill=FAINT, more=f"transform='rotate(-90 18 {middle})'"))
        return "\n".join(parts)

    def x_axis(self):
        bottom = HEIGHT - BOTTOM
        parts = [f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{bottom}' y2='{bottom}' stroke='{FAINT}'/>"]
        for size in sorted({size for points in self.lines.values() for size, _ in points}):
            x = self.scale.x(size)
            parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{bottom}' y2='{bottom + 5}' stroke='{FAINT}'/>")
            parts.append(text(x, bottom + 20, self.x_name(size), anchor="middle", fill=FAINT))
        parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 44, self.x_title, anchor="middle", fill=FAINT))
        return "\n".join(parts)

    def legend(self):
        parts, x, y = [], LEFT, 62
        for name in self.lines:
            width = 32 + 6.6 * len(name) + 22
            if x + width > WIDTH:
                x, y = LEFT, y + 18
            colour, dashes, marker = STYLES.get(name, OTHER)
            parts.append(f"<line x1='{x}' x2='{x + 26}' y1='{y}' y2='{y}' stroke='{colour}' stroke-width='2.2' "
                         f"stroke-dasharray='{dashes}'/>{MARKERS[marker](x + 13, y, colour)}")
            parts.append(text(x + 32, y + 4, name, fill=INK))
            x += width
        return "\n".join(parts)

    def line(self, name):
        colour, dashes, marker = STYLES.get(name, OTHER)
        points = [(self.scale.x(size), self.scale.y(value)) for size, value in sorted(self.lines[name])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        marks = "".join(MARKERS[marker](x, y, colour) for x, y in points)
        return (f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.2' stroke-linejoin='round' "
                f"stroke-dasharray='{dashes}'/>{marks}")


@dataclass
class Scale:
    least: float
    most: float
    low: float
    high: float
    log_y: bool

    def x(self, size):
        share = math.log(size / self.least) / math.log(self.most / self.least) if self.most > self.least else 0.5
        # A little space, so that the first marker is not on the axis.
        return LEFT + 16 + share * (WIDTH - LEFT - RIGHT - 32)

    def y(self, value):
        if self.log_y:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM - 8)

    def y_ticks(self):
        if not self.log_y:
            step = nice_step(self.high - self.low)
            first = math.ceil(self.low / step - 1e-9)
            return [number * step for number in range(first, int(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [factor * 10.0 ** decade for decade in decades for factor in (1, 2, 5)]
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def nice_below(value):
    decade = 10.0 ** math.floor(math.log10(value))
    return max(factor * decade for factor in (1, 2, 5) if factor * decade <= value)


def nice_above(value):
    decade = 10.0 ** math.floor(math.log10(value))
    return min(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= value)


def nice_step(top):
    """Returns a step for about six ticks up to `top`."""
    return nice_above(top / 6)


def nice_top(value):
    step = nice_step(value)
    return math.ceil(value / step) * step


def text(x, y, words, size=12, anchor="start", fill=INK, weight=400, more=""):
    look = f"font-size='{size}' text-anchor='{anchor}' fill='{fill}' font-weight='{weight}' {more}"
    return f"<text x='{x:.1f}' y='{y:.1f}' {look}>{escape(words)}</text>"


MARKERS = {
    "circle": lambda x, y, colour: f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{colour}'/>",
    "square": lambda x, y, colour: f"<rect x='{x - 3.6:.1f}' y='{y - 3.6:.1f}' width='7.2' height='7.2' fill='{colour}'/>",
    "diamond": lambda x, y, colour: f"<path d='M{x:.1f} {y - 5.2:.1f}l5.2 5.2l-5.2 5.2l-5.2 -5.2z' fill='{colour}'/>",
    "triangle": lambda x, y, colour: f"<path d='M{x:.1f} {y - 5:.1f}l5 8.6h-10z' fill='{colour}'/>",
}
