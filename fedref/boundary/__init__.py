"""The border to the outside: errors, values that users give, files."""
