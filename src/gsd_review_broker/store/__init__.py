"""Where reviews are stored. One schema and one set of reads and writes, whatever the database."""
