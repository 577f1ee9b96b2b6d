"""The kinds of layer, a class each."""
