"""HotFlip on a transformers model, which TextAttack refuses: it takes a model to have one token per word.

A word's gradient is that of its first sub-word, and the words it may become are the tokenizer's whole words. The model
stays in evaluation mode (TextAttack's `get_grad` turns dropout on).
"""

from __future__ import annotations

from typing import Any


def word_gradient(model: Any, tokenizer: Any, text: str) -> dict[str, Any]:
    """The gradient of the loss for each word of `text` that the model sees, and the token it belongs to."""
    import torch
    from textattack.shared.utils import words_from_text

    encoded = tokenizer(text, truncation=True, return_offsets_mapping=True, return_tensors="pt")
    starts = {int(start): place for place, (start, stop) in enumerate(encoded.pop("offset_mapping")[0]) if stop > start}
    places, at = [], 0
    for word in words_from_text(text):
        at = text.index(word, at)
        if at not in starts:
            break  # Behind the model's limit.
        places.append(starts[at])
        at += len(word)
    embedded = model.get_input_embeddings()(encoded["input_ids"]).detach().requires_grad_(True)
    inputs = {name: value for name, value in encoded.items() if name != "input_ids"}
    logits = model(inputs_embeds=embedded, **inputs).logits
    loss = torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1))
    [gradient] = torch.autograd.grad(loss, embedded)
    return {"ids": encoded["input_ids"][0, places], "gradient": gradient[0, places].numpy()}


def allow_transformers(tokenizer: Any) -> str:
    """Lift TextAttack's refusal, and give the tokenizer the look-up it expects."""
    from textattack.transformations.word_swaps import word_swap_gradient_based as module

    module.validate_model_gradient_word_swap_compatibility = lambda model: True
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    special = set(tokenizer.all_special_tokens)
    whole = ["" if token.startswith("##") or token in special else token for token in tokens]
    tokenizer.convert_id_to_word = whole.__getitem__
    return "a word's gradient is its first sub-word's, in evaluation mode (TextAttack refuses transformers models)"
