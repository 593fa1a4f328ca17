"""What TensorBoard shows of a run."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import scalar, text

log = logging.getLogger("transformer")


class EventFile:
    """Numbers and texts by step for TensorBoard; if they cannot be written, training goes on
    without them after one warning.

    Each is written when it comes. torch's `SummaryWriter` leaves that to a thread, which ends in a
    traceback on a full disk.

    Args:
        folder: where TensorBoard looks. Older files there are cut off where what this run will
            write anew begins.
        after_step: the step that the run goes on from.
        validated_step: the last one that it has validated.
    """

    def __init__(self, folder: Path, after_step: int, validated_step: int) -> None:
        with suppress(OSError):  # the first event meets it again
            folder.mkdir(exist_ok=True)
            for path in folder.glob("events.out.tfevents.*"):
                _cut(path, after_step, validated_step)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / name
        self._works = True
        start = SessionLog(status=SessionLog.START)
        version = Event(file_version="brain.Event:2")
        self._append(version, Event(step=after_step + 1, session_log=start))

    def write_numbers(self, step: int, numbers: Mapping[str, float]) -> None:
        """Appends numbers by their names."""
        self._append(*(Event(step=step, summary=scalar(k, x)) for k, x in numbers.items()))

    def write_text(self, step: int, name: str, content: str) -> None:
        """Appends a text."""
        self._append(Event(step=step, summary=text(name, content)))

    def _append(self, *events: Event) -> None:
        if not self._works:
            return
        try:
            with self._path.open("ab") as file:
                for event in events:
                    event.wall_time = time.time()
                    RecordWriter(file).write(event.SerializeToString())
        except OSError as error:
            self._works = False
            reason = error.strerror or error
            log.warning("%s: %s; training goes on without TensorBoard", self._path.parent, reason)


def _cut(path: Path, after_step: int, validated_step: int) -> None:
    """Cuts an event file off before the first number or text that the run will write anew, and
    before an event that a killed process has not finished.
    """
    with path.open("r+b") as file:
        size, end = path.stat().st_size, 0
        while end < size:
            length = int.from_bytes(file.read(8), "little")  # then its checksum, the event, another
            if end + 16 + length > size:
                break
            try:
                event = Event.FromString(file.read(4 + length + 4)[4:-4])
            except DecodeError:
                break
            names = [value.tag for value in event.summary.value]
            last = after_step if names and names[0].startswith("train/") else validated_step
            if names and event.step > last:
                break
            end = file.tell()
        file.truncate(end)
