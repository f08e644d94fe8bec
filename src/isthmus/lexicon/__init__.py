"""Synonyms, word vectors and stop words."""
