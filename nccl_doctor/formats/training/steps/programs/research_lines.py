r"""Step lines of programs that research groups published: modded-nanogpt, llm.c, fairseq2, InternEvo, NeMo-RL, Marian and others.

Sources: `train_gpt.py` of modded-nanogpt, `train_gpt2.cu` of llm.c, `recorders/log.py` of fairseq2, `train.py` of InternEvo,
`grpo.py` of NeMo-RL, `scheduler.h` of Marian, `executor.py` of WeNet, `callback.py` of ms-swift, `train_metric_utils.py` of
slime, `perf.py` of DeepSpeed-Chat (2023, and since), `trainer.py` of NVIDIA's GNMT, `callbacks.py` of LLaMA-Factory
(`include_effective_tokens_per_second`), `iter_speed.py` of Cosmos, `on_policy_runner.py` of RSL-RL, `utils/logging.py` of
SlowFast and pycls, `TFEngine.py` of RETURNN, `tool/train.py` and `tool/test.py` of semseg::

    step:126/1750 train_time:12432ms step_avg:98.67ms
    step    1/18865 | loss 11.0 (+nanz)| norm 15.4 (+nanz)| lr 8.6e-07 | 3321.91 ms | 48.3% bf16 MFU | 157849 tok/s
    Train Metrics (step 20) - Loss: 2.31 | Learning Rate: 1.2e-05 | Elements per Second: 151,020 | Peak Active Device Memory: 18.4 GiB
    tflops=63.27,step=0,loss=11.63,tgs (tokens/gpu/second)=1424.64,lr=4e-07
    Ep. 1 : Up. 500 : Sen. 412,345 : Cost 8.9 * 5,123 @ 10 after 5,123 : Time 46.02s : 111332.97 words/s : gNorm 1.1
    TRAIN | steps/sec 2.631| Batch 0/100 loss 12.1 loss_ctc 13.0 lr 0.0001 rank 0
    {'loss': 1.99, 'train_speed(iter/s)': 0.412, 'global_step/max_steps': '5/900'}
    {'loss': '1.99', 'iteration': '5/900', 'train_speed(s/it)': '2.43'}
    perf 3: {'perf/train_wait_time': 101.2, 'perf/actor_train_tok_per_s': 9123.1, 'perf/step_time': 152.3}
    {'loss': 1.99, 'learning_rate': 1e-05, 'epoch': 0.01, 'throughput': 4123.12}
    20 : iter_speed 7.82 seconds per iteration | Loss: 1.8906
                        Iteration time: 1.18s
    |E2E latency=3.84s |Gather latency=0.00s (0.00%) |Generate time=2.53s (66.02%) |…|CurSamplesPerSec=16.67 |AvgSamplesPerSec=15.19
    End-to-End => Latency: 5.11s, TFLOPs: 12.31, Samples/sec: 6.26, Time/seq 0.16s, Batch Size: 32, Total Seq. Length: 512
    Model Parameters: 1.429 B, Latency: 0.41s, TFLOPs: 66.10, Samples/sec: 39.02, Time/seq 0.03s, Batch Size: 16, Sequence Length: 512
    0: TRAIN [0][10/981]\tTime 0.312 (0.330)\tData 1.2e-03 (3.4e-02)\tTok/s 82412 (79004)\tLoss/tok 8.9 (9.4)\tLR 1.2e-04
    0: Performance: Epoch: 0\tTraining: 661440 Tok/s\tValidation: 355792 Tok/s
    json_stats: {"_type": "train_iter", "dt": 0.61, "dt_data": 0.01, "dt_net": 0.60, "epoch": "3/40", "iter": "20/500", "loss": 2.1}
    train epoch 12, step 840, cost:output/output_prob 0.31, loss 201.4, num_seqs 9, 0.842 sec/step, elapsed 0:11:47, exp. remaining 0:09:02
    Epoch: [3/50][20/743] Data 0.004 (0.031) Batch 0.812 (0.845) Remain 08:12:44 MainLoss 0.6120 Loss 0.8311 Accuracy 0.8512.
    Test: [20/500] Data 0.210 (0.244) Batch 1.905 (1.961).
"""

from nccl_doctor.formats.training.steps.step_formats import DATA, EPOCH, NUMBER, RATE, SECONDS, SPEED, Tool, by

