"""An operator asks a service over HTTP for each record: several at once, each answer recorded once.

It prints:

    Priced(time=1, sku='pen', amount=3, cents=360)
    Priced(time=2, sku='ink', amount=1, cents=800)
    order 3: LookupError: there is no price of owl
    Priced(time=4, sku='pen', amount=1, cents=120)

Run it:

    python examples/enrich_by_http.py
"""

from __future__ import annotations

import json
import threading
import urllib.request
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import raystream as rs

PRICES = {"pen": 120, "ink": 800}


class Order(NamedTuple):
    time: int
    sku: str
    amount: int


class Priced(NamedTuple):
    time: int
    sku: str
    amount: int
    cents: int


@rs.operator(recorded=True, concurrency=8, timeout="5s", retries=1)
@dataclass(frozen=True)
class Price:
    url: str

    def process(self, order: Order) -> Priced:
        headers = {"Idempotency-Key": rs.request_id()}  # the same when it has to ask again
        request = urllib.request.Request(f"{self.url}/{order.sku}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            price = json.load(answer)
        if price is None:
            raise LookupError(f"there is no price of {order.sku}")
        return Priced(*order, cents=order.amount * price)


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(PRICES.get(self.path[1:])).encode())

    def log_message(self, *_: object) -> None: ...


def show(one: Priced | rs.FailedRecord) -> None:
    print(f"order {one.time}: {one.reason}" if isinstance(one, rs.FailedRecord) else one)


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        orders = [Order(1, "pen", 3), Order(2, "ink", 1), Order(3, "owl", 2), Order(4, "pen", 1)]
        flow = rs.Flow("prices")
        read = flow.source(rs.io.iterable(orders, Order), epochs=rs.by_time(seconds=1))
        price = Price(f"http://127.0.0.1:{server.server_port}")
        read.through(price, on_error="stream").to(rs.io.callable(show, each=True))
        flow.run()
        server.shutdown()
