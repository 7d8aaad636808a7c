"""Fills a new OpenStack: the catalogue, the users, and a first network for pods. Prints the ids as NAME=ID lines.

usage: seed.py KEYSTONE NEUTRON OCTAVIA PASSWORD
"""

import json
import sys
import urllib.error
import urllib.request

KEYSTONE, NEUTRON, OCTAVIA, PASSWORD = sys.argv[1:]
DOMAIN = {"id": "default"}
# The user of the services; that of the controller, whose role `service` permits it to bind ports; and one without extra rights.
USERS = {
    "services": ("services", ["admin", "service"]),
    "controller": ("kubernetes", ["member", "service", "load-balancer_member"]),
    "tenant": ("tenant", ["member"]),
}


def send(method, url, body=None, token=None):
    headers = {"Content-Type": "application/json", **({"X-Auth-Token": token} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return answer.headers, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {url}: {error.code} {error.read().decode(errors='replace')}")


def log_in(user, project):
    identity = {"methods": ["password"], "password": {"user": {"name": user, "domain": DOMAIN, "password": PASSWORD}}}
    body = {"auth": {"identity": identity, "scope": {"project": {"name": project, "domain": DOMAIN}}}}
    return send("POST", f"{KEYSTONE}/auth/tokens", body)[0]["X-Subject-Token"]


def create(api, kind, token, **fields):
    """Create a resource and return its id."""
    return send("POST", f"{api}/{kind.replace('_', '-')}s", {kind: fields}, token)[1][kind]["id"]


def fill_catalogue(admin):
    for kind, name, url in (("network", "neutron", NEUTRON), ("load-balancer", "octavia", OCTAVIA)):
        service = create(KEYSTONE, "service", admin, type=kind, name=name)
        for interface in ("public", "internal", "admin"):
            create(KEYSTONE, "endpoint", admin, service_id=service, interface=interface, region_id="RegionOne", url=url)


def make_users(admin):
    create(KEYSTONE, "role", admin, name="load-balancer_member")
    roles = {role["name"]: role["id"] for role in send("GET", f"{KEYSTONE}/roles", None, admin)[1]["roles"]}
    projects = {}
    for user, (project, wanted) in USERS.items():
        project_id = create(KEYSTONE, "project", admin, name=project, domain_id="default")
        user_id = create(KEYSTONE, "user", admin, name=user, password=PASSWORD, domain_id="default")
        for role in wanted:
            send("PUT", f"{KEYSTONE}/projects/{project_id}/users/{user_id}/roles/{roles[role]}", None, admin)
        projects[project] = project_id
    return projects


def make_networks(admin, token):
    """A network for pods, one for services, a router that connects them with the external network, a subnet pool for namespaces."""
    api = f"{NEUTRON}/v2.0"
    outside = create(api, "network", admin, name="outside", **{"router:external": True})
    create(api, "subnet", admin, name="outside", network_id=outside, ip_version=4, cidr="203.0.113.0/24",
           enable_dhcp=False)
    router = create(api, "router", token, name="kubernetes", external_gateway_info={"network_id": outside})
    ids = {"EXTERNAL_NETWORK": outside, "ROUTER": router}
    for name, cidr in (("pod", "10.128.0.0/16"), ("service", "10.96.0.0/16")):
        network = create(api, "network", token, name=f"{name}s")
        subnet = create(api, "subnet", token, name=f"{name}s", network_id=network, ip_version=4, cidr=cidr,
                        enable_dhcp=False)
        send("PUT", f"{api}/routers/{router}/add_router_interface", {"subnet_id": subnet}, token)
        ids |= {f"{name.upper()}_NETWORK": network, f"{name.upper()}_SUBNET": subnet}
    ids["POD_SUBNET_POOL"] = create(api, "subnetpool", token, name="namespaces",
                                    prefixes=["10.160.0.0/11"], default_prefixlen=24)
    ids["POD_SECURITY_GROUP"] = create(api, "security_group", token, name="pods")
    return ids


def main():
    admin = log_in("admin", "admin")
    fill_catalogue(admin)
    projects = make_users(admin)
    ids = {"PROJECT": projects["kubernetes"], **make_networks(admin, log_in("controller", "kubernetes"))}
    for node in ("node-1", "node-2"):
        send("PUT", f"{NEUTRON}/_agent/host/{node}?delay=200")
    for name, value in ids.items():
        print(f"{name}={value}")


main()
