"""Attacks on tensors by gradients, one file each: pixels in a box, or the embedding sequence of a text.

    result = PGD(epsilon=0.3).run(model, images, labels)

`base.py` owns what they share, `_targets.py` says what can be attacked, `_spaces.py` where points may lie,
`_problem.py` how gradients are taken.
"""
