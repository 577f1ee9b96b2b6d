"""Notebooks for places where this folder is not: in Colab, and in nbgrader."""
