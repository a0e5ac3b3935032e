"""Logs that a log service, a container runtime or a JSON logger wrote, read as the lines of the job behind them."""

from nccl_doctor.inputs.exports.exported import COLLECTED, Exported, is_docker, recognise

__all__ = ["COLLECTED", "Exported", "is_docker", "recognise"]
