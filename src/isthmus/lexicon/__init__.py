"""Synonyms, word vectors and stop words."""

from isthmus.lexicon.stopwords import stop_words
from isthmus.lexicon.vectors import WordVectors
from isthmus.lexicon.wordnet import Synset, WordNet, load_wordnet

__all__ = ["Synset", "WordNet", "WordVectors", "load_wordnet", "stop_words"]
