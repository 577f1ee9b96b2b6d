"""What is on its way from one rank to another."""
