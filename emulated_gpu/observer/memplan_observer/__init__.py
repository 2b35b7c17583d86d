"""What `memplan observe` does inside of the processes of a script."""
