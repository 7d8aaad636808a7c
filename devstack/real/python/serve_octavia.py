"""Octavia, counted. Its API and its worker share this process, and so the message bus that is none."""

import os
import threading

from counted import Counted
from octavia.api import app
from oslo_config import cfg

application = Counted(app.setup_app(argv=["octavia-api", "--config-file", os.environ["OCTAVIA_CONF"]]))


def work():
    """Does what the API puts on the bus."""
    from octavia.controller.queue.v2 import consumer  # needs the configuration that the API has read

    consumer.ConsumerService(1, cfg.CONF).run()


threading.Thread(target=work, daemon=True).start()
