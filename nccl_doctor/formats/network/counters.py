"""Error counters of links in the output of commands, in files of their own or inside logs.

`ethtool -S`, `ip -s link`, `rdma statistic`, `perfquery`, `ibqueryerrors`, `nvidia-smi nvlink -e`,
`nvidia-smi c2c -e`, `dcgmi nvlink -e`. Lines may
carry the prefix of pdsh, clush or srun; then each host is kept apart. Counters of traffic and of single queues are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, takewhile

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import LinkCounter
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.network.counter_names import ETHTOOL, INTERFACE, NVLINK, PERFQUERY, RDMA, unknown_error
from nccl_doctor.inputs.prefixes import NOTHING, Label
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import Sections

_MOST_ROWS = 200_000  # counters of one file
_MOST_HOSTS = 20_000
_Key = tuple[str, str, str]  # source, kind, link
_Place = tuple[int, str]  # of a line
_Extremes = tuple[int, _Place, int, _Place]  # the lowest and the highest value of a counter
_COUNTER_HEADS = re.compile(
    rb"NIC statistics:|# Port(?: extended|RcvErrorDetails|XmitDiscardDetails)? counters: "
    rb"|Errors for [0\"]|> mtu \d|link \S{1,40}/\d{1,3} |\(UUID: |NVLINK Error Counts"
    rb"|ethtool (?:-S|--statistics) "
)
_ETHTOOL_CALL = re.compile(r".{0,200}\bethtool (?:-S|--statistics) (\w[\w.@-]{0,40})\s*$")
_INTERFACE_TITLE = re.compile(r"[=#*-]{0,20} ?(?:[Ii]nterface |device )?([a-z][a-z0-9_.]{1,15}):? ?[=#*-]{0,20}\s*$")
_ETHTOOL_ROW = re.compile(r"\s+(?:\[\d{1,4}\]: )?([a-z][\w.]{2,60}): (\d{1,20})\s*$")  # bnxt_en numbers its queues
_PERFQUERY_HEAD = re.compile(
    r"# Port(?: extended|RcvErrorDetails|XmitDiscardDetails)? counters: (?:Lid (\d{1,6}) )?(.{0,40}?)port (\d{1,3})\b"
)
_PERFQUERY_ROW = re.compile(r"([A-Z]\w{3,40}):\.{1,40}(\d{1,20})\s*$")
# Whole tables of lines without a prefix, and their rows.
_ETHTOOL_RUN = re.compile(rb"(?:[ \t]{1,40}(?:\[\d{1,4}\]: )?[a-z][\w.]{2,60}: \d{1,20}\r?\n){1,200}")
_ETHTOOL_TITLES = re.compile(rb"([\w.]{3,61}): \d{1,20}")
_PERFQUERY_RUN = re.compile(
    rb"(?:(?:[A-Z]\w{3,40}:\.{1,40}\w{1,20}|# Port(?: extended|RcvErrorDetails|XmitDiscardDetails)? counters: [^\r\n]{1,100})\r?\n){1,200}"
)
_PERFQUERY_ROWS = re.compile(rb"^(?:(\w{4,41}):\.{1,40}(\w{1,20})|(#[^\n]*))", re.MULTILINE)
_ERRORS_HEAD = re.compile(r"Errors for (?:0x[0-9a-f]{1,16} )?\"(.{0,80})\"")
_ERRORS_ROW = re.compile(r"\s+GUID (0x[0-9a-f]{1,16}) port (\d{1,3}): (\[.*)")
_ERRORS_CELL = re.compile(r"\[(\w{3,40}) == (\d{1,20})")
_INTERFACE_HEAD = re.compile(r"\d{1,5}: ([\w.-]{1,40})(?:@[\w.-]{1,40})?: <[A-Z_,-]{0,200}> mtu \d")
_INTERFACE_MORE = (
    "link/",
    "alias ",
    "inet",
    "valid_lft",
    "altname ",
)  # what the other lines of an interface begin with
_INTERFACE_COLUMNS = re.compile(r"\s+(RX|TX)(?: errors)?:\s+([a-z]\w*(?:\s+[a-z]\w*){3,8})\s*$")
_RDMA_LINK = re.compile(r"link ([\w.-]{1,40}/\d{1,3})(?=\s|$)")
_NVLINK_OWNER = re.compile(r"\s*GPU (\d{1,3}): .{2,80}? \(UUID: ")
_NVLINK_ROW = re.compile(r"\s+(C2C )?Link (\d{1,3}): ([A-Z][\w -]{3,40}?): (\d{1,20})\s*$")
_HEAD = re.compile(r"NIC statistics:|# Port|Errors for |\d|link |\s{0,20}GPU \d|\|")  # with which tables begin
_DCGM_TITLE = re.compile(r"\|\s*(?:(NVLINK Error Counts)|GPU (\d{1,3})|Link (\d{1,3}))\s*\|?")
_DCGM_ROW = re.compile(r"\|\s*-> ([A-Z][\w ]{3,40}?)\s*\| (\d{1,20})\s*\|")

_ETHTOOL_NAMES = {title.encode(): name for title, name in ETHTOOL.items()}
_PERFQUERY_NAMES = {title.encode(): name for title, name in PERFQUERY.items()}


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every table of counters of a file.

    Source: ethtool 5 and 6, iproute2 4 to 6, infiniband-diags 2 to 44, `nvidia-smi` of drivers 450 to 580, DCGM 2 to 4::

             rx_crc_errors_phy: 12
        SymbolErrorCounter:..............0
             Link 0: Replay Errors: 0
             C2C Link 0: Error Replay Count: 0
    """
    reader = _Reader(name, facts)
    sections = Sections(stream, _COUNTER_HEADS)
    used = 0
    for first, label, texts in sections.batches():
        state = reader.state(label)
        if state is None:
            continue
        at = last = 0  # lines of the texts that were looked at, and behind the last one that was used
        while at < len(texts):
            taken = reader.take(state, label, texts, at, first + at)
            at += taken or 1
            if not taken:
                continue
            used, last = used + taken, at
            if label is NOTHING:
                sections.used(first + last - 1)
                if taken := reader.take_run(sections, state, label, first + last - 1):
                    used, last = used + taken, 0
                    break
        if last:
            sections.used(first + last - 1)
    facts.fill(LinkCounter, reader.rows())
    facts.mark_covered("link_counter")
    return Reading(sections.lines, used, reader.note)


