"""The fixture `encoder` is written in tests/support/encoder_toys.py."""

from encoder_toys import encoder as encoder
