"""What training programs print about their progress."""

from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "training-steps",
        "step_lines",
        tables=("throughput_run", "step", "loss_scale", "training_event", "comm_op"),
        # Literals of step lines that ordinary output does not have; see `step_formats`.
        inside=(
            b"images/sec: ", b"/sec per ", b'"ups": ', b", ups=", b"elapsed time per iteration (", b"SamplesPerSec=",
            b"'train_samples_per_second'", b"it/s]", b"it/s, ", b"s/it]", b"s/it, ", b"  tps: ", b"mtps: ",
            b"throughput/samples_per_sec: ", b" examples/second between steps ", b" examples/sec; ", b"Epoch: [", b"data_time: ",
            b"BatchTimestamp<batch_index: ", b"| comm op: ", b"/s)  LR: ", b" algo throughput: ",
        ),
        # A log without NCCL lines is named after the first reader that could use it, and any job can print steps.
        after=("profile-summary", "gpu-samples", "node-capture", "nccl-tests", "stacks"),
    ),
)  # fmt: skip
