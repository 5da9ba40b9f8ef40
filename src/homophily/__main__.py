"""``python -m homophily``."""

from .cli import main

main()
