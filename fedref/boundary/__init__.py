"""What crosses the border to the outside: errors, values that users give, files."""
