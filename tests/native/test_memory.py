"""What a node's memory is, by the files in which Linux says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystream.native.memory import EARLIER, RAY_THRESHOLD, UNKNOWN, memory_use

KIB, GIB = 1 << 10, 1 << 30


def node(root: Path, *, total: int, available: int) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:  {total // KIB} kB\nMemFree: 1 kB\nMemAvailable: {available // KIB} kB\n"
    )
    (root / "proc/self/statm").write_text("9000 700 200 1 0 500 0")
    return root


def group(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_a_node_without_a_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RAY_THRESHOLD, raising=False)
    use = memory_use(node(tmp_path, total=20 * GIB, available=5 * GIB))
    assert use == (500 * 4096, 15 * GIB, 18 * GIB)


def test_a_small_node_keeps_half_a_gibibyte_back_and_a_tiny_one_a_quarter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RAY_THRESHOLD, "1.0")
    assert memory_use(node(tmp_path / "small", total=4 * GIB, available=GIB)).limit == 7 * GIB // 2
    assert memory_use(node(tmp_path / "tiny", total=GIB, available=GIB)).limit == 3 * GIB // 4


def test_rays_own_threshold_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = node(tmp_path, total=20 * GIB, available=5 * GIB)
    monkeypatch.setenv(RAY_THRESHOLD, "0.5")
    assert memory_use(root).limit == round((0.5 - EARLIER) * 20 * GIB)
    monkeypatch.setenv(RAY_THRESHOLD, "much")
    assert memory_use(root).limit == 18 * GIB


@pytest.mark.parametrize("older", [False, True])
def test_a_control_group_with_a_limit_counts_instead(tmp_path: Path, older: bool) -> None:
    root = node(tmp_path, total=20 * GIB, available=5 * GIB)
    if older:
        stat = "total_inactive_file 1000\ntotal_active_file 24\n"
        limit = {"memory/memory.limit_in_bytes": f"{10 * GIB}\n", "memory/memory.stat": stat}
        group(root, {**limit, "memory/memory.usage_in_bytes": f"{4 * GIB}\n"})
    else:
        stat = "inactive_file 1000\nactive_file 24\n"
        limit = {"memory.max": f"{10 * GIB}\n", "memory.stat": stat}
        group(root, {**limit, "memory.current": f"{4 * GIB}\n"})
    use = memory_use(root)
    assert (use.node, use.limit) == (4 * GIB - 1024, round(0.95 * 10 * GIB) - (512 << 20))


def test_a_control_group_without_a_limit_does_not(tmp_path: Path) -> None:
    root = node(tmp_path, total=20 * GIB, available=5 * GIB)
    group(root, {"memory.max": "max\n", "memory.current": "5\n", "memory.stat": ""})
    unlimited = {"memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n"}
    group(root, {**unlimited, "memory/memory.usage_in_bytes": "5\n", "memory/memory.stat": ""})
    assert memory_use(root).node == 15 * GIB


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert memory_use(tmp_path) == UNKNOWN


def test_this_process() -> None:
    before = memory_use()
    assert 0 < before.own < before.node < before.limit * 2
    taken = bytearray(64 << 20)
    taken[::4096] = b"x" * len(taken[::4096])
    assert memory_use().own - before.own > 48 << 20
