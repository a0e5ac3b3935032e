"""What trackers of experiments keep of a run: TensorBoard, Weights & Biases, MLflow, Comet, ClearML, Neptune, tables."""

from nccl_doctor.common.expressions import compiled
from nccl_doctor.formats.declaration import Format

FORMATS = (
    Format(
        "tensorboard",
        "tensorboard",
        tables=("throughput_run", "step", "scalar", "training_event"),
        begins=compiled(rb"(?s)\A.{8}.{4}\x09.{8}.{0,12}\x1a\x0dbrain\.Event:2"),
    ),
    Format(
        "training-table",
        "metric_tables",
        tables=("throughput_run", "step", "scalar"),
        # titles, one of them the step, and a row of numbers; Keras has epochs only
        begins=compiled(
            rb"(?i)\A(?:\xef\xbb\xbf)?(?=(?:[^\r\n]{0,4000},)?\"?(?:_?step|global[_ ]step|trainer/global_step|iter(?:ation)?)\"?[,\r\n]"
            rb"|[ ]{0,60}epoch,[^\r\n]{0,4000}loss)(?=[\w\"./ ,])(?:\"[^\"\r\n]{0,400}\"|[^\r\n\"\[\]{}:;=]){3,16000}\r?\n"
            rb"(?=[-+\d. \"enaif]{0,400},)[-+\d., \"enaif]{1,20000}(?:\r?\n|\Z)"
            # behind the name of a host
            rb"|\A(?:\xef\xbb\xbf)?"
            rb"(?=(?:host|node|worker)[_ ]?(?:name)?,(?:[^\r\n]{0,4000},)?(?:_?step|global[_ ]step|iter(?:ation)?)[,\r\n])"
            rb"[^\r\n\"\[\]{}:;=]{3,16000}\r?\n[\w.-]{1,80},[-+\d.,enaif]{1,20000}(?:\r?\n|\Z)"
        ),
        after=("gpu-samples", "profile-summary", "slurm-accounting", "node-capture", "nccl-tests"),
        leads=True,
        quotes=True,
    ),
    Format(
        "metric-files",
        "metric_files",
        tables=("throughput_run", "step", "scalar", "process_end"),
        begins=compiled(
            rb"\A(?:timestamp\t)?step\t[^\t\r\n]{1,200}\r?\n(?:\d{1,16}\t)?\d{1,15}\t-?(?:\d|nan|inf)"  # DVCLive
            rb"|\A\s{0,20}\{\s{0,40}\"[^\"\n]{1,200}\"\s{0,4}:\s{0,4}\{\s{0,40}\"(?:steps|timestamps|values)\"\s{0,4}:\s{0,4}\["  # Sacred
            rb"|\A\s{0,20}\{\s{0,40}\"[^\"\n]{1,200}\"\s{0,4}:\s{0,4}\{\s{0,40}\"start_step\"\s{0,4}:\s{0,4}\d{1,12},"  # Megatron-LM
            rb"|\A\s{0,20}\{\s{0,40}\"artifacts\"\s{0,4}:\s{0,4}\[(?=[\s\S]{0,60000}?\"experiment\"\s{0,4}:\s{0,4}\{)"
            rb"(?=[\s\S]{0,60000}?\"heartbeat\"\s{0,4}:|[\s\S]{0,60000}?\"start_time\"\s{0,4}:)"
        ),
        leads=True,
        quotes=True,
    ),
    Format(
        "mlflow-store",
        "mlflow_store",
        tables=("throughput_run", "step", "scalar", "process_end"),
        begins=compiled(
            rb"\A(?:1[4-9]\d{11} (?:-?(?:\d[\d.]{0,40}(?:e[+-]?\d{1,3})?|inf)|nan)(?: -?\d{1,15})?(?: [^\n]{1,400})?"
            rb"(?:\r?\n|\Z)){1,3}(?:\Z|1[4-9]\d{11} )"
            rb"|\A(?=[^\0]{0,4000}\nlifecycle_stage: )(?:artifact_uri|artifact_location): "
        ),
    ),
    Format(
        "tracker-events",
        "scalar_events",
        tables=("throughput_run", "step", "scalar"),
        begins=compiled(
            rb"\A\s{0,200}\{\"payload\": ?\{\"(?:installed_packages|local_timestamp|message_id|os_packages|metric|param)\""
            rb"|\A\s{0,200}\[?\{\"timestamp\": ?\d{10,16}, ?\"type\": ?\"training_stats_\w{1,40}\", ?\"task\": ?\""
            rb"|\A\s{0,200}\{\"obj\": ?\{\"type\": ?\"\w{1,40}\", ?\"path\": ?\["
        ),
    ),
    Format(
        "wandb-run",
        "wandb_run",
        tables=("throughput_run", "step", "scalar", "process_end", "gpu_use", "gpu_sample"),
        begins=compiled(rb"\A:W&B\xe1\xbe"),
    ),
)  # fmt: skip
