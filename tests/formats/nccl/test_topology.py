"""Topology and graph XML, RAS and Inspector files: read, checked against another reading, hostile ones refused."""

import io
import json
import statistics
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.places import FIXTURES
from helpers.second_readers import assert_topology_agrees

from nccl_doctor.app import analyze
from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables.topology import RasRank
from nccl_doctor.formats import registry
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.formats.nccl import inspector, ras, topology

FIXTURES = FIXTURES / "topology"


def read(data: bytes, name: str = "topo.xml") -> tuple[Facts, Reading]:
    facts = Facts()
    return facts, topology.read_format(io.BytesIO(data), name, facts)


def found(*paths: Path) -> set[tuple[str, str]]:
    report, _, _ = analyze.analyze([str(path) for path in paths])
    return {(finding.name, finding.severity) for finding in report.findings}


@pytest.mark.parametrize(
    ("names", "findings"),
    [
        (["node01.xml"], set()),
        (
            ["node02.xml"],
            {
                ("topology-link-narrow", "warning"),
                ("topology-nvlink-uneven", "warning"),
                ("topology-nic-far", "warning"),
            },
        ),
        (["virtual.xml"], {("topology-emulated-links", "warning"), ("topology-no-nvlink", "warning")}),
        (["no_gdr.xml"], {("topology-gdr-off", "note")}),
        (["graph_nvlink.xml"], set()),
        (["graph_slow.xml"], {("graph-slow", "note")}),
        (["graph_slow.xml", "node01.xml"], {("graph-slow", "warning")}),
        (["ras_healthy.json"], set()),
        (["ras_behind.json"], {("ras-ranks-apart", "warning")}),
        (["ras_dead.json"], {("ras-ranks-missing", "error")}),
        (["inspector.log"], set()),
        (["inspector_late2.log"], {("inspector-late-rank", "warning")}),
    ],
)
def test_files_get_their_verdict(names: list[str], findings: set[tuple[str, str]]) -> None:
    assert findings == found(*(FIXTURES / name for name in names))


def test_two_hosts_are_compared() -> None:
    report, facts, _ = analyze.analyze([str(FIXTURES / "node01.xml"), str(FIXTURES / "node02.xml")])
    assert "topology-differs-between-hosts" in {finding.name for finding in report.findings}
    different = dict(facts.query("SELECT what, value || ' / ' || other_value FROM topo_difference"))
    assert "7 / 8" == different["number of network devices"]
    assert "18 18 18 18 18 13 18 18 / 18 18 18 18 18 18 18 18" == different["NVLinks of the GPUs"]


@pytest.mark.parametrize("name", ["node01.xml", "node02.xml"])
def test_numbers_agree_with_another_reader(name: str) -> None:
    assert_topology_agrees(FIXTURES / name)


def test_a_report_tells_links_rates_and_what_a_search_found() -> None:
    topo, graph = FIXTURES / "node01.xml", FIXTURES / "graph_slow.xml"
    _, facts, _ = analyze.analyze([str(topo), str(graph)])
    told = {(name, of): value for name, value, of in facts.query("SELECT name, value, of FROM measure")}

    given = [element.attrib for element in ElementTree.parse(graph).iter("graph")]
    for one, name in zip(given, ("ring", "tree"), strict=True):
        channels = int(one["nchannels"])
        assert channels == told["channels", name]
        assert channels * float(one["speedintra"]) == told["planned_busbw_inside", name]
        assert channels * float(one["speedinter"]) == told["planned_busbw_between", name]
    links = {value for (name, _), value in told.items() if name == "nvlinks"}
    rates = sorted(value for (name, _), value in told.items() if name == "network_rate")
    root = ElementTree.parse(topo)
    assert {sum(int(link.attrib["count"]) for link in gpu.iter("nvlink")) for gpu in root.iter("gpu")} == links
    assert sorted(int(net.attrib["speed"]) / 1000 for net in root.iter("net")) == rates


def test_distance_in_words_of_nccl() -> None:
    facts, _ = read((FIXTURES / "node02.xml").read_bytes())
    assert [(0, "PIX"), (7, "PHB")] == facts.query("SELECT gpu, nearest FROM topo_gpu WHERE gpu IN (0, 7)")
    text = (FIXTURES / "node01.xml").read_bytes()
    assert b'numaid="1"' in text
    assert [("PIX", 8)] == facts.query("SELECT 'PIX', count(*) + 1 FROM topo_net WHERE nearest = 'PIX'")


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (
            (FIXTURES / "hostile.xml").read_bytes(),
            "declares a document type or entities, which are not expanded; line 2",
        ),
        ((FIXTURES / "node01.xml").read_bytes()[:3000], "ends in the middle of the document in line"),
        (b'<system version="1">' + b"<pci>" * 100, "nests elements more than 62 deep; raise"),
        (b'<system version="1"><cpu numaid="x"></system>', "is not well-formed (mismatched tag) in line 1"),
        (b'<system version="1">' + b'<pci busid="a"/>' * 60_000, "holds more than 50,000 elements; raise"),
        (
            b'<system version="1"><cpu numaid="9999999999999999999999"><pci link_width="-1"><gpu/></pci></cpu></system>',
            None,
        ),
    ],
)
def test_hostile_and_broken_xml(data: bytes, note: str | None) -> None:
    assert registry.recognise(data[: 1 << 16]) is not None
    _, reading = read(data)
    assert (reading.note or "").startswith(note) if note else reading.note is None


def test_a_cut_file_still_shows_what_came_before() -> None:
    facts, _ = read((FIXTURES / "node01.xml").read_bytes()[:3000])
    assert 2 <= facts.counts()["topo_gpu"] < 8


