"""isthmus from Python: the verbs of the command line as functions.

    train, attack, evaluate, certify, measure, explain, open_run
    gate, export, write_report, show_words, convert
    list_assets, fetch_assets, verify_assets

A model is a run folder, anything `load_victim` takes by name, or an object at hand: a trained classifier, a pipeline, a
function. Of a model and data that have names the results are written into a run, and the same call continues it, as the
command line does; of objects they are computed and returned.
"""

from isthmus.api.attacks import attack
from isthmus.api.certificates import certify
from isthmus.api.evaluations import evaluate
from isthmus.api.explanations import explain
from isthmus.api.files import convert, export, show_words, write_report
from isthmus.api.gates import gate
from isthmus.api.measures import measure
from isthmus.api.run import Run, open_run
from isthmus.api.stored import fetch_assets, list_assets, verify_assets
from isthmus.api.training import train
from isthmus.report.gate import Verdict
from isthmus.verbs.goal_options import GoalRequest
from isthmus.verbs.observer import Observer

__all__ = [
    "GoalRequest", "Observer", "Run", "Verdict", "attack", "certify", "convert", "evaluate", "explain", "export",
    "fetch_assets", "gate", "list_assets", "measure", "open_run", "show_words", "train", "verify_assets",
    "write_report",
]  # fmt: skip
