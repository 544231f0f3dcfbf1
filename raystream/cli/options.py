"""The arguments and options of `raystream plan`, `check` and `run`, with what `--help` says."""

from __future__ import annotations

from typing import Annotated, Any

import typer

ON_CLUSTER, SECURITY = "On a cluster", "Security"
CHECKPOINTS, RESUMING = "Checkpoints", "Going on from a saved checkpoint"
"""Groups of options."""


FlowTarget = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FLOW",
        help="An rs.Flow, or a function without arguments that returns one. The module is looked"
        " for in the current folder first.",
        show_default=False,
    ),
]


def unless_given(panel: str, metavar: str, said: str, least: int | None = None) -> Any:
    """An option whose default is not shown."""
    return typer.Option(
        metavar=metavar, help=said, min=least, show_default=False, rich_help_panel=panel
    )


Local = Annotated[bool, typer.Option("--local", help="Run in this process, without Ray.")]
Instances = Annotated[
    str,
    typer.Option(
        metavar="NAME=N,...", help="Instances of operators, 1 unless given.", show_default=False
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Checking mode: find operators that are not deterministic. Slower."
    ),
]
ExpectedRows = Annotated[
    str,
    typer.Option(
        metavar="NAME=N,...",
        help="Rows that compiled and batch operators are expected to keep: room for them is"
        " made before the first record.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    unless_given(
        ON_CLUSTER,
        "ADDRESS",
        "Of a Ray cluster. Unless given (or `auto`), that of the submitted job or of this"
        " machine; where there is none, one is started for this run.",
    ),
]
PolicyName = Annotated[
    str | None,
    unless_given(
        ON_CLUSTER,
        "cpu|rate|none",
        "What changes numbers of instances: `cpu`, when one uses more than 70 % of a core; `rate`,"
        " by how fast each works; `none`. With --pool it is cpu unless given.",
    ),
]
BoundsOption = Annotated[
    str,
    unless_given(
        ON_CLUSTER,
        "NAME=LEAST-MOST,...",
        "How few and how many instances the policy may give.",
    ),
]
PoolOption = Annotated[
    int | None,
    unless_given(
        ON_CLUSTER, "N", "With Ray's autoscaler: spare nodes beside those in use.", least=0
    ),
]
NodesMax = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="With --pool: nodes at most, not more than the cluster may have.",
        rich_help_panel=ON_CLUSTER,
    ),
]
Copies = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Nodes that hold a checkpoint.", rich_help_panel=ON_CLUSTER
    ),
]
Together = Annotated[
    bool,
    typer.Option(
        "--together",
        help="One instance of each operator in a process, on one thread: low latency, little load.",
        rich_help_panel=ON_CLUSTER,
    ),
]
Spares = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Warm processes that stand by for those that die.",
        rich_help_panel=ON_CLUSTER,
    ),
]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.001,
        help="From one checkpoint to the next, about.",
        rich_help_panel=CHECKPOINTS,
    ),
]
StateFolder = Annotated[
    str | None,
    unless_given(
        CHECKPOINTS,
        "FOLDER",
        "On each node, for files of checkpoints, and of rows, that memory has no room for.",
    ),
]
StateMemory = Annotated[
    str | None,
    unless_given(
        CHECKPOINTS,
        "SIZE",
        "About how much memory the rows of an instance take, as in 4GiB; the rest are on disk.",
    ),
]
CheckpointMemory = Annotated[
    str | None,
    unless_given(
        CHECKPOINTS,
        "SIZE",
        "How much of each node's object store holds recent checkpoints, as in 512MB.",
    ),
]
DurableOption = Annotated[
    str | None,
    unless_given(
        CHECKPOINTS,
        "URL",
        "A folder or s3://bucket/prefix to which committed checkpoints are copied.",
    ),
]
Resume = Annotated[
    bool | None,
    typer.Option(
        "--resume/--fresh",
        help="With --durable: go on from the newest whole checkpoint there (none: from the"
        " beginning), or begin again. Where there are checkpoints, say which.",
        show_default=False,
        rich_help_panel=RESUMING,
    ),
]
Tls = Annotated[
    str | None,
    unless_given(
        SECURITY,
        "FOLDER|made",
        "Encrypt the job's connections, with a certificate on both sides: from a folder that"
        " `raystream certificates` has made, or made for this run.",
    ),
]
Traces = Annotated[
    str | None,
    unless_given(
        ON_CLUSTER,
        "URL",
        "Of a collector of OpenTelemetry, as in http://127.0.0.1:4318: recoveries, moves, upgrades"
        " and checkpoints go there as traces.",
    ),
]
WithPage = Annotated[bool, typer.Option("--ui", help="Show the job on a page in a browser, too.")]
Values = Annotated[
    bool | None,
    typer.Option(
        "--values/--no-values",
        help="Whether errors show keys and values of records. Unless given, they do, but not in a"
        " submitted Ray job.",
        show_default=False,
        rich_help_panel=SECURITY,
    ),
]
Keep = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=2,
        help="With --durable: how many saved checkpoints are kept. `replay` can begin at the"
        " oldest.",
        rich_help_panel=CHECKPOINTS,
    ),
]
Renames = Annotated[
    str,
    unless_given(
        RESUMING,
        "OLD=NEW,...",
        "With --resume: what operators, sources and sinks of the checkpoint are called now.",
    ),
]
Drops = Annotated[
    str,
    unless_given(
        RESUMING,
        "NAME,...",
        "With --resume: what was saved of these may go. Those that are still in the flow begin"
        " empty.",
    ),
]
