"""Neutron, counted, with a stand-in for the agents of the nodes."""

import uwsgi
from agent import Agent
from counted import Counted
from neutron.wsgi.api import application as neutron

application = Counted(Agent(neutron, reports_by_itself=uwsgi.worker_id() == 1))
