"""What other programs grade with: pytest, and nbgrader."""