def test_ras_names_who_is_behind() -> None:
    data = (FIXTURES / "ras_behind.json").read_bytes()
    counts = {
        rank["rank"]: rank["collective_counts"]["AllReduce"] for rank in json.loads(data)["communicators"][0]["ranks"]
    }
    facts = Facts()
    assert Reading(data.count(b"\n"), 1, None) == ras.read_format(io.BytesIO(data), "ras.json", facts)
    (row,) = facts.rows(RasRank)
    assert (5, "behind", "AllReduce", counts[5], statistics.mode(counts.values())) == (
        row.rank,
        row.state,
        row.op,
        row.calls,
        row.majority,
    )
    facts = Facts()
    twice = ras.read_format(io.BytesIO(data + data[:500]), "ras.json", facts)
    assert (1, f"ends in the middle of the report that starts in line {data.count(chr(10).encode()) + 1}") == (
        twice.understood,
        twice.note,
    )


def test_inspector_reads_beside_lines_that_are_none_of_its_records() -> None:
    good = (FIXTURES / "inspector_late2.log").read_text().splitlines()[:4]
    odd = [
        "",
        "{",
        "7",
        '{"header": {"rank": []}}',
        good[0].replace('"hostname":', '"hostname": [], "was":'),
        good[0][:-1],
    ]
    facts = Facts()
    read = inspector.read_format(io.BytesIO("\n".join([*good, *odd]).encode()), "i.log", facts)
    assert Reading(10, 5, "ends in the middle of line 10") == read
    assert [(None, 1)] == facts.query("SELECT host, n FROM inspector_coll WHERE host IS NULL")


def test_inspector_agrees_with_json() -> None:
    data = (FIXTURES / "inspector_late2.log").read_bytes()
    records = [json.loads(line) for line in data.splitlines()]
    facts = Facts()
    assert Reading(240, 240, None) == inspector.read_format(io.BytesIO(data), "i.log", facts)
    for rank, n, median in facts.query("SELECT rank, n, time_median FROM inspector_coll"):
        times = [record["coll_perf"]["coll_exec_time_us"] for record in records if record["header"]["rank"] == rank]
        assert (len(times), statistics.median(times)) == (n, median)
    facts = Facts()
    assert (
        "ends in the middle of line 3"
        == inspector.read_format(io.BytesIO(b"\n".join(data.split(b"\n")[:2]) + b'\n{"header"'), "i", facts).note
    )


def test_a_file_of_a_provider_is_not_blamed_and_amd_links_are_seen(tmp_path: Path) -> None:
    device = '<pci busid="000{0}:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>'
    card = '<pci busid="010{0}:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>'
    switches = "".join(
        f'<cpu numaid="{n}" affinity="ffff" arch="x86_64">'
        f'<pci busid="ffff:ff:0{n}.0" class="0x060400" link_speed="16 GT/s" link_width="16">'
        f"{device.format(2 * n + 1)}{card.format(2 * n + 1)}{device.format(2 * n + 2)}{card.format(2 * n + 2)}</pci></cpu>"
        for n in range(4)
    )
    path = tmp_path / "ndv4-topo.xml"
    path.write_text(f'<system version="1">{switches}</system>')
    report, facts, _ = analyze.analyze([str(path)])
    assert ([], [(8, 8, 1)]) == (report.findings, facts.query("SELECT gpus, nets, written FROM topo_file"))
    gpus = "".join(
        f'<pci busid="0000:{n}5:00.0" class="0x038000" link_speed="32.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{n}" sm="90" gcn="gfx90a" rank="{n}" gdr="1">'
        f'<xgmi target="0000:{(n + 1) % 4}5:00.0" count="{1 + n % 2}" tclass="0x038000"/></gpu></pci>'
        for n in range(4)
    )
    path.write_text(f'<system version="2"><cpu numaid="0" arch="x86_64">{gpus}</cpu></system>')
    report, facts, _ = analyze.analyze([str(path)])
    assert ([], [(None, 0, 1)] * 4) == (
        report.findings,
        facts.query("SELECT sm, nvlinks, xgmi FROM topo_gpu"),
    )


@pytest.mark.parametrize(("lost", "findings"), [(None, set()), ((1, 3), {("topology-nvlink-uneven", "warning")})])
def test_every_gpu_of_amd_has_a_link_to_every_other(
    lost: tuple[int, int] | None, findings: set[tuple[str, str]], tmp_path: Path
) -> None:
    gpus = ""
    for gpu in range(4):
        links = "".join(
            f'<xgmi target="0000:{other}5:00.0" count="1" tclass="0x038000"/>'
            for other in range(4)
            if other != gpu and lost not in ((gpu, other), (other, gpu))
        )
        gpus += f'<pci busid="0000:{gpu}5:00.0" class="0x038000" link_speed="32.0 GT/s PCIe" link_width="16">'
        gpus += f'<gpu dev="{gpu}" sm="94" gcn="gfx942" rank="{gpu}" gdr="1">\n{links}</gpu></pci>\n'
    (tmp_path / "xgmi.xml").write_text(f'<system version="1"><cpu numaid="0">{gpus}</cpu></system>\n')

    assert findings == found(tmp_path / "xgmi.xml")


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_a_cut_file_blames_no_gpu_for_the_links_that_are_missing(share: float, tmp_path: Path) -> None:
    text = (FIXTURES / "node01.xml").read_text()
    for at in range(round(len(text) * share), round(len(text) * share) + 200, 20):
        (tmp_path / "cut.xml").write_text(text[:at])

        assert "topology-nvlink-uneven" not in {name for name, _ in found(tmp_path / "cut.xml")}
