"""Runs the commands: python -m transformer."""

from transformer.cli import main

main()
