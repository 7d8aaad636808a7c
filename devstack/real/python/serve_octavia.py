"""Octavia with counted requests. API and worker share this process, so that no message bus is needed."""

import os
import threading

from counted import Counted
from octavia.api import app
from oslo_config import cfg

application = Counted(app.setup_app(argv=["octavia-api", "--config-file", os.environ["OCTAVIA_CONF"]]))


def work():
    """Executes the messages of the API."""
    from octavia.controller.queue.v2 import consumer  # needs the configuration, which the API has read by now

    consumer.ConsumerService(1, cfg.CONF).run()


threading.Thread(target=work, daemon=True).start()
