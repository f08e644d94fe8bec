"""Types and protocols, errors, statistics, catalogue, seeds, assets: what every layer stands on."""
