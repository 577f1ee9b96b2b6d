"""The likely reason for a broken rule, by what it is about: a function for each fact of which anybody knows more."""
