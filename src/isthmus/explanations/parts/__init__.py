"""What explanations are made of: paths of gradients, queries, and words with their weights."""
