"""The models beside the victim that attacks use: sentence encoders and masked language models."""
