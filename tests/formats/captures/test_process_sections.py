"""Lists of processes of `ps` and `top`, of one host and many."""

import pytest

from nccl_doctor.app import analyze
from nccl_doctor.app.analyze import report_of
from nccl_doctor.formats.captures.process_sections import is_job, program

LISTED = "SELECT host, pid, user, name, state, round(cpu, 1), round(memory, 1), waits, job FROM listed_process ORDER BY host, pid"


@pytest.mark.parametrize(
    ("command", "name", "job"),
    [
        ("/usr/bin/python3 -u train.py --local_rank=1", "python train.py", True),
        ("python -m torch.distributed.run --nproc_per_node 8 x.py", "python -m torch.distributed.run", True),
        ("python -c from multiprocessing.spawn import spawn_main", "python -c", False),
        ("python", "python", False),
        ("/opt/nccl-tests/build/all_reduce_perf -b 8 -e 8G", "all_reduce_perf", True),
        ("torchrun --nnodes 2 train.py", "torchrun", True),
        ("slurmstepd: [4242.0]", "slurmstepd:", True),
        ("[kworker/3:1-events]", "[kworker/3:1-events]", False),
        ("/usr/sbin/sshd -D", "sshd", False),
    ],
)
def test_what_a_command_runs(command: str, name: str, job: bool) -> None:
    assert (name, job) == (program(command), is_job(command))


def test_ps_aux_keeps_what_belongs_to_a_job_or_hangs() -> None:
    facts = analyze.read_text(
        "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n"
        "root           1  0.0  0.0 168140 11800 ?        Ss   Nov20   0:03 /sbin/init splash\n"
        "root         812  0.0  0.0      0     0 ?        D    Nov20   0:10 [jbd2/sda2-8]\n"
        "ada        70211  101  0.4 9211332 6291456 ?     Rl   08:12 190:01 python -u pretrain.py --size 7b\n"
        "ada        70213  0.0  0.0      0     0 ?        Z    08:12   0:52 [python] <defunct>\n"
        "root@gpu:~# \n"
    )
    assert [
        (None, 812, "root", "[jbd2/sda2-8]", "D", 0.0, 0.0, None, 0),
        (None, 70211, "ada", "python pretrain.py", "R", 101.0, 6144.0, None, 1),
        (None, 70213, "ada", "[python]", "Z", 0.0, 0.0, None, 0),
    ] == facts.query(LISTED)
    assert [("processes", 4), ("zombies", 1), ("in uninterruptible sleep", 1)] == facts.query(
        "SELECT name, value FROM host_number WHERE command = 'ps' ORDER BY value DESC, name DESC"
    )
    assert ["job-process-zombie"] == [finding.name for finding in report_of(facts).findings]


def test_hosts_behind_pdsh_and_columns_that_people_choose() -> None:
    facts = analyze.read_text(
        "".join(
            f"node{host}:     PID USER     STAT                  STARTED WCHAN              COMMAND\n"
            f"node{host}:   70211 ada      {state}   Tue Nov 24 08:12:01 2026 {wait} python train.py\n"
            for host, state, wait in (("01", "Rl", "-"), ("02", "Dl", "nfs_wait_bit_killable"))
        )
    )
    assert [
        ("node01", 70211, "ada", "python train.py", "R", None, None, None, 1),
        ("node02", 70211, "ada", "python train.py", "D", None, None, "nfs_wait_bit_killable", 1),
    ] == facts.query(LISTED)
    found = report_of(facts).findings
    assert [("process-waits-in-kernel", "node02")] == [(finding.name, finding.hosts) for finding in found]
    assert "nfs_wait_bit_killable" in found[0].message


def test_top_shows_processes_below_its_head() -> None:
    facts = analyze.read_text(
        "top - 10:11:12 up 12 days,  1:02,  1 user,  load average: 9.10, 8.90, 8.70\n"
        "Tasks: 900 total,   9 running, 891 sleeping,   0 stopped,   0 zombie\n"
        "%Cpu(s):  4.1 us,  1.0 sy,  0.0 ni, 94.9 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st\n"
        "MiB Mem : 2063884.0 total, 1000000.0 free,  500000.0 used,  563884.0 buff/cache\n"
        "MiB Swap:      0.0 total,      0.0 free,      0.0 used. 1500000.0 avail Mem \n"
        "\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
        "  70211 ada       20   0   87.8g   5.5g   1.2g D 100.0   0.3 190:01.10 python train.py\n"
    )
    assert [(None, 70211, "ada", "python train.py", "D", 100.0, 5632.0, None, 1)] == facts.query(LISTED)
    assert [(9.1,)] == facts.query("SELECT value FROM host_number WHERE name = 'load'")


def test_a_list_that_was_cut_or_is_none_says_only_what_it_shows() -> None:
    cut = "UID          PID    PPID  C STIME TTY          TIME CMD\nada        70211       1 99 08:12 ?        03:10:01 python tr"
    assert [(None, 70211, "ada", "python tr", None, None, None, None, 1)] == analyze.read_text(cut).query(LISTED)
    text = "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nada\n70211 70212 x\n"
    assert [] == analyze.read_text(text).query(LISTED)


def test_docker_stats_shows_the_most_of_each_container() -> None:
    title = "CONTAINER ID   NAME      CPU %      MEM USAGE / LIMIT     MEM %     NET I/O         BLOCK I/O   PIDS\n"
    row = "{id}   {name:<7}   {cpu:<8}   210.4GiB / 503.5GiB   {memory:<7}   1.2MB / 3.4GB   0B / 0B     812\n"
    facts = analyze.read_text(
        "root@gpu:~# docker stats\n"
        + title
        + row.format(id="4f1c2d3e4a5b", name="train-0", cpu="1250.50%", memory="41.75%")
        + row.format(id="5f1c2d3e4a5c", name="train-1", cpu="12.25%", memory="41.50%")
        + "\x1b[2J\x1b[H"
        + title
        + row.format(id="4f1c2d3e4a5b", name="train-0", cpu="1300.00%", memory="40.00%")
        + row.format(id="5f1c2d3e4a5c", name="train-1", cpu="--", memory="--")
    )
    assert [
        ("CPU of train-0", 1300.0),
        ("CPU of train-1", 12.25),
        ("memory of train-0", 41.75),
        ("memory of train-1", 41.5),
    ] == facts.query(
        "SELECT name, max(value) FROM host_number WHERE command = 'docker stats' AND unit = '%' GROUP BY name ORDER BY name"
    )
