"""The run folder: files on disk, and what may be read back from them."""
