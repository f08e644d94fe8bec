"""The run folder: its files, and the values read from them."""
