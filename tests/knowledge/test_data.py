"""The tables of knowledge hold together, and the lint of settings says what it should and nothing else."""

import re
from typing import Any

import pytest

from nccl_doctor.knowledge import FOLDER, codes, entries, settings, transports, version_number, version_text
from nccl_doctor.knowledge.env_lint import VERDICTS, Verdict, lint_setting, lint_settings

FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
CODED = [
    name
    for name in FILES
    if name
    not in (
        "bandwidth",
        "env",
        "gpu_models",
        "machine_types",
        "nvlink_status",
        "system_error",
        "transport",
        "transport_suffix",
    )
]
DANGERS = {"none", "debug", "harmful", "leftover"}
KINDS = {"int", "bool", "list", "string", "file"}
TABLE = settings.table()


@pytest.mark.parametrize("name", FILES)
def test_every_text_is_a_sentence_and_plain(name: str) -> None:
    for entry in entries(name):
        for key, value in entry.items():
            if isinstance(value, str) and key in ("does", "meaning", "check", "action", "note"):
                assert value, (name, entry)
                assert value == " ".join(value.split()), (name, entry)
                assert value[-1] in ".?", (name, value)


@pytest.mark.parametrize("name", CODED)
def test_no_code_occurs_twice(name: str) -> None:
    numbers = [(entry["code"], *entry.get("status", ())) for entry in entries(name)]
    assert sorted(set(numbers)) == sorted(numbers)


def test_codes_are_complete() -> None:
    assert list(range(24)) == [entry["code"] for entry in entries("ib_status")]
    assert list(range(9)) == [entry["code"] for entry in entries("nccl_result")]
    have = {entry["code"] for entry in entries("cuda_error")}
    assert {2, 3, 34, 35, 36, 98, 100, 101, 201, 205, 214, 217, 304, *range(700, 703), 710, 711, *range(715, 720),
            *range(800, 806), 999} <= have  # fmt: skip
    xids = {entry["code"]: entry for entry in entries("xid")}
    assert set(range(1, 177)) <= set(xids)
    assert {"app", "hardware", "driver", "nvlink", "cleanup"} == {entry["class"] for entry in xids.values()}
    assert "cleanup" == xids[45]["class"]