_METER = rb"\] Data " + DATA + rb" \(\d[\d.]{0,15}\) Batch " + SECONDS + rb" \("
_STATS = rb'json_stats: \{.{0,300}?"_type": "train_'
TOOLS = (
    Tool(
        b" step_avg:",
        "nanogpt-speedrun",  # of modded-nanogpt: the average is since the start, or since the validation before
        "samples/s",
        "job",
        by(
            rb"\bstep:(?P<step>\d+)/\d+ .{0,200}?\btrain_time:(?:(?P<clock_milliseconds>"
            + NUMBER
            + rb")ms|(?P<clock>"
            + NUMBER
            + rb")s) step_avg:(?P<milliseconds>"
            + NUMBER
            + rb")ms"
        ),
    ),
    Tool(
        b" ms | ",
        "llm.c",
        "tokens/s",
        "job",
        by(
            rb"\bstep +(?P<step>\d+)/\d+ \|(?: train)? loss .{0,200}?\| +(?P<milliseconds>"
            + NUMBER
            + rb") ms \|(?:[^|]{1,40}MFU \|)? +"
            + RATE
            + rb" tok/s"
        ),
    ),
    Tool(
        b" ms, ",
        "llm.c",  # its first versions
        "tokens/s",
        "job",
        by(
            rb"\bstep +(?P<step>\d+)/\d+: train loss .{0,80}?\((?P<milliseconds>"
            + NUMBER
            + rb") ms, "
            + RATE
            + rb" tok/s\)"
        ),
    ),
    Tool(
        b"Elements per Second: ",
        "fairseq2",
        "tokens/s",
        "job",
        by(
            rb"\bTrain(?: Metrics)? \(step (?P<step>\d+)\).{0,2000}?(?<!/)Elements per Second: (?P<rate>\d[\d,]*(?:\.\d+)?)"
        ),
    ),
    Tool(
        b"tgs (tokens/gpu/second)=",
        "internevo",
        "tokens/s",
        "gpu",
        by(rb"\bstep=(?P<step>\d+)\b.{0,400}?tgs \(tokens/gpu/second\)=" + RATE),
    ),
    Tool(
        b"Total step time: ",
        "nemo-rl",
        "samples/s",
        "job",
        by(rb"Total step time: " + SECONDS + rb"s(?!\w)"),
    ),
    Tool(
        b" words/s : ",
        "marian",
        "tokens/s",
        "job",
        by(rb"\bUp\. (?P<step>\d+) : .{0,300}?: Time \d[\d.]{0,20}s : " + RATE + rb" words/s "),
    ),
    Tool(
        b"| steps/sec ",
        "wenet",
        "samples/s",
        "job",
        by(rb"TRAIN \| steps/sec " + SPEED + rb"\| Batch \d+/(?P<step>\d+) loss "),
    ),
    *(
        Tool(
            b"'train_speed(" + unit + b")'",
            "ms-swift",
            "samples/s",
            "job",
            by(
                rb"\{(?=.{0,4000}?'(?:global_step/max_steps|iteration)': '(?P<step>\d{1,12})/\d)"
                rb".{0,4000}?'train_speed\(\w{1,4}/\w{1,4}\)': '?" + value
            ),
        )
        for unit, value in ((b"iter/s", SPEED), (b"s/it", SECONDS))
    ),
    Tool(
        b"'perf/step_time': ",
        "slime",
        "samples/s",
        "job",
        by(rb"perf (?P<step>\d{1,12}): \{.{0,30000}?'perf/step_time': " + SECONDS),
    ),
    Tool(
        b"'throughput': ",
        "llama-factory",
        "tokens/s",
        "job",
        by(rb"\{'loss': .{0,400}?'learning_rate': .{0,400}?'epoch': .{0,200}?'throughput': '?" + RATE),
    ),
    Tool(
        b" : iter_speed ",
        "cosmos",
        "samples/s",
        "job",
        by(rb"(?P<step>\d{1,12}) : iter_speed " + SECONDS + rb" seconds per iteration"),
    ),
    Tool(
        b" Iteration time: ",
        "rsl-rl",  # below the number of the iteration
        "samples/s",
        "job",
        by(rb"^\s{4,60}Iteration time: " + SECONDS + rb"s\s*$"),
    ),
    Tool(
        b'"_type": "train_iter',
        "slowfast",
        "samples/s",
        "job",
        by(
            _STATS
            + rb'iter\w{0,20}", .{0,200}?"(?:dt|time_avg)": '
            + SECONDS
            + rb',.{0,300}?"epoch": "(?P<epoch>\d{1,9})/.{0,300}?"iter": "(?P<step>\d{1,12})/(?P<total>\d{1,12})'
        ),
    ),
    Tool(
        b'"_type": "train_epoch',
        "slowfast-epochs",  # the mean of the iterations of each
        "samples/s",
        "job",
        by(
            _STATS
            + rb'epoch\w{0,20}", .{0,200}?"(?:dt|time_avg)": '
            + SECONDS
            + rb',.{0,300}?"epoch": "(?P<step>\d{1,9})/'
        ),
    ),
    Tool(
        b"|E2E latency=",
        "deepspeed-chat",  # of a whole step of RLHF, of which training is a part
        "samples/s",
        "job",
        by(rb"\|E2E latency=" + SECONDS + rb"s \|.{0,300}?\|CurSamplesPerSec=" + RATE),
    ),
    *(
        Tool(
            literal,
            "deepspeed-chat",
            "samples/s",
            "job",
            by(front + SECONDS + rb"s, TFLOPs: [\d.]+, Samples/sec: " + RATE),
        )
        for literal, front in (
            (b"End-to-End => Latency: ", rb"End-to-End => Latency: "),
            (b" B, Latency: ", rb"Model Parameters: [\d.]+ B, Latency: "),
        )
    ),
    Tool(
        b"\tTok/s ",
        "gnmt",
        "tokens/s",
        "process",
        by(rb"TRAIN " + EPOCH + rb"\]\s+Time " + SECONDS + rb" .{0,40}?Data " + DATA + rb" .{0,40}?Tok/s " + RATE),
    ),
    Tool(
        b"Performance: Epoch: ",
        "gnmt-epochs",
        "tokens/s",
        "job",
        by(rb"Performance: Epoch: (?P<step>\d+)\s+Training: " + RATE + rb" Tok/s"),
    ),
    Tool(
        b" sec/step, elapsed ",
        "returnn",
        "samples/s",
        "job",
        by(rb"\btrain epoch \d{1,9}, step (?P<step>\d{1,12}), .{0,2000}? " + SECONDS + rb" sec/step, elapsed "),
    ),
    Tool(
        b") Batch ",
        "semseg",
        "samples/s",
        "job",
        by(rb"Epoch: \[(?P<epoch>\d{1,9})/\d{1,9}\]\[(?P<step>\d{1,12})/(?P<total>\d{1,12})" + _METER),
    ),
    Tool(b"] Data ", "semseg-test", "samples/s", "job", by(rb"Test: \[(?P<step>\d{1,12})/\d{1,12}" + _METER)),
)
