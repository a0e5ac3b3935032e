"""Lines of a loop that are taken together tell what each of them tells alone."""

from datetime import datetime, timedelta
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from nccl_doctor.formats.printed.forms import line_batches
from tests.formats.printed.forms.test_line_kinds import rows

FORMS = (
    "{date}.{ms:03d} step {step} loss {loss:.3f}",
    "[{date}] INFO iteration {step}: train_loss={loss:.2f}",
    "INFO {date},{ms} Epoch {epoch}, step {step}, val_loss: {loss:.4f}",
    "{slash} step={step} loss={loss:.3f} 0.{ms:03d} s",
    "{clock} step {step} loss {loss:.3f}",
    "step {step}/900 loss {loss:.3f} elapsed: {passed:.2f}s",
    "epoch {epoch} step {step} loss {loss:.2e} wall_time={passed:.1f}",
    "iter {step}: loss {loss:.4f}, time {ms}.5ms",
    "step {step} | loss {loss:.3f} | acc 0.{ms}",
)
BETWEEN = (
    "Epoch {epoch} took 12.5 s",
    "saved at step {step}",
    "validation loss {loss:.3f}",
    "no number",
    "rank 3 step {step} loss 2.5",
)
START = datetime(2026, 11, 2, 23, 59, 30)


@st.composite
def loops(draw: st.DrawFn) -> list[str]:
    """Steps of one or two forms, most of them one after the other and later, and few lines between them."""
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=2, unique=True))
    step, passed, lines = draw(st.integers(0, 2000)), 0.0, []
    for _ in range(draw(st.integers(20, 120))):
        step += draw(st.sampled_from((1, 1, 1, 1, 10, 0, -1, -300)))
        passed += draw(st.sampled_from((0.5, 0.25, 0.5, 12.0, 0.0, -0.25)))
        when = START + timedelta(seconds=int(passed))
        told = {
            "date": f"{when:%Y-%m-%d %H:%M:%S}", "slash": f"{when:%Y/%m/%d %H:%M:%S}", "clock": f"{when:%H:%M:%S}",
            "ms": int(passed * 1000) % 1000, "step": max(step, 0), "epoch": max(step, 0) // 50, "passed": abs(passed),
            "loss": draw(st.floats(0, 20)),
        }  # fmt: skip
        lines.append(draw(st.sampled_from(forms)).format(**told))
        if draw(st.integers(0, 60)) == 0:
            lines.append(draw(st.sampled_from(BETWEEN)).format(**told))
    return lines


@given(loops())
def test_together_or_alone(lines: list[str]) -> None:
    found = rows("\n".join(lines))
    with mock.patch.object(line_batches, "are_alone", return_value=False):
        assert rows("\n".join(lines)) == found


def test_a_date_that_is_none_is_a_time_of_the_day() -> None:
    lines = [f"2026-13-02 10:00:{second:02d},000 step {second} loss 1.5" for second in range(1, 40)]
    (run,) = rows("\n".join(lines))["throughput_run"]
    (again,) = rows("\n".join(line.replace("2026-13", "2026-12") for line in lines))["throughput_run"]
    assert run[2:] == again[2:]
