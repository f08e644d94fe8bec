"""isthmus from Python: the verbs of the command line as functions.

    train, attack, evaluate, certify, measure, explain, open_run

A model is a run folder, anything `load_victim` takes by name, or an object at hand: a trained classifier, a pipeline, a
function. Of a model and data that have names the results are written into a run, and the same call continues it, as the
command line does; of objects they are computed and returned.
"""

from isthmus.api.attacks import attack
from isthmus.api.certificates import certify
from isthmus.api.evaluations import evaluate
from isthmus.api.explanations import explain
from isthmus.api.measures import measure
from isthmus.api.run import Run, open_run
from isthmus.api.training import train

__all__ = ["Run", "attack", "certify", "evaluate", "explain", "measure", "open_run", "train"]
