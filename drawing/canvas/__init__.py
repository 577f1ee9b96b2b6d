"""Colours, marks, how they are laid out, and how a picture is made of them."""
