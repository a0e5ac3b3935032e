"""Units that names of people's own spell out."""

import pytest

from nccl_doctor.formats.printed.units import kind_of, rate_in, unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("train_samples_per_second", "samples/s"), ("eval_steps_per_second", "steps/s"), ("tokens_per_sec", "tokens/s"),
        ("train_runtime", "s"), ("cpu_user_percent", "%"), ("used_gb", "GB"), ("peak_mib", "MiB"), ("power_watts", "W"),
        ("temp_edge_celsius", "C"), ("sm_mhz", "MHz"), ("latency_ms", "ms"), ("ttft_s_mean", "s"),
        ("latency_ms_quantiles_p25", "ms"), ("data.used_gb", "GB"),
        ("loss", ""), ("runtime", ""), ("apples_per_second", ""), ("load_avg_1min", ""), ("status", ""), ("gb", "GB"), ("thumb", ""),
    ],
)  # fmt: skip
def test_the_unit_at_the_end_of_a_name(name: str, unit: str) -> None:
    assert unit == unit_of(name)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("gen throughput (token/s)", "token/s"),
        ("BW [GB/s]", "GB/s"),
        ("speed (km/h)", ""),
        ("latency (ms)", ""),
        ("(token/s) of all", ""),
    ],
)
def test_the_rate_in_brackets_behind_a_name(name: str, unit: str) -> None:
    assert unit == rate_in(name)


def test_a_longest_run_time_is_a_setting() -> None:
    assert [None, None, "time"] == [kind_of(name, "") for name in ("Max Runtime Batch Size", "max_runtime", "runtime")]
