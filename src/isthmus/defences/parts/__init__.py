"""What defences are made of: checks of parameters, bottlenecks, perturbations, word terms, composition."""
