"""Words with offsets, and sub-word ids that are spliced instead of tokenised again."""
