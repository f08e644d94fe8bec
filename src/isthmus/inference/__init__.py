"""Predictions that take more than a single pass: draws, synonyms, a normaliser, and spans of a context.

`isthmus.models.deployment` says what such a deployment is; these are the ones that come with isthmus.
`question_answering` reads all windows of a context.
"""