def test_sxids_are_those_of_the_switch_driver() -> None:
    units = {entry["code"] // 1000 for entry in entries("sxid")}
    assert set(range(10, 31)) == units
    assert {"always", "often", "never", "unknown"} == {entry["fatal"] for entry in entries("sxid")}
    assert all(entry["mnemonic"].isupper() for entry in entries("sxid"))


@pytest.mark.parametrize("entry", entries("cuda_error"), ids=lambda entry: entry["name"])
def test_cuda_error_is_found_by_number_and_by_all_names(entry: dict[str, Any]) -> None:
    assert codes.cuda(str(entry["code"])) == entry
    assert codes.cuda(entry["name"].lower()) == entry
    assert codes.cuda(entry.get("driver", entry["name"])) == entry
    assert codes.cuda(entry.get("hip", entry["name"])) == entry


@pytest.mark.parametrize(("unit", "information", "status", "fatal", "says"), [
    ("RLW_REMAP", 0x4, 0x40, True, "Reset the GPU"),
    ("RLW_REMAP", 0x4, 0x41, True, "Reset the GPU"),
    ("RLW_REMAP", 0x4, 0x1, False, "Xid 154"),
    ("RLW_TAGSTATE", 0x8, 0x1, False, "Nothing"),
])  # fmt: skip
def test_nvlink_status_is_the_gravest_of_its_bits(
    unit: str, information: int, status: int, fatal: bool, says: str
) -> None:
    found = codes.nvlink_status(145, unit, information, status)
    assert found is not None
    assert found["fatal"] is fatal
    assert says in found["check"]


def test_reason_of_a_link_that_went_down_is_in_the_first_number() -> None:
    peer = codes.nvlink_status(149, "NETIR_LINK_EVT", 0b100010 << 20 | 0x11, 0)
    unknown = codes.nvlink_status(149, "NETIR_LINK_EVT", 0b111111 << 20 | 0x11, 0)
    assert peer is not None
    assert unknown is not None
    assert "peer GPU or switch first" in peer["check"]
    assert 0 == unknown["reason"]
    assert codes.nvlink_status(149, "NO_SUCH_UNIT", 0, 0) is None


def test_names_are_used_once_in_any_case() -> None:
    names = [entry["name"].upper() for entry in entries("env")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_setting_is_complete(name: str) -> None:
    setting = TABLE[name]
    assert setting.family in settings.PROGRAMS
    assert setting.kind in KINDS
    assert setting.danger in DANGERS
    assert setting.does[0].isupper()
    if setting.family == "nccl":
        assert setting.since is not None
    else:
        assert (None, None, None) == (setting.since, setting.until, setting.deprecated)
    versions = [v for v in (setting.since, setting.deprecated, setting.until) if v]
    assert versions == sorted(versions, key=version_number)
    starts = [since for since, _ in setting.default if since]
    assert starts == sorted(set(starts), key=version_number)
    assert not starts or starts[0] == setting.since
    if setting.replaced_by:
        assert setting.replaced_by in TABLE
    for check in setting.checks:
        assert check.verdict in VERDICTS
        assert check.why
        for condition in check.when:
            if condition.startswith("~"):
                re.compile(condition[1:])
    assert bool(setting.checks) <= (setting.danger != "none")


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_default_is_a_possible_value(name: str) -> None:
    setting = TABLE[name]
    for _, value in setting.default:
        if settings.as_number(value) is not None:
            assert "" == settings.invalid_value(setting, value)


def test_versions_compare_as_numbers() -> None:
    assert 22105 == version_number("2.21.5")
    assert "2.9.6" == version_text(version_number("2.9.6"))
    assert version_number("2.4.8") < version_number("2.10.3") < version_number("2.30.7")


@pytest.mark.parametrize(
    ("name", "number", "default"),
    [
        ("NCCL_IB_TIMEOUT", 20806, "14"), ("NCCL_IB_TIMEOUT", 21403, "18"), ("NCCL_IB_TIMEOUT", 23007, "20"),
        ("NCCL_IB_TIMEOUT", None, "20"), ("NCCL_IB_GID_INDEX", 22003, "0"), ("NCCL_IB_HCA", 22105, "all"),
    ],
)  # fmt: skip
def test_default_depends_on_the_version(name: str, number: int | None, default: str) -> None:
    assert default == settings.default_in(TABLE[name], number)


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("1", "1", True), ("1", "0", False), ("TRACE", "trace", True), ("<18", "14", True), ("<18", "18", False),
        ("<18", "abc", False), (">=0", "-1", False), ("<=2", "0x2", True), ("*", "", True), ("~a+$", "AAA", True),
    ],
)  # fmt: skip
def test_conditions(condition: str, value: str, expected: bool) -> None:
    assert expected is settings.fits(condition, value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("22", 22),
        ("-1", -1),
        ("0x10", 16),
        ("010", 8),
        (" 5 ", 5),
        ("true", None),
        ("5s", None),
        ("", None),
        ("09", None),
    ],
)
def test_numbers_are_read_as_strtoll_reads_them(text: str, number: int | None) -> None:
    assert number == settings.as_number(text)


