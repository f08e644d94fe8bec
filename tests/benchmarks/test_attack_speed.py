"""The benchmark of attacks says which targets were missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from speed import ledger
from speed.cold import missed_by_start
from speed.ideal import OWN
from speed.record import Record
from speed.table import UNPADDED, missed_by_host, missed_by_length, missed_targets

PAGE = Path(__file__).parents[2] / "docs" / "results" / "attack_speed.md"


def records(ours: float, theirs: float | None = None) -> list[Record]:
    found = [Record("isthmus", "pwws", "fp32", 10, cpu_s=ours), Record("ideal", "pwws", "fp32", 10, cpu_s=9.0)]
    return found if theirs is None else [*found, Record("textattack", "pwws", "fp32", 10, cpu_s=theirs)]


@pytest.mark.parametrize(("ours", "theirs", "missed"), [
    (9.9, None, []),
    (10.1, None, ["89.1% of the rate of ideal in fp32"]),
    (9.9, 20.0, []),
    (9.9, 5.0, ["textattack has 2.00"]),
    (18.0, 5.0, ["50.0% of the rate of ideal in fp32", "textattack has 2.00"]),
])  # fmt: skip
def test_targets(ours: float, theirs: float | None, missed: list[str]) -> None:
    found = missed_targets("pwws", records(ours, theirs))
    assert len(found) == len(missed)
    assert all(part in line for part, line in zip(missed, found, strict=True))


def test_what_was_not_measured_is_missed() -> None:
    (line,) = missed_targets("pwws", [Record("isthmus", "pwws", notes={"failed": "exit 1"}), records(9.9)[1]])
    assert "not both measured" in line


def test_bfloat16_and_unpadded_rivals_count() -> None:
    half = [Record("isthmus", "pwws", "bf16", 10, cpu_s=6.0), Record("ideal", "pwws", "bf16", 10, cpu_s=5.0)]
    (line,) = missed_targets("pwws", [*records(9.9), *half])
    assert "83.3% of the rate of ideal in bf16" in line
    (line,) = missed_targets("pwws", [*records(9.9, 20.0), Record(UNPADDED, "pwws", "fp32", 10, cpu_s=9.0)])
    assert "unpadded has 1.11" in line


def test_the_ideal_with_our_own_products_counts() -> None:
    own = Record(OWN, "pwws", "fp32", 10, cpu_s=5.0)
    (line,) = missed_targets("pwws", [*records(6.0, 20.0), own])
    assert "83.3% of the rate of ideal, oneDNN in fp32" in line
    assert missed_targets("pwws", [*records(5.5, 20.0), own]) == []


def test_long_texts_and_the_host_have_targets() -> None:
    def lengths(short: float, long: float) -> list[Record]:
        return [Record("", "", notes={"us a row": short}), Record("", "", notes={"us a row": long})]

    assert missed_by_length(lengths(100.0, 150.0)) == []
    assert "1.51 times" in missed_by_length(lengths(100.0, 151.0))[0]
    host = [Record("bare", "", rows=200_000, cpu_s=1.0), Record("everything on", "", rows=119_000, cpu_s=1.0)]
    (line,) = missed_by_host(host)
    assert line.startswith("everything on: 119,000")


def test_a_cold_start_has_a_target_and_a_table() -> None:
    quick, slow = (Record("start", "pwws", wall_s=wall_s, clock="wall", notes={"cpu s": 4.0}) for wall_s in (5.9, 6.1))
    assert missed_by_start([quick]) == []
    (line,) = missed_by_start([quick, slow])
    assert line.startswith("pwws: 6.1 s")
    (row,) = ledger.table("start", [ledger.line_of("start", [quick, slow], 5, 1)]).splitlines()[2:]
    assert row.endswith("| pwws | 6.0 (5.9–6.1) | 4.0 |")


def test_times_are_kept_by_processor_and_written_into_the_page(tmp_path: Path) -> None:
    path = tmp_path / "times" / "attack_speed.jsonl"
    for processor, seconds in (("one", 5.0), ("other", 7.0), ("one", 6.0)):
        runs = [Record(side, "pwws", "fp32", 10, cpu_s=scale * seconds, rows=90, processor=processor)
                for side, scale in (("isthmus", 1.0), ("ideal", 0.9), ("textattack", 4.0))]  # fmt: skip
        ledger.add(path, [ledger.line_of("cpu", [record, record], 10, 1) for record in runs])
    lines = ledger.read(path)
    assert len(lines) == 6
    assert {line["seconds"][0] for line in lines if line["side"] == "isthmus"} == {6.0, 7.0}
    page = "before\n<!-- times: cpu -->\nold\n<!-- end of times -->\nbehind\n"
    text = ledger.written(page, lines)
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("<!-- end of times -->\nbehind\n")
    assert text.count("90 (90–90) %") == 2
    assert text.count("4.00 (4.00–4.00) times in fp32") == 2
    assert ledger.written(text, lines) == text
    assert "Not yet run." in ledger.written(page.replace("cpu", "host"), lines)


def test_what_was_measured_on_more_texts_stands_alone_in_the_table() -> None:
    lines = []
    for n, seconds in ((12, 5.0), (40, 9.0)):
        for side, own in (("isthmus", seconds), ("textattack", 4 * seconds)):
            record = Record(side, "bae", "fp32", n, cpu_s=own, rows=9 * n, processor="one")
            lines.append(ledger.line_of("cpu", [record], n, 1))
    lines.append({**lines[0], "processor": "other"})
    table = ledger.table("cpu", lines)
    assert table.count("| one | bae | 40 |") == 2
    assert "| one | bae | 12 |" not in table
    assert "| other | bae | 12 |" in table


def test_cards_and_processes_have_tables_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "attack_speed.jsonl"
    for count in (4, 1):
        card = {"rows": 600, "clock": "wall", "processor": "card"}
        runs = [Record(f"{count}, time slices", "deepwordbug", "bf16", 9, s, **card) for s in (1.0, 2.0, 3.0)]
        ledger.add(path, [ledger.line_of("processes", runs, 9, 1)])
    for side, notes in (("raw forward", {}), ("isthmus", {"of the raw rate": 0.25})):
        record = Record(
            side, "deepwordbug", "bf16", 9, wall_s=2.0, rows=600, clock="wall", processor="card", notes=notes
        )
        ledger.add(path, [ledger.line_of("gpu", [record], None, 1)])
    lines = ledger.read(path)
    _, _, one, four = ledger.table("processes", lines).splitlines()
    assert one == "| card | deepwordbug | bf16 | 9 | 1, time slices | 300 (200–600) |"
    assert "| 4, time slices |" in four
    _, _, ours, raw = ledger.table("gpu", lines).splitlines()
    assert ours.endswith("| isthmus | 600 | 0 | 300 | 25% |")
    assert raw.endswith("| raw forward | 600 | 0 | 300 |  |")


def test_the_page_is_what_the_ledger_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "<!-- times: cpu -->" in text
    assert ledger.written(text, ledger.read(PAGE.parents[2] / "results" / "times" / "attack_speed.jsonl")) == text


def test_the_processor_is_named() -> None:
    assert Record("isthmus", "pwws").processor
