"""The command line: one file a group of commands, which parse, call and print."""
