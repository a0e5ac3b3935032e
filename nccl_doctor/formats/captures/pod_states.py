"""How the containers of a pod ended, as `kubectl describe pod` and `kubectl get pods -o yaml` say it, with the name of the pod.

The rows are those that the patterns for `kubectl get pods` make, so that the same rules judge all of them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import Message, ProcessEnd
from nccl_doctor.formats.declaration import Reading
from nccl_doctor.inputs.streams import Readable
from nccl_doctor.inputs.text_lines import plain_batches

_MOST_PODS = 20_000
_NAME = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,200}?[a-z0-9])?)(?:-(\d{1,5}))?(-[a-z0-9]{5})?")
_FIELD = re.compile(r"( {0,8})([A-Z][A-Za-z ]{2,20}):(?:\s{1,24}(\S.{0,200}?))?\s*$")
_CONTAINER = re.compile(r" {2}([a-z0-9][a-z0-9.-]{0,62}):\s*$")
_LISTS = ("Init Containers", "Containers")
_WAITS = ("ContainerCreating", "PodInitializing")
Place = tuple[int, str]  # number and text of a line
Find = Callable[[str, str, Place], Place]
"""The first line behind a place that gives a key a value, or the place itself."""


class _Exit(NamedTuple):
    """How a container ended once."""

    reason: str
    status: int
    place: Place


class _Pod:
    """What is known of one pod."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.namespace: str | None = None
        self.node: str | None = None
        self.phase = "Unknown"
        self.containers = self.ready = self.restarts = 0
        self.reasons: list[tuple[str, Place]] = []  # of containers that do not run, where they stand
        self.exits: list[_Exit] = []

    def rows(self, facts: Facts, file: str, *, named: bool) -> Iterator[Message | ProcessEnd]:
        """Its row of a list of pods, the containers that memory ran out for, and the statuses with which others ended."""
        parts = _NAME.fullmatch(self.name)
        status, place = self.reasons[-1] if self.reasons else (self.phase, self.place)
        if parts is not None and status != "Unknown":
            words = {
                "pods": parts[1], "index": parts[2], "suffix": parts[3], "ready": str(self.ready), "containers": str(self.containers),
                "status": status, "restarts": str(self.restarts), "node": self.node, "namespace": self.namespace if named else None,
            }  # fmt: skip
            yield self._message(facts, file, "k8s-pod-listed", words, place)
        for one in self.exits:
            if one.reason == "OOMKilled" and self.containers:
                yield self._message(facts, file, "k8s-oom-killed", {"pod": self.name}, one.place)
            if one.status:
                yield ProcessEnd(
                    host=self.name or None, rank=None, local_rank=None, pid=None, exitcode=one.status,
                    signal=None, reporter="kubernetes", first=None, job=None, n=1, stamp=None, ref=facts.evidence(file, *one.place),
                )  # fmt: skip

    def _message(self, facts: Facts, file: str, kind: str, words: Mapping[str, str | None], place: Place) -> Message:
        return Message(
            kind=kind, level=None, host=self.name or None, rank=None, pid=None, source=None, text=place[1],
            fields=json.dumps({key: word for key, word in words.items() if word is not None}), n=1, last_line=place[0], stamp=None,
            ref=facts.evidence(file, *place),
        )  # fmt: skip


def pod_rows(documents: list[dict[str, Any]], find: Find, file: str, facts: Facts) -> list[Message | ProcessEnd]:
    """The rows of the pods that have a status; none for templates."""
    pods = [pod for document in documents if (pod := _of_document(document, find)) is not None]
    named = len({pod.namespace for pod in pods}) > 1
    return [row for pod in pods for row in pod.rows(facts, file, named=named)]


def _of_document(document: dict[str, Any], find: Find) -> _Pod | None:
    status, metadata = _dict(document.get("status")), _dict(document.get("metadata"))
    if not status or not isinstance(metadata.get("name"), str):
        return None
    pod = _Pod(metadata["name"], find("name", metadata["name"], (0, "")))
    pod.namespace = _text(metadata.get("namespace"))
    pod.node = _text(_dict(document.get("spec")).get("nodeName"))
    pod.phase = _text(status.get("reason")) or _text(status.get("phase")) or "Unknown"
    for before, key in (("Init:", "initContainerStatuses"), ("", "containerStatuses")):
        containers = status.get(key)
        for container in containers if isinstance(containers, list) else ():
            _add_container(pod, _dict(container), before, find)
    return pod


