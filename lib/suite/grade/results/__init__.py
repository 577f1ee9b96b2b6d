"""What grading leaves in its folder for other programs: a row of a table for each form."""
