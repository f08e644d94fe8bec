"""The verbs: train, attack, evaluate, certify, measure, explain. They return results and never render."""
