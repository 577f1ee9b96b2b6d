"""Marks, colours and how a picture is made of them."""