def _add_container(pod: _Pod, container: dict[str, Any], before: str, find: Find) -> None:
    restarts = container.get("restartCount")
    pod.restarts += restarts if type(restarts) is int and 0 <= restarts < 1_000_000 else 0
    if not before:
        pod.containers += 1
        pod.ready += container.get("ready") is True
    for key in ("state", "lastState"):
        states = _dict(container.get(key))
        reason = _text(_dict(states.get("waiting")).get("reason"))
        ended = _dict(states.get("terminated"))
        status, why = ended.get("exitCode"), _text(ended.get("reason"))
        if type(status) is int and 0 <= status < 256:
            pod.exits.append(_Exit(why or "", status, find("exitCode", str(status), pod.place)))
            reason = reason or why
        if key == "state" and reason is not None and not (before and reason in ("Completed", *_WAITS)):
            pod.reasons.append((before + reason, find("reason", reason, pod.place)))


def read_format(stream: Readable, name: str, facts: Facts) -> Reading:
    """Read every description of a file.

    Source: `kubectl describe pod` (staging/src/k8s.io/kubectl/pkg/describe)::

        Name:             train-worker-0
            Last State:     Terminated
              Exit Code:    137
            Restart Count:  7
    """
    pods: list[_Pod] = []
    readers: dict[str | None, _Description] = {}
    lines = used = 0
    for first, label, texts in plain_batches(stream):
        lines += len(texts)
        reader = readers.get(label.host)
        if reader is None:
            if len(readers) >= _MOST_PODS:
                continue
            reader = readers[label.host] = _Description(label.host, pods)
        for number, text in enumerate(texts, first):
            used += reader.take(text, number)
    facts.mark_covered("message", "process_end")
    named = len({pod.namespace for pod in pods}) > 1
    note = f"describes more than {_MOST_PODS:,} pods; the others were left out" if len(pods) >= _MOST_PODS else None
    facts.add(row for pod in pods for row in pod.rows(facts, name, named=named))
    return Reading(lines, used, note)


class _Description:
    """The lines of one writer, one description after the other."""

    def __init__(self, label: str | None, pods: list[_Pod]) -> None:
        self._label = label  # of the record of a pod, which names no pod itself
        self._pods = pods
        self._pod: _Pod | None = None
        self._list = ""  # which containers follow
        self._state = ""
        self._reason = ""

    def take(self, text: str, number: int) -> bool:
        """Use a line; False where it says nothing of a pod."""
        if self._list and self._pod is not None and _CONTAINER.match(text):
            self._pod.containers += self._list == "Containers"
            self._state = ""
            return True
        found = _FIELD.match(text)
        if found is None:
            return False
        depth, title, value, place = len(found[1]), found[2], found[3] or "", (number, text.strip())
        if depth == 0:
            return self._of_pod(title, value, place)
        if title in ("State", "Last State"):
            self._state, self._reason = title, ""
            return True
        if title == "Reason":
            self._why(value, place)
        elif title == "Exit Code" and value.isdecimal() and len(value) < 4:
            self._ended(int(value), place)
        elif title == "Ready" and self._list == "Containers" and self._pod is not None:
            self._pod.ready += value == "True"
        elif title == "Restart Count" and value.isdecimal() and len(value) < 7 and self._pod is not None:
            self._pod.restarts += int(value)
        else:
            return False
        return True

    def _of_pod(self, title: str, value: str, place: Place) -> bool:
        if title == "Name":
            self._list = self._state = ""
            if len(self._pods) < _MOST_PODS:
                self._pod = _Pod(value, place)
                self._pods.append(self._pod)
        elif self._pod is None:
            return False
        elif title == "Namespace":
            self._pod.namespace = value
        elif title == "Node":
            self._pod.node = value.partition("/")[0] if value not in ("", "<none>") else None
        elif title in ("Status", "Reason"):
            self._pod.phase = value or self._pod.phase
        else:
            self._list = title if title in _LISTS else ""
            return bool(self._list)
        return True

    def _why(self, reason: str, place: Place) -> None:
        self._reason = reason
        if self._pod is None or self._state != "State" or not reason:
            return
        before = "Init:" if self._list == "Init Containers" else ""
        if not (before and reason in ("Completed", *_WAITS)):
            self._pod.reasons.append((before + reason, place))

    def _ended(self, status: int, place: Place) -> None:
        pod = self._pod
        if pod is None:
            pod = self._pod = _Pod(self._label or "", place)
            self._pods.append(pod)
        pod.exits.append(_Exit(self._reason, status, place))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
