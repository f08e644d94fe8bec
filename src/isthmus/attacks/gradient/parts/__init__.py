"""What gradient attacks are made of: problems, targets, ascents, losses, spaces."""