LINT = [
    # name, value, NCCL, verdicts
    ("NCCL_IB_TIMEOT", "22", 22105, ["unknown"]),
    ("NCCL_P2P_DISABLED", "1", 22105, ["unknown"]),
    ("nccl_debug", "INFO", 22105, ["unknown"]),
    ("NCCL_DEBUG ", "INFO", 22105, ["unknown"]),
    ("NCCL_SITE_FLAG", "1", 22105, ["unknown"]),
    ("NCCL_SITE_FLAG", "1", 23300, []),  # newer than the table: it may exist
    ("TORCH_NCCL_BLOKING_WAIT", "1", 22105, ["unknown"]),
    ("TORCH_NCCL_SOMETHING_ELSE_ENTIRELY", "1", 22105, []),
    ("NCCL_TESTS_SPLIT_MASK", "1", 22105, []),
    ("NCCL_FASTRAK_NUM_FLOWS", "2", 22105, []),
    ("NCCL_VERSION", "2.15.5-1", 22105, []),
    ("PATH", "/usr/bin", 22105, []),
    ("MY_NCCL_DEBUG", "INFO", 22105, []),
    ("NCCL_MAX_NCHANNELS", "16", 21703, ["deprecated"]),
    ("NCCL_MAX_NCHANNELS", "16", 21603, []),
    ("NCCL_MAX_NCHANNELS", "1", 22105, ["deprecated", "dangerous"]),
    ("NCCL_ASYNC_ERROR_HANDLING", "1", None, ["deprecated"]),
    ("NCCL_TREE_THRESHOLD", "0", 22105, ["removed"]),
    ("NCCL_TREE_THRESHOLD", "0", 20408, ["dangerous"]),
    ("NCCL_TREE_THRESHOLD", "0", None, ["dangerous"]),
    ("NCCL_TREE_THRESHOLD", "4294967296", None, []),
    ("FI_OFI_RXR_RX_COPY_UNEXP", "1", None, ["removed"]),
    ("FI_EFA_MTU_SIZE", "8192", None, ["removed"]),
    ("NCCL_CUMEM_HOST_ENABLE", "1", 22105, ["no-effect"]),
    ("NCCL_CUMEM_HOST_ENABLE", "1", 22403, []),
    ("HOROVOD_GPU_OPERATIONS", "NCCL", None, ["no-effect"]),
    ("NCCL_DEBUG", "TRACE", 22105, ["debug-leftover"]),
    ("NCCL_DEBUG", "INFO", 22105, []),
    ("NCCL_DEBUG", "VERBOSE", 22105, ["bad-value"]),
    ("NCCL_DEBUG_SUBSYS", "ALL", 22105, ["debug-leftover"]),
    ("NCCL_DEBUG_SUBSYS", "INIT,COLL", 22105, ["debug-leftover"]),
    ("NCCL_DEBUG_SUBSYS", "INIT,NET,ENV,GRAPH", 22105, []),
    ("NCCL_P2P_DISABLE", "1", 22105, ["debug-leftover"]),
    ("NCCL_P2P_DISABLE", "0", 22105, []),
    ("NCCL_P2P_LEVEL", "NVL", 22105, []),
    ("NCCL_P2P_LEVEL", "LOC", 22105, ["debug-leftover"]),
    ("NCCL_P2P_LEVEL", "NVLINK", 22105, ["bad-value"]),
    ("NCCL_SHM_DISABLE", "1", 22105, ["debug-leftover"]),
    ("CUDA_LAUNCH_BLOCKING", "1", None, ["debug-leftover"]),
    ("CUDA_LAUNCH_BLOCKING", "0", None, []),
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", None, ["debug-leftover"]),
    ("TORCH_DISTRIBUTED_DEBUG", "OFF", None, []),
    ("NCCL_CHECK_POINTERS", "1", 22105, ["debug-leftover"]),
    ("NCCL_DEBUG_FILE", "/tmp/nccl.%h", 22105, ["debug-leftover"]),
    ("NCCL_DEBUG_FILE", "/tmp/nccl.%h.%p", 22105, []),
    ("NCCL_SOCKET_IFNAME", "^docker0", 22105, ["dangerous"]),
    ("NCCL_SOCKET_IFNAME", "^docker0,lo", 22105, []),
    ("NCCL_SOCKET_IFNAME", "^=docker0,lo", 22105, []),
    ("NCCL_SOCKET_IFNAME", "lo", 22105, ["dangerous"]),
    ("NCCL_SOCKET_IFNAME", "=eth0", 22105, []),
    ("NCCL_SOCKET_IFNAME", "eno1,eth0", 22105, []),
    ("NCCL_SOCKET_IFNAME", "virbr0", 22105, ["dangerous"]),
    ("NCCL_IB_DISABLE", "0", 22105, []),
    ("NCCL_IB_DISABLE", "1", 22105, ["dangerous"]),
    ("NCCL_IB_DISABLE", "true", 22105, ["bad-value"]),
    ("NCCL_IB_TIMEOUT", "22", 22105, []),
    ("NCCL_IB_TIMEOUT", "0", 22105, ["dangerous"]),
    ("NCCL_IB_TIMEOUT", "14.", 22105, ["bad-value"]),
    ("NCCL_IB_TIMEOUT", "14", 22105, ["dangerous"]),
    ("NCCL_IB_TIMEOUT", "40", 22105, ["bad-value"]),
    ("NCCL_IB_GID_INDEX", "3", 22105, ["dangerous"]),
    ("NCCL_IB_GID_INDEX", "-1", 22105, []),
    ("NCCL_BUFFSIZE", "512", 22105, ["dangerous"]),
    ("NCCL_BUFFSIZE", "8388608", 22105, []),
    ("NCCL_PROTO", "LL,LL128,Simple", 22105, ["dangerous"]),
    ("NCCL_ALGO", "Ring", 22105, ["dangerous"]),
    ("NCCL_NET", "IB", 22105, []),
    ("NCCL_NET", "Socket", 22105, ["dangerous"]),
    ("NCCL_RAS_ADDR", "0.0.0.0:28028", 22403, ["dangerous"]),
    ("NCCL_RAS_ADDR", "127.0.0.1:28028", 22403, []),
    ("NCCL_TOPO_FILE", "/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p4d.xml", 22105, []),
    ("NCCL_TOPO_FILE", "/tmp/mine.xml", 22105, ["dangerous"]),
    ("FI_PROVIDER", "efa", None, []),
    ("FI_PROVIDER", "tcp;ofi_rxm", None, ["dangerous"]),
    ("FI_EFA_TX_MIN_CREDITS", "0", None, ["bad-value"]),
    ("FI_EFA_TX_MIN_CREDITS", "64", None, []),
    ("HOROVOD_FUSION_THRESHOLD", "0", None, ["dangerous"]),
    ("HOROVOD_FUSION_THRESHOLD", "67108864", None, []),
    ("OMPI_MCA_btl", "^openib", None, []),
    ("OMPI_MCA_btl_tcp_if_exclude", "docker0", None, ["dangerous"]),
    ("OMPI_MCA_btl_tcp_if_exclude", "lo,docker0", None, []),
    ("UCX_TLS", "rc,sm,self", None, ["dangerous"]),
    ("UCX_TLS", "rc,sm,cuda_copy,cuda_ipc", None, []),
]


