"""The step lines of TensorFlow's own programs: tf_cnn_benchmarks, the official models, Estimator and Keras.

Sources: `benchmark_cnn.py`; `LoggingTensorHook` in `basic_session_run_hooks.py`; `Progbar` in Keras' `generic_utils.py` and, from
Keras 3, `progbar.py`::

    10	images/sec: 2850.3 +/- 1.2 (jitter = 3.1)	7.821
    INFO:tensorflow:loss = 2.31, step = 200 (8.214 sec)
    100/100 [==============================] - 12s 120ms/step - loss: 2.31
    100/100 - 12s - loss: 2.31 - 12s/epoch - 120ms/step
"""

from nccl_doctor.formats.training.steps.step_formats import RATE, SECONDS, Find, Tool, by, without

_OF = rb"(?<![\d/])(?P<done>\d{1,15})/(?P<of>\d{1,15}) "
_EPOCH = _OF + rb"(?:\[=|\xe2\x94\x81|- ).{0,400}? (?:(?P<shown>\d{1,9})s (?:- )?)?"
_PER_STEP = rb"(?:(?P<milliseconds>\d{1,9})ms|(?P<seconds>\d{1,9})s|(?P<microseconds>\d{1,9})us)/step"


def _either(*finds: Find) -> Find:
    """The first that finds anything."""
    return lambda line: next((fields for find in finds if (fields := find(line)) is not None), None)


_TABLE = by(_OF + rb"- (?P<shown>\d{1,9})s - .{0,400}?s/epoch - " + _PER_STEP)  # TensorFlow 2.6 to 2.15, verbose=2
_KERAS = (
    # of an epoch, whose bar and line end with the mean time of its steps
    (b"s/step - ", by(_EPOCH + _PER_STEP + rb" - ")),
    (b"s/epoch - ", _TABLE),
    (
        b"s - loss: ",
        _either(_TABLE, by(_OF + rb"- (?P<shown>\d{1,9})s - loss: ")),
    ),  # and before: whole seconds of the epoch
    # arrays, in TensorFlow before 2.2: samples are counted
    (
        b"s/sample - ",
        by(_OF + rb"\[=.{0,400}? (?:(?P<sample_milliseconds>\d{1,9})ms|(?P<sample_microseconds>\d{1,9})us)/sample - "),
    ),
)

TOOLS = (
    Tool(
        b"images/sec: ",
        "tf-cnn-benchmarks",
        "samples/s",
        "job",
        without(b"total ", by(rb"(?P<step>\d{1,20})\s{1,40}images/sec: " + RATE)),
    ),
    Tool(
        b" examples/second between steps ",
        "tf-official",
        "samples/s",
        "job",
        by(
            rb"TimeHistory: "
            + SECONDS
            + rb" seconds, "
            + RATE
            + rb" examples/second between steps (?P<first>\d+) and (?P<step>\d+)"
        ),
    ),
    Tool(
        b" examples/sec; ",
        "tf-tutorial",
        "samples/s",
        "job",
        by(rb"\bstep (?P<step>\d+), .{0,80}?\(" + RATE + rb" examples/sec; " + SECONDS + rb" sec/batch\)"),
    ),
    Tool(
        b" sec)",
        "tf-estimator",  # whose line tells the seconds since the one before, mostly of 100 steps
        "samples/s",
        "job",
        by(
            rb"(?:[\w/.-]{1,80} = [^,=]{1,60}, ){0,9}(?:global_|\b)step = (?P<step>\d{1,15})(?:, [\w/.-]{1,80} = [^,=]{1,60}){0,9}"
            rb" \((?P<since>\d{1,9}\.\d{1,6}) sec\)"
        ),
    ),
    *(Tool(literal, "keras", "samples/s", "job", find) for literal, find in _KERAS),
    Tool(
        b" - ETA: ",
        "keras-progress",  # the mean of the epoch so far, for one that never ended
        "samples/s",
        "job",
        without(
            b"s/step",
            by(
                rb"(?<![\d/])(?P<step>\d{1,15})/(?P<total>\d{1,15}) \[[=>.]{1,80}\] - ETA: "
                rb"(?:(?:(?P<left_hours>\d{1,6}):)?(?P<left_minutes>\d{1,3}):)?(?P<left>\d{1,3})(?![\d:])"
            ),
        ),
        is_guess=True,
    ),
)
