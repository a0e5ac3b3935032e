"""`explain` answers every kind of question, in plain text of 80 columns, and never raises."""

import subprocess
import sys

import pytest
from helpers.examples import examples
from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.app.explain import explain
from nccl_doctor.rules import loader

ASKED = [
    # what is asked, words of the answer
    ("NCCL_IB_TIMEOUT", ["setting of NCCL", "20 since 2.23.4"]),
    ("nccl_ib_timeout", ["write NCCL_IB_TIMEOUT"]),
    ("NCCL_IB_TIMEOUT=5", ["NCCL_IB_TIMEOUT=5: dangerous"]),
    ("export NCCL_P2P_DISABLE=1", ["debug-leftover"]),
    ("NCCL_IB_DISABLE=0", ["no problem with this value"]),
    ("NCCL_TREE_THRESHOLD", ["2.4.8", "ignore it", "NCCL_ALGO"]),
    ("NCCL_IB_TIMEOT", ["Did you mean NCCL_IB_TIMEOUT"]),
    ("NCCL_TESTS_DEVICE", ["not to NCCL"]),
    ("FI_OFI_RXR_RX_COPY_UNEXP", ["FI_EFA_RX_COPY_UNEXP"]),
    ("OMPI_MCA_btl", ["Open MPI"]),
    ("HOROVOD_FUSION_THRESHOLD", ["Horovod", "134217728"]),
    ("MASTER_ADDR", ["rendezvous"]),
    ("status=12", ["IBV_WC_RETRY_EXC_ERR", "did not acknowledge"]),
    ("error 12", ["IBV_WC_RETRY_EXC_ERR"]),
    ("status 5", ["secondary error"]),
    ("IBV_WC_RETRY_EXC_ERR", ["= 12"]),
    ("WR_FLUSH_ERR", ["= 5"]),
    ("vendor err 129", ["0x81"]),
    ("vendor_err=0x51", ["ACS"]),
    ("status=4, vendor err 81", ["IBV_WC_LOC_PROT_ERR", "ACS"]),
    ("Xid 79", ["fallen off the bus"]),
    ("xid: 45", ["Never a cause"]),
    ("SXid 20009", ["NVSwitch", "DLPL_RX_SHORT_ERROR_RATE"]),
    ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 23001, Fatal, Link 42 ingress", ["always stops the whole NVLink fabric"]),
    (
        "NVRM: Xid (PCI:0000:04:00): 146, TLW_RX/TLW_RX_PIPE1 Fatal XC0 i0 Link 03 (0x0000000b 0x00000004 0x00000000)",
        ["Unit TLW_RX_PIPE1, link 3, fatal", "Reset the GPU"],
    ),
    ("Xid 171", ["DRAM"]),
    ("CUDA_ERROR_CONTAINED", ["= 226"]),
    ("cudaErrorStreamCaptureUnjoined", ["= 904"]),
    ("ncclSystemError", ["= 2"]),
    ("-> 3", ["ncclInternalError"]),
    ("-> 6", ["another rank"]),
    ("Cuda failure 802", ["Fabric Manager"]),
    ("cudaErrorSystemNotReady", ["= 802"]),
    ("CUDA_ERROR_OUT_OF_MEMORY", ["= 2"]),
    ("CUDA error 700", ["illegal", "compute-sanitizer"]),
    ("P2P/CUMEM/read", ["NVLink or PCIe"]),
    ("via NET/IB/0/GDRDMA/Shared", ["GPUDirect RDMA"]),
    ("exitcode -7", ["SIGBUS", "/dev/shm"]),
    ("exit code 137", ["SIGKILL"]),
    ("-11", ["SIGSEGV"]),
    ("SIGTERM", ["victim"]),
    ("signal 9", ["SIGKILL"]),
    ("79", ["Xid 79 (GPU error", "off the bus"]),
    ("12", ["several things", "status=12", "Xid 12"]),
    ("3", ["several things", "status=3", "-> 3"]),
    ("137", ["exit code", "Xid"]),
    ("vendor err 0129", ["Vendor error 129"]),
    ("node01:101:140 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.", ["NCCL_IB_DISABLE (setting of NCCL"]),
    ("[1,3]<stdout>:node01:101:140 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", ["how two ranks"]),
    ("node01:101:140 [0] NCCL WARN NET/IB : Got completion from peer 10.1.0.4<1234> with error 12, opcode 0, len 0, vendor err 129",
     ["RETRY_EXC_ERR", "ConnectX"]),
    ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=python, DBE", ["Uncorrectable"]),
    ("node01:101:140 [0] NCCL INFO init.cc:1089 -> 2", ["ncclSystemError"]),
    ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL", ["NCCL_DEBUG (setting", "NCCL_DEBUG_SUBSYS=ALL: debug-leftover"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), ASKED, ids=[text[:40] for text, _ in ASKED])
def test_answer(text: str, words: list[str]) -> None:
    answer = explain(text)
    assert answer is not None
    flat = " ".join(answer.split())
    assert [] == [word for word in words if word.lower() not in flat.lower()]


@pytest.mark.parametrize("text", [text for text, _ in ASKED])
def test_answer_fits_80_columns(text: str) -> None:
    answer = explain(text) or ""
    assert [] == [line for line in answer.split("\n") if len(line) > 80 and " " in line.strip()]


@pytest.mark.parametrize(
    "text", ["", "  \n ", "hello", "12345", "Xid", "NCCL", "a b c", "FOO=1", "NCCL_", "x-y-z", "ZZZ999", "Xid 9999"]
)
def test_what_nobody_knows_gets_no_answer(text: str) -> None:
    assert explain(text) is None


def test_a_rule_by_id_and_name() -> None:
    rule = loader.find_rule("env-unknown-name")
    assert rule is not None
    for key in (rule.id, rule.name, rule.id.lower()):
        answer = explain(key)
        assert answer is not None
        assert f"{rule.id} {rule.name}: {rule.title}" == answer.split("\n")[0]
        assert rule.references[0] in answer
        assert "<name>=<value>" in answer


def test_control_characters_do_not_reach_the_terminal() -> None:
    answer = explain("NCCL_IB_TIMEOUT=\x1b[31m5\x07") or ""
    assert "\x1b" not in answer
    assert "\x07" not in answer
    assert "\u3164" not in (
        explain("[pod/a\u31640/b] n1:1:2 [1] NCCL INFO NVLS multicast support is available on dev 1") or ""
    )


def test_several_lines_are_explained_one_by_one() -> None:
    answer = (
        explain(
            "NVRM: Xid (PCI:0000:3b:00): 79, gone\nnode01:101:140 [0] NCCL INFO NCCL_NTHREADS set by environment to 64."
        )
        or ""
    )
    assert answer.index("fallen off the bus") < answer.index("NCCL_NTHREADS (setting")


PIECES = st.sampled_from(
    [
        "NCCL INFO ", "NCCL WARN ", "node01:1:2 [0] ", "status=", "error ", "vendor err ", "Xid ", "SXid (PCI:0000:3b:00): ",
        "-> ", "via ", "NET/IB/", "P2P/", "SHM/", "NCCL_", "IB_TIMEOUT", "=", "Cuda failure ", "exit code ", "SIG", "signal ",
        "12", "-9", "0x", "(", ")", "[", "{", "}", "\n", "\x00", "IBV_WC_", "set by environment to ", "CFG", "050", "a-b", "é",
        "%s", "'", '"',
    ]
)  # fmt: skip


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=12).map("".join)))
@examples(300)
def test_any_text_gets_words_or_nothing(text: str) -> None:
    answer = explain(text)
    assert answer is None or answer.strip()


def test_a_long_text_is_answered_soon() -> None:
    assert explain("error " * 50_000) is None
    assert explain("(" * 100_000) is None


def test_settings_and_codes_load_no_rules_and_no_patterns() -> None:
    code = (
        "import sys; from nccl_doctor.app.explain import explain; assert explain('NCCL_IB_TIMEOUT') and explain('Xid 79');"
        "print(sorted(m for m in sys.modules if m.startswith('nccl_doctor.') or m in ('pandas', 'rich', 'sqlite3')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for absent in (
        "nccl_doctor.rules.engine",
        "nccl_doctor.log",
        "nccl_doctor.formats",
        "nccl_doctor.node",
        "pandas",
        "rich",
        "sqlite3",
    ):
        assert f"'{absent}" not in done.stdout
