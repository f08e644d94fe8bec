"""Arithmetic that does not depend on the batch, and randomness keyed by what it is for.

Rows get the bits that they would get alone: `machine` finds out how many rows a product needs for that, `packed` reads
rows of many lengths in one pass, `padding` tries whether padding keeps the bits, and `batching` groups rows of equal
length. `transfer` brings batches to the device and numbers back, and `randomness` draws noise from keys.
"""

from isthmus.arithmetic.machine import ask_for_strict_arithmetic

ask_for_strict_arithmetic()
