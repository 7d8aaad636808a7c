"""Keystone, counted."""

from counted import Counted
from keystone.wsgi.api import application as keystone

application = Counted(keystone)
