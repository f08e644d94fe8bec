"""Synonyms, neighbours, word vectors and stop words."""

from isthmus.lexicon.neighbours import Nearest, Neighbours, load_neighbours
from isthmus.lexicon.stopwords import stop_words
from isthmus.lexicon.vectors import WordVectors
from isthmus.lexicon.wordnet import Synset, WordNet, load_wordnet

__all__ = [
    "Nearest",
    "Neighbours",
    "Synset",
    "WordNet",
    "WordVectors",
    "load_neighbours",
    "load_wordnet",
    "stop_words",
]
