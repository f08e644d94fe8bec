"""The run folder, and the verbs that fill and read it."""
