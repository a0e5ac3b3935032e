"""What training programs print about their progress, and the records that training libraries keep of it."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "training-records",
        "records",
        tables=("throughput_run", "step", "mlperf_run", "scalar"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}\{(?=[^\[\]]{0,4000}\"log_history\" ?: ?\[)(?=[^\[\]]{0,4000}\"global_step\" ?:)"
            rb"|\A\s{0,200}\{(?=[^\n]{0,60000}\"_step\" ?: ?\d)(?=[^\n]{0,60000}\"_(?:runtime|timestamp)\" ?: ?[\d.])"
            rb"|\A\s{0,200}\{(?=[^\n{}]{0,9000}\"data_time\" ?: ?\d)(?=[^\n{}]{0,9000}\"(?:step|iter|iteration)\" ?: ?\d)"
            rb"(?=[^\n{}]{0,9000}\"time\" ?: ?\d)"
            rb"|\A\s{0,200}\{(?=[^\n{}]{0,9000}\"perf/step_time_seconds\" ?: ?\d)(?=[^\n{}]{0,9000}\"step\" ?: ?\d)"
            rb"|\A\s{0,200}\{(?=[^\n{}]{0,9000}\"current_steps\" ?: ?\d)(?=[^\n{}]{0,9000}\"elapsed_time\" ?: ?\"\d)"
            # lines of anybody's own, with a step and a loss or a speed, and no words of a log
            rb"|\A\s{0,200}\{(?![^\n]{0,9000}\"(?:message|msg|level|levelname|severity|log|text)\" ?:)"
            rb"(?=[^\n]{0,9000}\"(?:trainer/)?(?:(?:global_|train_)?steps?|iter|iteration|num_updates|global_step/max_steps)\" ?: ?\"?\d)"
            rb"(?=[^\n]{0,9000}\"[\w./() -]{0,80}(?:loss|_time|/s|per_s|_ms|_s)[\w./() -]{0,40}\" ?: ?\"?[-\dN])"
            rb"[^\n]{1,60000}\}\s{0,9}(?:\Z|\n\{)"
            # of an epoch each, as DETR, DeiT and MAE keep them
            rb"|\A\s{0,200}\{(?=[^\n]{0,9000}\"train_loss\" ?: ?[-\dN])[^\n]{1,60000}\}\s{0,9}(?:\Z|\n\{)"
            rb"|\ADLLL \{\""
            rb"|\ADLL 20\d\d-\d\d-\d\d "
        ),
        inside=(b":::MLLOG {", b":::MLL ", b":::MLPv0.", b":::NVLOGv", b"DLLL {", b"DLL 20"),
        after=("training-arrays", "gpu-samples", "node-capture", "nccl-tests", "profile-summary", "stacks", "nccl-ras", "recording"),
    ),
    Format(
        "training-arrays",
        "record_arrays",
        tables=("throughput_run", "step", "scalar"),
        begins=compiled(
            rb"\A(?:\xef\xbb\xbf)?\s{0,200}(?:\[|\{(?![^\[\]]{0,2000}\"(?:log_history\"|(?:step|iter|iteration)\"\s{0,9}:\s{0,9}\d))"
            rb"[^\[\]]{0,2000}\"\w{1,60}\"\s{0,99}:\s{0,99}\[)\s{0,200}\{"
            # records with a text and `steps` are results of runs
            rb"(?:(?=[^\]]{0,1500}\"(?:(?:global_|train_)?step|iter|iteration)\"\s{0,9}:\s{0,9}\d)"
            rb"|(?![^{}]{0,1500}\"\w{1,60}\"\s{0,9}:\s{0,9}\"[A-Za-z])(?=[^\]]{0,1500}\"(?:global_|train_)?steps\"\s{0,9}:\s{0,9}\d))"
            rb"(?=[^\]]{0,1500}\"[\w./ -]{0,40}(?:loss|_time|duration|/s|per_s(?:ec|econd)?|_ms|_s)(?:_per_rank)?\"\s{0,9}:\s{0,9}[-\d\[{])"
        ),
        after=(
            "kineto-trace", "horovod-timeline", "nccl-tests", "flight-recorder", "nccl-profiler", "nccl-inspector",
            "metric-files", "tracker-events", "nccl-ras", "storage-test", "tcp-test", "slurm-json", "slurm-state-json", "kubernetes",
        ),
    ),
    Format(
        "deepspeed-comms",
        "deepspeed_comms",
        tables=("comm_op",),
        inside=(b"] comm op: ", b"Comm. Op            Message Size "),
        reach=4 << 20,
    ),
    Format(
        "rank-timers",
        "rank_timers",
        tables=("rank_time",),
        inside=(b"across ranks (ms):", b" fwd", b" forward", b"_fwd", b"|fwd"),
        reach=4 << 20,
        after=("training-records", "profile-summary", "stacks", "deepspeed-comms", "nccl-tests"),
    ),
    Format(
        "printed-tables",
        "printed_tables",
        tables=("throughput_run", "step"),
        inside=(b"|    fps  ", b"  epoch  ", b"epoch     train_loss"),
        reach=4 << 20,
        after=("training-records", "profile-summary", "stacks"),
    ),
    Format(
        "training-steps",
        "steps.step_lines",
        tables=("throughput_run", "step", "run_setting", "loss_scale", "training_event", "comm_op", "scalar"),
        # Literals of step lines that ordinary output does not have; see `steps.step_formats` and its neighbours.
        inside=(
            b"elapsed_time_per_iteration_ms=",
            b"images/sec: ", b"/sec per ", b'"ups": ', b", ups=", b"elapsed time per iteration (", b"SamplesPerSec=", b" | step: ",
            b"'train_samples_per_second'", b"it/s]", b"it/s, ", b"s/it]", b"s/it, ", b"  tps: ", b"mtps: ",
            b"throughput/samples_per_sec: ", b"throughput/device/", b" examples/second between steps ", b" examples/sec; ",
            b"Epoch: [", b"data_time", b"BatchTimestamp<batch_index: ", b"| comm op: ", b"/s)  LR: ", b" algo throughput: ",
            b"ms, mfu ", b" tokens_per_second_per_gpu:", b", Tokens/s/device: ", b"train_step_timing in s",
            b" timing_s/step:", b" Time: ", b" Time=", b"train_time", b"step_total", b"ime taken: ", b"it/s remaining:", b"s/it remaining:",
            b"it/s ", b"s/it ",
            b" step_avg:", b'"_type": "train_',
            b"tgs (tokens/gpu/second)=", b" words/s : ", b"Total step time: ", b"| steps/sec ", b"  wps: ", b", TFLOP/s: ",
            b"{'loss': ", b" \xe2\x80\xa2 0:",
            b"'tokens_per_second_per_gpu': ", b"'tokens/train_per_sec_per_gpu': ", b"\tTok/s ",
            b"tks/s", b" wps", b"sents/s",
            b"tokens/s", b"tok/s", b"toks/s", b"tokens_per_s", b" tps ", b"tps=", b"samples/s", b"sample/s", b"images/s", b"imgs/s",
            b"img/s", b"examples/s", b"ex/s", b"seq/s", b"seqs/s", b"sequences/s", b"samples_per_s", b"images_per_s",
            b"examples_per_s", b"steps/s", b"step/s", b"iter/s", b"iters/s", b"batches/s", b"steps_per_s", b"global_step/sec",
            b"step_time", b"step time", b"iter_time", b"iter time", b"batch_time", b"batch time", b"time/step", b"time_per_step",
            b" time ", b" dt: ", b" dt=", b" dt ", b" sec", b"_ms", b"_duration", b" per step", b" per iteration",
            b" : iter_speed ", b" sec/step, elapsed ", b") Batch ",
            b"Tokens/s", b"Samples/s", b"'train_speed(", b"'perf/step_time': ", b"'throughput': ",
            b"time per step", b" time: ", b" time=", b" took ", b" Batch (t): ", b"s/step",
            b" sec)", b"s - loss: ", b"s/sample - ", b" - ETA: ", b"s/iter",
            b"poch time", b"poch_time", b"poch duration", b"poch took", b"batch_cost", b"s/batch", b" it/s", b" s/it", b" ms",
        ),
        # A log without NCCL lines is named after the first reader that could use it, and any job can print steps.
        after=(
            "profile-summary", "profiler-table", "gpu-samples", "nvidia-smi", "node-capture", "nccl-tests", "stacks", "training-records",
            "deepspeed-comms", "printed-tables", "rank-timers",
        ),
    ),
)  # fmt: skip
