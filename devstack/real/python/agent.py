"""A stand-in for the Open vSwitch agents of the nodes: reports ports to Neutron on request over HTTP.

PUT /_agent/host/HOST[?delay=MILLISECONDS][&ovsdb=SOCKET]
                                            there is a node HOST, whose agent reports each of its ports up so long after
                                            it was bound; without a delay, never by itself. With the socket of the node's
                                            OVSDB, only ports with an interface there, as a real agent does
PUT /_agent/up/PORT, PUT /_agent/down/PORT  the agent of the port's node reports the port up or down

Only the machine is missing: Neutron binds the ports to these nodes by itself, and takes the reports as it takes those that
come over the message bus. A subport is bound to the node of its trunk when its agent reports it, as the trunk's agent does.
"""

import functools
import json
import subprocess
import threading
import time
import traceback
from urllib.parse import parse_qs

from counted import answer
from neutron.objects.agent import Agent as AgentRow
from neutron.plugins.ml2.rpc import RpcCallbacks
from neutron.services.trunk.rpc.server import TrunkSkeleton
from neutron_lib import context
from neutron_lib.db import api as database
from neutron_lib.plugins import directory
from oslo_utils import timeutils
from sqlalchemy import text

KIND = "Open vSwitch agent"
POLL = 0.05  # seconds

# Ports that no agent has reported yet, with the node to which they or their trunks are bound, and the delay of its agent. One query,
# because it is polled.
WAITING = text("""
    SELECT ports.id, bindings.host, subports.trunk_id, ports.id = bindings.port_id, agents.configurations
      FROM ports
      LEFT JOIN subports ON subports.port_id = ports.id
      LEFT JOIN trunks ON trunks.id = subports.trunk_id
      JOIN ml2_port_bindings bindings
        ON bindings.port_id IN (ports.id, trunks.port_id) AND bindings.vif_type = 'ovs' AND bindings.status = 'ACTIVE'
      JOIN agents ON agents.host = bindings.host AND agents.agent_type = 'Open vSwitch agent'
     WHERE ports.status = 'DOWN' AND ports.admin_state_up""")


class Agent:
    """Neutron's application with the stand-in in front of it."""

    def __init__(self, application, reports_by_itself):
        self.application = application
        if reports_by_itself:
            threading.Thread(target=self.watch, daemon=True).start()

    def __call__(self, environ, start_response):
        parts = environ.get("PATH_INFO", "").strip("/").split("/")
        if parts[0] != "_agent":
            return self.application(environ, start_response)
        try:
            query = parse_qs(environ.get("QUERY_STRING", ""))
            done = environ["REQUEST_METHOD"] == "PUT" and len(parts) == 3 and self.act(parts[1], parts[2], query)
        except Exception as error:
            traceback.print_exc()
            return answer(start_response, "500 Internal Server Error", {"error": repr(error)})
        return answer(start_response, "204 No Content" if done else "404 Not Found")

    def act(self, verb, name, query):
        """Return True if there is something to do."""
        if verb == "host":
            register(name, int(query["delay"][0]) if "delay" in query else None, query.get("ovsdb", [None])[0])
            return True
        return verb in ("up", "down") and report(name, up=verb == "up")

    def watch(self):
        """Report the ports of the nodes that have a delay. It polls, because there is no message bus."""
        since = {}
        while True:
            time.sleep(POLL)
            try:
                self.look(since)
            except Exception:  # the database is being restarted
                traceback.print_exc()

    def look(self, since):
        waiting = {port: row for port, *row in waiting_ports() if row[-1].get("delay") is not None}
        plugged = {ovsdb: interfaces(ovsdb) for ovsdb in {row[-1].get("ovsdb") for row in waiting.values()} if ovsdb}
        waiting = {port: row for port, row in waiting.items() if port in plugged.get(row[-1].get("ovsdb"), [port])}
        now = time.monotonic()
        for port in since.keys() - waiting.keys():
            del since[port]
        for port, (host, trunk, bound, configuration) in waiting.items():
            delay = configuration["delay"]
            if (now - since.setdefault(port, now)) * 1000 >= delay:
                del since[port]
                try:
                    wire(port, host, trunk, bound)
                except Exception:  # the port was deleted meanwhile
                    traceback.print_exc()


def interfaces(ovsdb):
    """The ports whose interfaces Open vSwitch has created: the `iface-id` of each interface with a number."""
    command = ["ovs-vsctl", f"--db=unix:{ovsdb}", "--timeout=5", "--format=json", "--columns=external_ids,ofport",
               "list", "Interface"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = json.loads(found.stdout)["data"]
    return {dict(ids[1]).get("iface-id") for ids, number in rows if isinstance(number, int) and number > 0}


def register(host, delay, ovsdb=None):
    """Adds the node, or changes its delay (milliseconds; None for never) and the socket of its OVSDB."""
    admin, now = context.get_admin_context(), timeutils.utcnow()
    configurations = {"tunnel_types": ["vxlan"], "tunneling_ip": "192.0.2.1",
                      "bridge_mappings": {"physical": "br-physical"}, "delay": delay, "ovsdb": ovsdb}
    row = AgentRow.get_object(admin, agent_type=KIND, host=host)
    if row is not None:
        row.configurations = configurations
        row.update()
        return
    AgentRow(admin, agent_type=KIND, binary="neutron-openvswitch-agent", topic="N/A", host=host, admin_state_up=True,
             created_at=now, started_at=now, heartbeat_timestamp=now, load=0, configurations=configurations).create()


def waiting_ports(port=None):
    """Ports that wait for a report: id, host, trunk, whether the port itself is bound, the configuration of the agent."""
    admin = context.get_admin_context()
    with database.CONTEXT_READER.using(admin):
        found = admin.session.execute(WAITING).fetchall()
    return [(*row[:-1], json.loads(row[-1])) for row in found if port in (None, row[0])]


def report(port, up):
    """Reports one port for its node. False where it is bound to none."""
    if up:
        found = waiting_ports(port)
        for _, host, trunk, bound, _ in found:
            wire(port, host, trunk, bound)
        return bool(found) or status(port) == "ACTIVE"
    host = host_of(port)
    if host:
        callbacks().update_device_down(context.get_admin_context(), agent_id=KIND + host, device=port, host=host)
    return bool(host)


def wire(port, host, trunk, bound):
    """Do what an agent does once the port is plugged."""
    admin = context.get_admin_context()
    if trunk and not bound:
        trunks().update_subport_bindings(admin, subports=[{"trunk_id": trunk, "port_id": port}])
        trunks().update_trunk_status(admin, trunk, "ACTIVE")
    callbacks().update_device_up(admin, agent_id=KIND + host, device=port, host=host)


def host_of(port):
    found = directory.get_plugin().get_port(context.get_admin_context(), port)
    return found.get("binding:host_id")


def status(port):
    return directory.get_plugin().get_port(context.get_admin_context(), port)["status"]


@functools.cache
def trunks():
    return TrunkSkeleton()


def callbacks():
    plugin = directory.get_plugin()
    return RpcCallbacks(plugin.notifier, plugin.type_manager)
