"""Word resources: synonyms, neighbours, sememes, parts of speech, vectors, look-alike characters."""

from isthmus.lexicon.benign import benign_words
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.neighbours import Nearest, Neighbours
from isthmus.lexicon.sememes import Sememes, load_sememes
from isthmus.lexicon.stopwords import stop_words
from isthmus.lexicon.tags import Tagger, WordTagger, load_tagger
from isthmus.lexicon.vectors import WordVectors
from isthmus.lexicon.wordnet import Synset, WordNet, load_wordnet

__all__ = [
    "Nearest",
    "Neighbours",
    "Sememes",
    "Synset",
    "Tagger",
    "WordNet",
    "WordTagger",
    "WordVectors",
    "benign_words",
    "load_neighbours",
    "load_sememes",
    "load_tagger",
    "load_wordnet",
    "stop_words",
]
