"""Where things are on the page, and how they are kept up to date.

Only what has changed is sent to a browser: a part that is drawn as it was before costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

from nicegui import ui
from nicegui.events import KeyEventArguments

from raystream.controller.reporting.views import JobPicture
from raystream.page import asking, drawings
from raystream.page.style import CSS
from raystream.page.watching import LOOK_SECONDS, Watched, Watcher

BLUE = "#2563a8"
GREY = "#7d8a99"
"""The colour of what is written in graphs: it can be read on light and on dark."""
COLOURS = ("#4a8fd9", "#a06cd5", "#2a9d9d", "#b8892b", "#d1588f", "#6a9a3b", "#b0663f", "#7d8a99")
"""Of lines in graphs. Green, orange and red are left to what they say of instances."""
CHARTS = {
    "records/s": ("Records per second", ("records/s",)),
    "latency": ("Latency from source to sink, s", ("p50", "p99")),
    "behind": ("Behind the input, s or epochs", ("behind",)),
}
Parts = dict[str, Callable[[JobPicture], str]]
PARTS: Parts = {
    "facts": drawings.facts,
    "graph": lambda job: f'<div class="rs-scroll">{drawings.graph(job)}</div>{drawings.legend()}',
    "operators": lambda job: "".join(map(drawings.operator, job.operators)),
    "story": drawings.story,
    "nodes": drawings.nodes,
    "instances": drawings.instances,
}
"""How each part is drawn, by its name."""
Request = tuple[str, str, Callable[[JobPicture, str], None]]
REQUESTS: tuple[Request, ...] = (
    ("Scale", "S", asking.ask_scale),
    ("Move", "M", asking.ask_move),
    ("Drain", "D", asking.ask_drain),
    ("Checkpoint now", "C", asking.ask_checkpoint),
    ("Stop", "X", asking.ask_stop),
)
"""The name, the key and the question of each button."""
TOLD_THE_OTHERS = "The job has ended. Only those who may operate it are shown how."


class Page:
    """The page of one browser.

    Args:
        address: of the cluster, for requests.
        operates: whether the user may change jobs and see rows of state. Otherwise the page has no
            buttons for that.
        values: whether the values of rows of state are shown.
    """

    def __init__(
        self, watcher: Watcher, address: str, *, operates: bool, values: bool = True
    ) -> None:
        self._watcher, self._address = watcher, address
        self._operates, self._values = operates, values
        self._drawn: dict[str, str] = {}
        self._html: dict[str, ui.html] = {}
        self._charts: dict[str, ui.echart] = {}
        self._looked = -1
        ui.add_css(CSS)
        ui.colors(primary=BLUE)
        self._head()
        self._empty = ui.html("", sanitize=True).classes("rs-card rs-empty")
        with ui.element("div").style("display:contents") as self._body:
            self._part("facts", "")
            self._part("graph", "Operators")
            with ui.element("div").classes("rs-two"):
                for name, (title, _) in CHARTS.items():
                    self._chart(name, title)
            self._part("operators", "Key groups, instances and state")
            with ui.element("div").classes("rs-two"):
                self._part("story", "What was decided, and why")
                self._part("nodes", "Nodes")
            self._part("instances", "Instances")
        ui.keyboard(on_key=self._key, ignore=["input", "select", "textarea"])
        ui.timer(LOOK_SECONDS / 2, self.update)
        self.update()

    # ------------------------------------------------------------ parts

    def _head(self) -> None:
        with ui.element("header").classes("rs-head"):
            ui.html("<h1>raystream</h1>")
            self._choice = ui.select([], on_change=self._chosen).props(
                'dense outlined options-dense aria-label="job"'
            )
            ui.element("div").classes("grow")
            key: Request = ("Key", "K", partial(asking.ask_key, values=self._values))
            asked = (*REQUESTS, key) if self._operates else ()
            self._buttons = {each[1].lower(): self._button(*each) for each in asked}
            self._dark = ui.dark_mode(None)
            ui.button("Dark / light", on_click=self._turn).props("flat dense no-caps")

    def _button(self, name: str, key: str, ask: Callable[[JobPicture, str], None]) -> ui.button:
        def click() -> None:
            watched = self._watched()
            if watched is not None and watched.shown is not None and not watched.ended:
                ask(watched.shown, self._address)

        button = ui.button(name, on_click=click).props("outline dense no-caps padding='2px 12px'")
        button.tooltip(f"key: {key}")
        return button

    def _part(self, name: str, title: str) -> None:
        with ui.element("section").classes("rs-card").mark(name):
            if title:
                ui.html(f"<h2>{title}</h2>")
            self._html[name] = ui.html("", sanitize=True)

    def _chart(self, name: str, title: str) -> None:
        with ui.element("section").classes("rs-card"):
            ui.html(f"<h2>{title}</h2>")
            axis = {
                "axisLabel": {"color": GREY, "hideOverlap": True},
                "axisLine": {"lineStyle": {"color": GREY}},
            }
            split = {"splitLine": {"lineStyle": {"color": GREY, "opacity": 0.2}}}
            self._charts[name] = ui.echart(
                {
                    "animation": False,
                    "color": list(COLOURS),
                    "grid": {"left": 56, "right": 12, "top": 30, "bottom": 26},
                    "legend": {"type": "scroll", "top": 0, "textStyle": {"color": GREY}}
                    | {"icon": "roundRect", "itemWidth": 16, "itemHeight": 4},
                    "tooltip": {"trigger": "axis", "confine": True},
                    "xAxis": {"type": "value", "name": "s", "min": "dataMin", "max": "dataMax"}
                    | axis
                    | {"splitLine": {"show": False}},
                    "yAxis": {"type": "value", "min": 0} | axis | split,
                    "series": [],
                }
            ).classes("rs-chart")

    # ------------------------------------------------------------ what somebody does

    def _chosen(self) -> None:
        self._drawn.clear()
        self._looked = -1
        self.update()

    def _turn(self) -> None:
        self._dark.set_value(not self._dark.value)

    def _key(self, event: KeyEventArguments) -> None:
        if not event.action.keydown or event.action.repeat or event.modifiers:
            return
        if asking.is_open():
            return
        button = self._buttons.get(str(event.key.name).lower())
        if button is not None:
            button.run_method("click")

    # ------------------------------------------------------------ what is shown

    def _watched(self) -> Watched | None:
        return self._watcher.runs.get(self._choice.value or "")

    def update(self) -> None:
        """Draw what has changed since the last time."""
        if self._looked == self._watcher.looks:
            return
        self._looked = self._watcher.looks
        runs = self._watcher.runs
        names = {r: f"{r} (ended)" if w.ended else r for r, w in runs.items()}
        if names != self._choice.options:
            chosen = self._choice.value if self._choice.value in names else next(iter(names), None)
            self._choice.set_options(names, value=chosen)
        watched = self._watched()
        job = watched.shown if watched is not None else None
        if job is not None and job.ended and not self._operates:
            job = replace(job, ended=TOLD_THE_OTHERS)  # an error may name a key or a value
        self._body.set_visibility(job is not None)
        self._empty.set_visibility(job is None)
        for button in self._buttons.values():
            button.set_enabled(watched is not None and job is not None and not watched.ended)
        if watched is None or job is None:
            self._set("empty", self._empty, _nothing(watched, self._operates))
            return
        for name, draw in PARTS.items():
            self._set(name, self._html[name], draw(job))
        for name, (_, kinds) in CHARTS.items():
            self._graph(self._charts[name], watched, kinds)

    def _set(self, name: str, element: ui.html, drawn: str) -> None:
        if self._drawn.get(name) != drawn:
            self._drawn[name] = drawn
            element.set_content(drawn)

    def _graph(self, chart: ui.echart, watched: Watched, kinds: tuple[str, ...]) -> None:
        unit, length = drawings.unit_of(watched.history.t[-1] if watched.history.t else 0.0)
        t = [x / length for x in watched.history.t]
        series: list[dict[str, Any]] = []
        for kind in kinds:
            for name, column in watched.history.of(kind).items():
                points = [[round(x, 4), y] for x, y in zip(t, column, strict=True)]
                full = name if len(kinds) == 1 else f"{name} {kind}"
                line = {"name": full, "type": "line", "showSymbol": False, "data": points}
                series.append(line | {"lineStyle": {"width": 2}})
        chart.options["series"] = series
        chart.options["xAxis"]["name"] = unit
        chart.update()


def _nothing(watched: Watched | None, operates: bool) -> str:
    if watched is None:
        return "No job is running in this cluster. One that begins is shown here by itself."
    if watched.ended:
        return escape(watched.ended if operates else TOLD_THE_OTHERS)
    return "The job begins."