@lru_cache(4096)  # most links count nothing
def _parse_nvlink(text: str) -> tuple[str, str | None, str] | None:
    """The link, the name of its counter, None for one that is not read, and the value; None for another line."""
    found = _NVLINK_ROW.match(text)
    return None if found is None else (f"{found[1] or ''}link {found[2]}", NVLINK.get(found[3].lower()), found[4])


class _Open:
    """What is open for one host: which command, and whose counters its next lines are."""

    def __init__(self) -> None:
        self.take: Callable[[_Open, Label, str, int], bool] | None = None  # whether a line is one of its table
        self.take_all: Callable[[_Open, Label, Sequence[str], int], int] | None = (
            None  # the same of as many lines as there are
        )
        self.link = ""
        self.gpu = ""
        self.columns: tuple[str, ...] = ()  # names of the counters in the next line, empty for those that are left out
        self.title = ""  # a line that may name the interface of the table after it
        self.tables = 0  # of `ethtool` that nothing names
        self.known = False  # a counter of the table that is listed here was seen
        self.head = (0, "")
        self.links: dict[_Key, dict[str, _Extremes]] = {}  # counters of each


class _Reader:
    def __init__(self, name: str, facts: Facts) -> None:
        self._name = name
        self._facts = facts
        self._hosts: dict[tuple[str | None, int | None], _Open] = {}
        self._count = 0  # counters of all of them
        self.note: str | None = None

    def state(self, label: Label) -> "_Open | None":
        """What is open for the writer of a line; None for those of too many hosts."""
        key = label.host, label.rank
        state = self._hosts.get(key)
        if state is None and len(self._hosts) < _MOST_HOSTS:
            state = self._hosts[key] = _Open()
        return state

    def take(self, state: _Open, label: Label, texts: Sequence[str], at: int, number: int) -> int:
        """How many lines from `texts[at]` on, which is line `number`, are part of a table; 0 where that one is not."""
        text = texts[at]
        if not text:
            return 0
        if state.take_all is not None:
            taken = state.take_all(state, label, texts[at:], number)
        else:
            taken = state.take is not None and state.take(state, label, text, number)
        if taken:
            return taken
        if _HEAD.match(text) is not None and self._begins(state, label, text, number):
            return 1
        state.title = text
        return 0

    def _begins(self, state: _Open, label: Label, text: str, number: int) -> bool:
        """Whether a line opens a table."""
        before = state.take, state.take_all
        state.take = state.take_all = None
        if text.startswith("NIC statistics:"):
            found = _ETHTOOL_CALL.match(state.title) or _INTERFACE_TITLE.match(state.title)
            state.tables += found is None
            state.link = found[1] if found else f"NIC {state.tables}"
            state.take, state.known = self._ethtool, False
        elif (port := _PERFQUERY_HEAD.match(text)) is not None:
            state.link = f"lid {port[1]} port {port[3]}" if port[1] else f"{port[2].strip()} port {port[3]}"
            state.take = self._perfquery
        elif (switch := _ERRORS_HEAD.match(text)) is not None:
            state.gpu, state.take = switch[1], self._query_errors
        elif (device := _INTERFACE_HEAD.match(text)) is not None:
            state.link, state.columns, state.take_all = device[1], (), self._interface
        elif (rdma := _RDMA_LINK.match(text)) is not None:
            state.link, state.take = rdma[1], self._rdma
            state.head = number, text
            self._rdma(state, label, text[rdma.end() :], number)
        elif (owner := _NVLINK_OWNER.match(text)) is not None:
            state.gpu, state.take_all = owner[1], self._nvlink
        elif text.startswith("|") and (title := _DCGM_TITLE.match(text)) is not None and title[1]:
            state.gpu, state.link, state.take = "", "", self._dcgm
        else:
            state.take, state.take_all = before
            return False
        state.head = number, text
        return True

    def take_run(self, sections: Sections, state: _Open, label: Label, number: int) -> int:
        """Takes the rest of a table of `ethtool`, or of several of `perfquery`, at once: how many lines it has."""
        rows, read = _ETHTOOL_RUN, self._ethtool_run
        if state.take == self._perfquery:
            rows, read = _PERFQUERY_RUN, self._perfquery_run
        elif state.take != self._ethtool:
            return 0
        taken = sections.run(rows, number)
        if taken is None:
            return 0
        return taken[1].count(b"\n") if self._is_full() else read(state, label, *taken)

    def _ethtool_run(self, state: _Open, label: Label, first: int, table: bytes) -> int:
        titles = _ETHTOOL_TITLES.findall(table)
        state.known = state.known or not _ETHTOOL_NAMES.keys().isdisjoint(titles)
        names = [_ETHTOOL_NAMES.get(title) if state.known else unknown_error(title.decode()) for title in titles]
        if any(names):
            texts = table.decode("ascii", "replace").splitlines()
            for at, name in enumerate(names):
                if name is not None:
                    value = texts[at].rpartition(": ")[2].rstrip()
                    self._add(state, "ethtool", "ethernet", name, value, (first + at, texts[at]))
        return len(titles)

    def _perfquery_run(self, state: _Open, label: Label, first: int, table: bytes) -> int:
        texts: list[bytes] = []
        cells = _PERFQUERY_ROWS.findall(table)
        counters = None  # of the port whose rows are read
        for number, (title, value, head) in enumerate(cells, first):
            if head:
                self._begins(state, label, head.decode("utf-8", "replace").rstrip("\r"), number)
                counters = None
                continue
            name = _PERFQUERY_NAMES.get(title)
            if name is None:
                continue
            if value == b"0":  # most ports count no errors
                if counters is None and (counters := self._counters(state, "perfquery", "ib")) is None:
                    continue
                if name not in counters:
                    if not self._is_full():
                        self._count += 1
                        counters[name] = 0, state.head, 0, state.head
                    continue
            if value.isdigit():
                text = ""
                if value != b"0":
                    texts = texts or table.splitlines()
                    text = texts[number - first].decode("ascii", "replace")
                self._add(state, "perfquery", "ib", name, value.decode(), (number, text))
        return len(cells)

    def _counters(self, state: _Open, source: str, kind: str) -> dict[str, _Extremes] | None:
        """The counters of the open link; None where no more links are kept."""
        key = source, kind, state.link
        counters = state.links.get(key)
        if counters is None and not self._is_full():
            counters = state.links[key] = {}
        return counters

    def _is_full(self) -> bool:
        """Whether no more rows are kept, which the note then says."""
        full = self._count >= _MOST_ROWS
        if full and self.note is None:
            self.note = f"holds more than {_MOST_ROWS:,} counters; the others were left out"
        return full

    def _add(self, state: _Open, source: str, kind: str, name: str, value: str, at: _Place) -> None:
        """Take one value of a counter."""
        self._add_all(state, source, kind, ((name, int(value)),), at)

    def _add_all(self, state: _Open, source: str, kind: str, values: Iterable[tuple[str, int]], at: _Place) -> None:
        """Take the values of counters; one that is zero has the head of its table as evidence.

        A command that is run again and again adds nothing but a lower or a higher value.
        """
        counters = self._counters(state, source, kind)
        if counters is None:
            return
        zero = 0, state.head, 0, state.head
        for name, count in values:
            known = counters.get(name)
            if count >= 1 << 63:  # all bits set is how drivers say that they do not count
                continue
            if known is None:
                if not self._is_full():
                    self._count += 1
                    counters[name] = (count, at, count, at) if count else zero
            elif count < known[0]:
                counters[name] = count, at if count else state.head, *known[2:]
            elif count > known[2]:
                counters[name] = *known[:2], count, at

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The rows of `link_counter`, two of a counter that changed."""
        last, ref = 0, 0
        for (host, _), state in self._hosts.items():
            for (source, kind, link), counters in state.links.items():
                for name, (low, low_place, high, high_place) in counters.items():
                    for count, (number, text) in ((low, low_place), (high, high_place))[: 1 + (low < high)]:
                        if number != last:
                            last, ref = number, self._facts.evidence(self._name, number, text.strip())
                        yield host, self._name, source, kind, link, name, count, ref

    def _ethtool(self, state: _Open, label: Label, text: str, number: int) -> bool:
        found = _ETHTOOL_ROW.match(text)
        if found is None:
            return False
        name = ETHTOOL.get(found[1])
        state.known = state.known or name is not None
        if name is None and not state.known:
            name = unknown_error(found[1])
        if name is not None:
            self._add(state, "ethtool", "ethernet", name, found[2], (number, text))
        return True

    def _perfquery(self, state: _Open, label: Label, text: str, number: int) -> bool:
        found = _PERFQUERY_ROW.match(text)
        if found is None:
            return ":...." in text
        name = PERFQUERY.get(found[1])
        if name is not None:
            self._add(state, "perfquery", "ib", name, found[2], (number, text))
        return True

    def _query_errors(self, state: _Open, label: Label, text: str, number: int) -> bool:
        found = _ERRORS_ROW.match(text)
        if found is None:
            return False
        if self._is_full():
            return True
        state.link = f"{state.gpu or found[1]} port {found[2]}"
        cells = _ERRORS_CELL.findall(found[3][:4000])
        values = [(PERFQUERY[title], int(value)) for title, value in cells if title in PERFQUERY]
        self._add_all(state, "ibqueryerrors", "ib", values, (number, text))
        return True

    def _interface(self, state: _Open, label: Label, texts: Sequence[str], number: int) -> int:
        for at, text in enumerate(texts):
            values = _interface_values(state.columns, text) if state.columns else None
            if values is not None:
                if state.link != "lo" and not self._is_full():
                    self._add_all(state, "ip", "ethernet", values, (number + at, text))
                state.columns = ()
            elif titles := _interface_columns(text):
                state.columns = titles
            elif not text.lstrip().startswith(_INTERFACE_MORE):
                return at
        return len(texts)

    def _rdma(self, state: _Open, label: Label, text: str, number: int) -> bool:
        if text[:1] not in (" ", "\t", ""):
            return False
        words = text[:20_000].split()
        cells = [(title, value) for title, value in pairwise(words) if value.isdecimal()]
        values = [(RDMA[title], int(value)) for title, value in cells if title in RDMA and len(value) <= 20]
        self._add_all(state, "rdma", "ib", values, (number, text))
        return bool(cells)

    def _nvlink(self, state: _Open, label: Label, texts: Sequence[str], number: int) -> int:
        rows = [row for row in takewhile(bool, map(_parse_nvlink, texts)) if row is not None]
        if not rows:
            return texts[0].lstrip().startswith(("Link ", "C2C Link "))
        if not self._is_full():
            for at, (link, name, value) in enumerate(rows):
                if name is not None:
                    state.link = f"GPU {state.gpu} {link}"
                    self._add(state, "nvidia-smi", name.partition("-")[0], name, value, (number + at, texts[at]))
        return len(rows)

    def _dcgm(self, state: _Open, label: Label, text: str, number: int) -> bool:
        row = _DCGM_ROW.match(text)
        if row is not None and state.link:
            name = NVLINK.get(row[1].lower() + "s")
            if name is not None:
                self._add(state, "dcgmi", "nvlink", name, row[2], (number, text))
            return True
        title = _DCGM_TITLE.match(text)
        if title is None:
            return text.startswith("+")
        state.gpu = title[2] or state.gpu
        state.link = f"GPU {state.gpu} link {title[3]}" if title[3] else ""
        return not title[1]


@lru_cache(1 << 10)
def _interface_columns(text: str) -> tuple[str, ...]:
    """Our names of the columns that a line of `ip -s link` lists, empty for those that are left out; none for another line."""
    titles = _INTERFACE_COLUMNS.match(text)
    if titles is None:
        return ()
    return tuple(INTERFACE.get(f"{titles[1].lower()} {title}", "") for title in titles[2].split())


@lru_cache(1 << 12)  # most interfaces count no errors
def _interface_values(columns: tuple[str, ...], text: str) -> tuple[tuple[str, int], ...] | None:
    """The counters in a line below such titles; None for another line."""
    cells = text.split()
    if len(cells) != len(columns) or not "".join(cells).isdecimal() or max(map(len, cells)) > 20:
        return None
    return tuple((name, int(value)) for name, value in zip(columns, cells, strict=True) if name)
