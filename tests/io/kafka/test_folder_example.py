"""The example that ships the rows of a folder that fills to a topic."""

from __future__ import annotations

import importlib
import json
import threading
from pathlib import Path

from tests.kafka_server import Kafka


def test_each_row_of_each_file_is_a_message(kafka: Kafka, tmp_path: Path) -> None:
    example = importlib.import_module("examples.pipelines.folder_to_kafka")
    folder = tmp_path / "orders"
    folder.mkdir()

    def fill() -> None:
        for n in range(3):
            hidden = folder / f".{n}.csv"
            rows = "".join(f"{2 * n + i},{'ab'[i]},{100 * n + 50}\n" for i in range(2))
            hidden.write_text(f"id,shop,cents\n{rows}")
            hidden.rename(folder / f"{n}.csv")
        (folder / "_END").touch()

    filling = threading.Thread(target=fill)
    filling.start()
    example.ship(str(folder), kafka.servers).run()
    filling.join()
    found = [(m.key(), json.loads(m.value())) for m in kafka.read_all("shipped", 6)]
    for i, shop in enumerate("ab"):
        mine = [value for key, value in found if key == shop.encode()]
        wanted = [{"order": 2 * n + i, "euros": n + 0.5} for n in range(3)]
        assert sorted(mine, key=lambda v: v["order"]) == wanted
    assert len(found) == 6
