"""What is taught with the code that runs: equations beside their lines, worked examples, a site of
pages, and exercises: a file with one line missing, and what kind of mistake is in its place."""
