"""Walks a defence's losses: the Hugging Face Trainer, or a loop over resident tensors."""
