"""Colours, marks, their layout, and the pictures made of them."""
