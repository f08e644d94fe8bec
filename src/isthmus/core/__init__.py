"""Types and protocols, errors, statistics, catalogue, seeds, files: what every layer stands on."""