@pytest.mark.parametrize(("name", "value", "number", "verdicts"), LINT)
def test_lint_of_one_setting(name: str, value: str, number: int | None, verdicts: list[str]) -> None:
    found = lint_setting(name, value, number)
    assert verdicts == [verdict for verdict, _ in found]
    assert all(why and not why.endswith(".") for _, why in found)


@pytest.mark.parametrize("name", ["NCCL_CUMEM_HOST_ENABLE", "NCCL_TREE_THRESHOLD", "NCCL_SITE_FLAG", "NCCL_IB_TIMEOT"])
def test_what_nccl_says_it_has_read_has_a_reader(name: str) -> None:
    assert [1, 0] == [len(lint_setting(name, "1", 22105, read)) for read in (False, True)]
    given = [(None, None, name, "1", 7)]
    assert [1, 0] == [len(list(lint_settings(given, 22105, read))) for read in (frozenset[str](), {name})]


def test_rows_carry_host_rank_and_evidence() -> None:
    given = [
        ("node01", 0, "NCCL_P2P_DISABLE", "1", 7),
        ("node01", 0, "NCCL_IB_DISABLE", "0", 8),
        (None, None, "NCCL_FOO_BAR", "x", 9),
    ]
    found = list(lint_settings(given, 22105))
    assert [("node01", 0, "NCCL_P2P_DISABLE", "debug-leftover", 7), (None, None, "NCCL_FOO_BAR", "unknown", 9)] == [
        (r.host, r.rank, r.name, r.verdict, r.ref) for r in found
    ]


