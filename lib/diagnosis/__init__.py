"""Why something went wrong: the likely cause, in words."""
