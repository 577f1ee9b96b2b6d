"""One rank that replays its part."""