@pytest.mark.parametrize(("threads", "sockets", "expected"), [("16", "8", 1), ("8", "8", 0), ("x", "8", 1)])
def test_helper_threads_times_sockets(threads: str, sockets: str, expected: int) -> None:
    given = [("node01", 0, "NCCL_SOCKET_NTHREADS", threads, 1), ("node01", 0, "NCCL_NSOCKS_PERTHREAD", sockets, 2)]
    assert expected == sum(row.verdict == "bad-value" for row in lint_settings(given, 22105))


def test_settings_of_different_ranks_are_not_combined() -> None:
    given = [("node01", 0, "NCCL_SOCKET_NTHREADS", "16", 1), ("node01", 1, "NCCL_NSOCKS_PERTHREAD", "8", 2)]
    assert [] == list(lint_settings(given, 22105))


def test_row_has_the_columns_of_its_table() -> None:
    from nccl_doctor.facts.tables import EnvLint

    assert EnvLint._fields == Verdict._fields


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("P2P/CUMEM/read", ["virtual memory", "pulls"]),
        ("P2P/MNNVL", ["several nodes"]),
        ("P2P/indirect/3[3]", ["rank 3"]),
        ("SHM/direct/direct", ["shared memory of the host"]),
        ("SHM/CE/direct", ["copy engines"]),
        ("direct shared memory", ["shared memory of the host"]),
        ("NET/IB/0/GDRDMA/Shared", ["InfiniBand", "GPU memory itself", "usual and no fault"]),
        ("NET/IB/3", ["through host memory"]),
        ("NET/Socket/0", ["TCP"]),
        ("NET/AWS Libfabric/1(2)/GDRDMA", ["aws-ofi-nccl", "rank 2"]),
        ("NET/IBext_v8/0/GDRDMA(PCI)", ["HPC-X", "over PCIe"]),
        ("NET/Mine/0", ["plug-in Mine"]),
        ("COLLNET/SHARP/0", ["switches"]),
    ],
)
def test_transports(text: str, words: list[str]) -> None:
    reading = transports.parse_transport(text)
    assert reading is not None
    assert text == reading.text
    said = " ".join(reading.sentences)
    assert [] == [word for word in words if word not in said]


def test_socket_is_not_blamed_for_lacking_gpudirect() -> None:
    reading = transports.parse_transport("NET/Socket/0")
    assert reading is not None
    assert "host memory" not in " ".join(reading.sentences)


@pytest.mark.parametrize(
    ("code", "name"),
    [(-7, "SIGBUS"), (135, "SIGBUS"), (137, "SIGKILL"), (-11, "SIGSEGV"), (143, "SIGTERM"), (134, "SIGABRT")],
)
def test_exit_codes_name_signals(code: int, name: str) -> None:
    found = codes.exit_code(code)
    assert found is not None
    signal: dict[str, Any] | None = found[1]
    assert signal is not None
    assert name == signal["name"]


@pytest.mark.parametrize("code", [255, 99, -64, 128])
def test_other_exit_codes_are_not_guessed(code: int) -> None:
    assert codes.exit_code(code) is None
