"""Prints what TensorBoard's HPARAMS tab shows of a folder of runs: the experiment, then each session."""

import sys

from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import (
    api_pb2,
    backend_context,
    get_experiment,
    list_session_groups,
)

SHOWN = (
    "corpus",
    "model.tie_embeddings",
    "model.hidden_size",
    "trainer.optimizer.name",
    "trainer.optimizer.lr_hidden",
)

runs = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(sys.argv[1])
runs.Reload()
provider = data_provider.MultiplexerDataProvider(runs, sys.argv[1])
context = backend_context.Context(TBContext(data_provider=provider, logdir=sys.argv[1]))
experiment = get_experiment.Handler(
    RequestContext(), context, "", api_pb2.GetExperimentRequest()
).run()
types = {info.name: api_pb2.DataType.Name(info.type) for info in experiment.hparam_infos}
print("settings", *(types[name][len("DATA_TYPE_") :] for name in SHOWN))
print("metrics", *(f"{info.name.tag}={info.display_name}" for info in experiment.metric_infos))
request = api_pb2.ListSessionGroupsRequest(
    start_index=0,
    slice_size=10,
    allowed_statuses=api_pb2.Status.values(),
    aggregation_type=api_pb2.AGGREGATION_AVG,
)
for group in (
    list_session_groups.Handler(RequestContext(), context, "", request).run().session_groups
):
    (session,) = group.sessions
    shown = (getattr(group.hparams[name], group.hparams[name].WhichOneof("kind")) for name in SHOWN)
    values = {
        value.name.tag: f"{value.training_step}:{value.value:g}" for value in session.metric_values
    }
    status = api_pb2.Status.Name(session.status)
    print(session.name, status, len(group.hparams) == len(types), *shown, *values.items())
