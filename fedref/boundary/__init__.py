"""The boundary to users and the disk: errors, checks of users' values, files, checkpoints."""
