"""The command line ``smartcache``: one subcommand per job.

Each folder registers its own; nothing heavy is imported until a command runs.
"""

from __future__ import annotations

import typer

from .bench import cli as bench
from .demo import cli as demo
from .doctor import register as register_doctor
from .inference import cli as inference
from .ingestion import cli as ingestion
from .preprocessing import cli as preprocessing
from .training import cli as training
from .workload import cli as workload

app = typer.Typer(
    name="smartcache",
    help="""Makes an XRootD XCache learn what is worth keeping.

    The main path, in order: `collect` turns monitoring packets into records on Kafka, `stream` turns them into the access table,
    `build-dataset` and `train` turn that into a model in MLflow, `promote` makes it the champion, `watch` and `endpoint` serve it, and the
    plugin inside XCache answers each open with it. `demo` runs all of it on this machine.""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich would take the names of sections, as in "[streaming] table", for its markup, and leave them out.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
for part in (ingestion, preprocessing, training, workload, inference, demo, bench):
    part.register(app)
register_doctor(app)
