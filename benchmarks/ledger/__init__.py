"""The ledger: one line of JSON for every cell that was measured, in `results/<page>.jsonl`.

A cell is one model, asked in one way, on one sample of texts, under one attack or none. Its line holds

    id          12 hex digits of the key
    row         what a table calls it
    key         data, backbone, method, training, seed, way of answering, attack, limits, n: what decides the outcomes
    summary     a few figures
    outcomes    one character a text, in sample order (`OUTCOMES`); long strings are packed
    values      of a measure of attacked texts: its value for every text, to a thousandth, packed
    provenance  commit, versions, machine, moment, seconds: where it comes from, not what it is

Append a cell; a cell that is there is not run again, and one that contradicts it is refused:

    from ledger import Cell, Key, Ledger, data_key, method_key, provenance, training_key

    book = Ledger("results/defaults.jsonl")
    key = Key(
        data=data_key(splits["test"], trained_on=splits["train"]),
        backbone="cnn",
        method=method_key("freelb", {"steps": 2}),  # every parameter, defaults filled in
        training=training_key(settings, limit=None),
        seed=0,
        n=len(splits["test"]),
    )
    if key not in book:
        right = …  # one bool a text, in the order of the split
        book.append(Cell.of_answers(key, right, row="freelb", provenance=provenance("cuda", seconds=20.5)))

A cell of an attack has `attack=attack_key("textfooler")` in its key, with `n` texts of `split.sample(n)`, and is made
of the results of the attack by `Cell.of_attack(key, results, row=…, provenance=…)`.

A cell of a measure of what an attack made has `measure=measure_key(…)` beside the attack, and is made by
`Cell.of_pairs`.

Several processes may append to one file; a process killed in the middle of a line loses that line alone. Files that
come back from another machine are merged by `python benchmarks/tables.py merge`.
"""

from ledger.cells import OUTCOMES, Cell, Key
from ledger.keys import attack_key, data_key, measure_key, method_key, provenance, training_key
from ledger.store import Contradiction, Ledger, merge

__all__ = [
    "OUTCOMES",
    "Cell",
    "Contradiction",
    "Key",
    "Ledger",
    "attack_key",
    "data_key",
    "measure_key",
    "merge",
    "method_key",
    "provenance",
    "training_key",
]
