"""Word-level attacks, one file each."""
