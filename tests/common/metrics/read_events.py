"""Prints what TensorBoard reads from a folder of event files: a line for each tag."""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
for tag in events.Tags()["scalars"]:
    scalars = events.Scalars(tag)
    resumed = max(s.value for s in scalars if s.step == 2990)
    print(tag, len(scalars), scalars[-1].step, scalars[-1].value, resumed)
