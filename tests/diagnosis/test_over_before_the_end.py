"""Failures that were over before the end, and fall-backs that worked, in a job that ended in order: told, and no alarm."""

import pytest
from helpers.log_prefixes import simulated

from nccl_doctor.app import analyze

HEAD = "node12:268148:268214 [1]"
OVER = {
    "store refused at first": [
        "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node11]:29500 (errno: 111 - Connection refused)."
    ],
    "store not there at first": [
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
    ],
    "connect retried": [
        f"{HEAD} NCCL INFO socketPollConnect: connect to 10.232.43.21<40001> returned Connection timed out, retrying (1/34) after sleep for"
        " 100 msec"
    ],
    "NFS": [
        "[12345.678901] nfs: server 10.1.0.9 not responding, still trying",
        "[12399.678901] nfs: server 10.1.0.9 OK",
    ],
    "Lustre": [
        "[12345.678901] LustreError: 11-0: lfs-OST0001-osc: operation ost_read to node 10.1.0.8@o2ib failed: rc = -107",
        "[12360.700000] Lustre: lfs-OST0001-osc: Connection restored to 10.1.0.8@o2ib (at 10.1.0.8@o2ib)",
    ],
    "link": [
        "[12345.678901] mlx5_core 0000:3b:00.0 ib3: Link down",
        "[12350.678901] mlx5_core 0000:3b:00.0 ib3: Link up",
    ],
    "step": [
        "srun: Job 77 step creation temporarily disabled, retrying (Requested nodes are busy)",
        "srun: Step created for StepId=77.2",
    ],
    "plug-in": [
        f"{HEAD} NCCL INFO NET/Plugin : dlerror=/opt/x/libnccl-net.so: undefined symbol: ibv_reg_dmabuf_mr No plugin found"
        " (libnccl-net.so), using internal implementation"
    ],
    "libfabric": [f"{HEAD} ofi.cc:120 NCCL WARN NET/OFI Couldn't find any optimal provider"],
    "DMA-BUF": [
        f"{HEAD} misc/ibvwrap.cc:200 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported"
    ],
}


@pytest.mark.parametrize("name", OVER)
def test_what_was_over_is_no_alarm(name: str) -> None:
    lines = [said.text for said in simulated(None)]
    lines[40:40] = OVER[name]
    report = analyze.report_of(analyze.read_text("\n".join(lines)))
    assert report.verdict in ("healthy", "note")


@pytest.mark.parametrize("name", ["connect retried", "NFS", "Lustre"])
def test_without_the_good_end_it_stays_an_alarm(name: str) -> None:
    lines = [said.text for said in simulated(None)][:40] + OVER[name][:1]
    assert "warning" == analyze.report_of(analyze.read_text("\n".join(lines))).verdict
