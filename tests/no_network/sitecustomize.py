"""What Python imports as it starts, if this folder is on its path."""

from only_loopback import install

install()
