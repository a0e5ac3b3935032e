"""Lines of programs that print one metric a line below the number of the step, or one line an epoch, and bars that are not tqdm's.

Sources: ConsoleLogger of Composer, `console_logger.py` of OLMo-core, `TimeMonitor` of MindSpore, `MFLossMonitor` of MindFormers
(`callback.py`, 0.6 to 1.8); tqdm_loggable 0.4, Ultralytics 8.4::

    [step=120/10000,epoch=1,eta=2:30:02]
        throughput/device/TPS=12,300
    Train epoch time: 252345.600 ms, per step time: 252.346 ms
    { Epoch:[  1/  2], step:[    2/   19], loss: 10.6, per_step_time: 1752ms, lr: 1e-05, …, train_throughput_per_npu: 170.7T
    INFO :: Progress on:train 18.0it/120it rate:8.3it/s remaining:00:12 elapsed:00:02 postfix:loss=0.238
       3/12         0G      2.925      1.886         7         64: 66% ━━━━━━━━──── 4/6 1.1it/s 3.9s<1.9s
"""

from nccl_doctor.formats.training.steps.step_formats import NUMBER, RATE, SECONDS, Tool, by, without

_OF_TRAINING = rb"Progress on:(?![^:]{0,60}(?i:eval|valid|test))[^:/]{0,80}? ?"
_COUNTED = rb"(?P<step>\d{1,3}(?:\.\d{1,2})?)(?:it|step)?/\d[\d.]{0,6}[kMG]?(?:it|step)?"
_OF_EPOCH = rb"(?<![\d/.])(?P<epoch>\d{1,6})/\d{1,6} {2,20}[^%\n]{0,300}? \d{1,3}% [^\d|%\n]{3,300} "

TOOLS = (
    Tool(
        b", TFLOP/s: ",
        "maxtext",  # of 2023, in a line of its own too but with its step
        "samples/s",
        "job",
        by(rb"completed step: (?P<step>\d+), seconds: " + SECONDS + rb", TFLOP/s: "),
    ),
    *(
        Tool(
            literal,
            "tqdm-log",
            "samples/s",
            "job",
            by(_OF_TRAINING + _COUNTED + rb" rate:" + rate + literal),
            is_guess=True,
        )
        for literal, rate in (
            (b"it/s remaining:", rb"(?P<speed>\d[\d,]{0,12}\.\d{1,3})"),
            (b"s/it remaining:", rb"(?P<seconds>\d[\d,]{0,12}\.\d{1,3})"),
        )
    ),
    *(
        Tool(
            literal,
            "epoch-bar",
            "samples/s",
            "job",
            by(_OF_EPOCH + rb"(?P<step>\d{1,9})/(?P<total>\d{1,9}) " + rate + literal + rb"\d"),
            is_guess=True,
        )
        for literal, rate in (
            (b"it/s ", rb"(?P<speed>\d{1,9}(?:\.\d{1,3})?)"),
            (b"s/it ", rb"(?P<seconds>\d{1,9}(?:\.\d{1,3})?)"),
        )
    ),
    Tool(b"throughput/samples_per_sec: ", "composer", "samples/s", "job", by(rb"throughput/samples_per_sec: " + RATE)),
    *(
        Tool(
            b"throughput/device/" + key + b"=",
            "olmo",
            "tokens/s",
            "gpu",
            by(rb"throughput/device/" + key + rb"=(?P<rate>\d[\d,]{0,18}(?:\.\d{1,9})?)\s*$"),
        )
        for key in (b"TPS", b"tokens_per_second")
    ),
    Tool(
        b", per_step_time: ",
        "mindformers",
        "samples/s",
        "job",
        by(
            rb"\{ Epoch:\[ *(?P<epoch>\d+)/ *\d+\], step:\[ *(?P<step>\d+)/ *(?P<total>\d+)\], .{0,200}?, per_step_time: (?P<milliseconds>"
            + NUMBER
            + rb")ms"
        ),
    ),
    Tool(
        b"per step time: ",
        "mindspore",
        "samples/s",
        "job",
        without(
            b"Eval",
            by(rb"epoch time: ?" + NUMBER + rb" ms, per step time: ?(?P<milliseconds>" + NUMBER + rb") ms"),
        ),
    ),
)
