"""An operator asks a deployment of Ray Serve for each record. Its answers are recorded: a job that
recovers does not ask again, and what comes out is one history, whatever the model says later.

It prints:

    Judged(time=1, text='good tea, good cake', stars=5)
    Judged(time=2, text='cold soup', stars=2)
    Judged(time=3, text='we had lunch', stars=3)

It needs Ray Serve: `pip install "ray[serve]>=2.60,<2.61"`. Run it:

    python examples/ask_serve.py
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ray import serve

import raystream as rs

STARS = {"good": 1, "cold": -1}
TEXTS = ["good tea, good cake", "cold soup", "we had lunch"]


class Review(NamedTuple):
    time: int
    text: str


class Judged(NamedTuple):
    time: int
    text: str
    stars: int


@serve.deployment
class Critic:
    def __call__(self, text: str) -> int:
        return 3 + sum(STARS.get(word, 0) for word in text.split())


@cache
def critic() -> Any:
    return serve.get_app_handle("critic")  # by name, in whichever process asks


@rs.operator(concurrency=8, timeout="5s", retries=3)
async def judge(review: Review) -> Judged:
    return Judged(*review, stars=await critic().remote(review.text))


def build() -> rs.Flow:
    flow = rs.Flow("reviews")
    reviews = [Review(time, text) for time, text in enumerate(TEXTS, 1)]
    read = flow.source(rs.io.iterable(reviews, Review), epochs=rs.by_time(seconds=1))
    read.through(judge).to(rs.io.console())
    return flow


if __name__ == "__main__":
    serve.run(Critic.bind(), name="critic", route_prefix=None)
    build().run()  # run(cluster="auto") runs it on the Ray of the deployment
