"""Who is in the class, and what a person adds to the grades: the roster, deadlines, marks and comments by hand."""
