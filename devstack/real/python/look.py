"""Waits until the workloads of a namespace are in the OpenStack as they are wanted, and prints what became of them.

usage: look.py CLOUDS-YAML NAMESPACE ADMIN-URL [SECONDS]
"""

import collections
import json
import re
import subprocess
import sys
import time
import urllib.request

import yaml

CLOUDS, NAMESPACE, ADMIN = sys.argv[1:4]
PATIENCE = float(sys.argv[4]) if len(sys.argv) > 4 else 300
VIF = "openstack.org/kuryr-vif"
STATE = "openstack.org/kuryr-lbaas-state"


class Cloud:
    """The services of a cloud as its user sees them."""

    def __init__(self, path, name):
        with open(path, encoding="utf-8") as file:
            auth = yaml.safe_load(file)["clouds"][name]["auth"]
        user = {"name": auth["username"], "domain": {"id": auth["user_domain_id"]}, "password": auth["password"]}
        scope = {"project": {"name": auth["project_name"], "domain": {"id": auth["project_domain_id"]}}}
        identity = {"methods": ["password"], "password": {"user": user}}
        body = json.dumps({"auth": {"identity": identity, "scope": scope}}).encode()
        request = urllib.request.Request(auth["auth_url"] + "/auth/tokens", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.token = answer.headers["X-Subject-Token"]
            catalogue = json.load(answer)["token"]["catalog"]
        self.urls = {service["type"]: service["endpoints"][0]["url"].rstrip("/") for service in catalogue}

    def get(self, service, path):
        request = urllib.request.Request(self.urls[service] + path, headers={"X-Auth-Token": self.token})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def listed(self, service, path, kind):
        return {thing["id"]: thing for thing in self.get(service, path)[kind]}

    def calls(self, service):
        """How many requests of the controller the service has answered, by method."""
        counts = collections.Counter()
        for row in self.get(service, "/_requests"):
            if row["agent"].startswith("staffetta"):
                counts[row["method"]] += row["count"]
        return ", ".join(f"{count} {method}" for method, count in counts.most_common()) or "none"


def objects(kind):
    """The objects of the namespace, by name."""
    command = ["kubectl", "get", kind, "--namespace", NAMESPACE, "--output", "json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["items"]
    return {thing["metadata"]["name"]: thing for thing in listed}


def content(thing, annotation):
    """What an annotation holds, or nothing."""
    text = thing["metadata"].get("annotations", {}).get(annotation, "{}")
    return unwrapped(json.loads(text))


def unwrapped(thing):
    """The fields of versioned objects without their envelopes."""
    if isinstance(thing, dict):
        thing = thing.get("versioned_object.data", thing)
        return {name: unwrapped(value) for name, value in thing.items()}
    return [unwrapped(value) for value in thing] if isinstance(thing, list) else thing


class View:
    """Compare Kubernetes and OpenStack: rows to print, and the differences."""

    def __init__(self, cloud):
        self.missing = []
        self.ports = cloud.listed("network", "/v2.0/ports", "ports")
        self.groups = cloud.listed("network", "/v2.0/security-groups", "security_groups")
        self.floating = cloud.listed("network", "/v2.0/floatingips", "floatingips")
        self.balancers = cloud.listed("load-balancer", "/v2/lbaas/loadbalancers", "loadbalancers")
        self.pools = cloud.listed("load-balancer", "/v2/lbaas/pools", "pools")
        self.there = objects("pods")
        self.pods = [self.pod(name, pod) for name, pod in sorted(self.there.items())]
        self.policies = [self.policy(name, policy) for name, policy in sorted(objects("networkpolicies").items())]
        self.services = [self.service(name, service) for name, service in sorted(objects("services").items())]
        wanted = sum(deployment["spec"]["replicas"] for deployment in objects("deployments").values())
        self.wants(len(self.pods) == wanted, f"{len(self.pods)} of {wanted} pods")

    def wants(self, met, what):
        if not met:
            self.missing.append(what)

    def port(self, pod):
        return self.ports.get(content(pod, VIF).get("default_vif", {}).get("id"), {})

    def selected(self, labels):
        """The pods with these labels, by name."""
        return {name: pod for name, pod in self.there.items()
                if labels.items() <= pod["metadata"].get("labels", {}).items()}

    def policy(self, name, policy):
        spec, mark = policy["spec"], f"staffetta:group=policy-{policy['metadata']['uid']}"
        groups = {group["id"]: group for group in self.groups.values()
                  if any(f"{word}-".startswith(f"{mark}-") for word in group["description"].split())}
        rules = sum(len(group["security_group_rules"]) for group in groups.values())
        selected = self.selected(spec["podSelector"].get("matchLabels", {}))
        guarded = [pod for pod in selected.values() if groups.keys() & set(self.port(pod).get("security_groups", []))]
        self.wants(groups, f"policy {name} has no security group")
        self.wants(rules or not (spec.get("ingress") or spec.get("egress")), f"the group of policy {name} has no rules")
        self.wants(len(guarded) == len(selected), f"policy {name} guards {len(guarded)} of {len(selected)} pods")
        return [name, str(len(selected)), str(len(guarded)), str(rules)]

    def pod(self, name, pod):
        port = self.port(pod)
        addresses = [fixed["ip_address"] for fixed in port.get("fixed_ips", [])]
        phase, address = pod["status"].get("phase"), pod["status"].get("podIP")
        groups = [self.groups[group]["name"] for group in port.get("security_groups", []) if group in self.groups]
        self.wants(phase == "Running", f"pod {name} is {phase}")
        self.wants(port.get("status") == "ACTIVE", f"the port of pod {name} is {port.get('status', 'not there')}")
        self.wants(address in addresses, f"pod {name} has the address {address}, its port {addresses}")
        self.wants(groups, f"the port of pod {name} has no security group")
        return [name, pod["spec"].get("nodeName", ""), address or "", port.get("id", "")[:8], port.get("status", ""),
                str(len(groups)), str(sum(len(self.groups[group]["security_group_rules"])
                                          for group in port.get("security_groups", []) if group in self.groups))]

    def service(self, name, service):
        state, spec = content(service, STATE), service["spec"]
        balancer = self.balancers.get(state.get("loadbalancer", {}).get("id"), {})
        status = balancer.get("provisioning_status", "")
        pools = [self.pools.get(pool["id"], {}) for pool in balancer.get("pools", [])]
        members = sum(len(pool.get("members", [])) for pool in pools)
        ingress = service["status"].get("loadBalancer", {}).get("ingress", [])
        public = [entry["ip"] for entry in ingress if "ip" in entry]
        floating = {address["floating_ip_address"] for address in self.floating.values() if address["port_id"]}
        self.wants(status == "ACTIVE", f"the load balancer of service {name} is {status or 'not there'}")
        self.wants(balancer.get("vip_address") == spec["clusterIP"], f"service {name} is not reached by its cluster IP")
        listeners, endpoints = len(balancer.get("listeners", [])), len(self.selected(spec["selector"]))
        self.wants(listeners == len(spec["ports"]), f"service {name} has {listeners} listeners")
        self.wants(members == endpoints * len(spec["ports"]), f"service {name} has {members} members")
        if spec["type"] == "LoadBalancer":
            self.wants(public and set(public) <= floating, f"service {name} has no public address")
        return [name, spec["clusterIP"], balancer.get("id", "")[:8], status, str(listeners), str(members),
                ", ".join(public)]


def table(head, rows):
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print()


def kubernetes_calls():
    """The controller's requests to Kubernetes, by verb, as its metrics tell."""
    with urllib.request.urlopen(f"{ADMIN}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    counts = collections.Counter()
    for labels, value in re.findall(r"^rest_client_requests_total\{(.*)\} (\d+)", page, re.MULTILINE):
        counts[re.search(r'method="(\w+)"', labels).group(1)] += int(value)
    return ", ".join(f"{count} {verb}" for verb, count in counts.most_common() if count)


def main():
    began = time.monotonic()
    cloud = Cloud(CLOUDS, "staffetta")
    view = View(cloud)
    while view.missing and time.monotonic() - began < PATIENCE:
        time.sleep(0.5)
        view = View(cloud)
    took = time.monotonic() - began
    table(["POD", "NODE", "ADDRESS", "PORT", "STATUS", "GROUPS", "RULES"], view.pods)
    table(["POLICY", "SELECTS", "GUARDS", "RULES"], view.policies)
    table(["SERVICE", "CLUSTER-IP", "LOAD-BALANCER", "STATUS", "LISTENERS", "MEMBERS", "PUBLIC-IP"], view.services)
    print(f"{len(view.pods)} pods, {len(view.services)} services, {len(view.policies)} network policies in {took:.1f} s")
    for name, calls in (("Neutron", cloud.calls("network")), ("Octavia", cloud.calls("load-balancer")),
                        ("Kubernetes", kubernetes_calls())):
        print(f"calls to {name}: {calls}")
    for what in view.missing:
        print(f"not as it should be: {what}", file=sys.stderr)
    sys.exit(1 if view.missing else 0)


main()
