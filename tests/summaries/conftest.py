"""The fixture `make_row` is written in tests/support/row_toys.py."""

from row_toys import make_row as make_row
