"""Parts of library_table.py."""
