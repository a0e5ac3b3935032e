"""Lines of programs that print one metric a line below the number of the step, or one line an epoch: these name no step.

Sources: ConsoleLogger of Composer, `console_logger.py` of OLMo-core, `TimeMonitor` of MindSpore::

    [step=120/10000,epoch=1,eta=2:30:02]
        throughput/device/TPS=12,300
    Train epoch time: 252345.600 ms, per step time: 252.346 ms
"""

from nccl_doctor.formats.training.steps.step_formats import NUMBER, RATE, Tool, by, without

TOOLS = (
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
