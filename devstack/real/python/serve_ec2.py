"""Serves the EC2 API of moto on loopback, with what moto lacks: prefixes on network interfaces, and the refusals of EC2.

Requests must be signed with the secret below; the signature is checked by botocore. AssumeRole of STS is answered too, with keys whose
secret is another one, and whose session token is required. Further requests, for tests:

  POST /_throttle/N   the next N requests are answered with RequestLimitExceeded
  POST /_partial/N    the next N assignments of several prefixes get one of them
  POST /_delay/MS     reads show what is assigned from now on only after so many milliseconds
  POST /_reset        forgets the counts, and ends all of these
  GET /_requests      the number of requests by action, as JSON
  POST /_machine/TYPE/ADDRESS/LENGTH
                      starts an instance of this type in a new subnet, a part of 10.7.0.0/16; the ids of the instance and its interface, as JSON
  GET /_blocks/ID     the prefixes of an interface, as JSON
"""

import io
import ipaddress
import itertools
import json
import re
import sys
import threading
import time
import urllib.parse
from collections import Counter

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses.elastic_network_interfaces import ElasticNetworkInterfaces
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.test import Client

SECRET = "staffetta"
# The secret of the keys of roles, and the session token that their requests must carry.
ROLE_SECRET, SESSION = "staffetta-role", "session"
LOCK = threading.Lock()


class Whims:
    """How the server departs from a prompt and complete service. EC2 may do all of this."""

    partial = 0
    delay = 0.0
    # The time from which on reads show a prefix, by prefix.
    visible = {}


def shown(interface):
    """The prefixes that reads show."""
    now = time.monotonic()
    return [one for one in interface.assigned_prefixes if Whims.visible.get(one["Ipv4Prefix"], 0) <= now]


def free_blocks(interface, length):
    """The free blocks of this length in the subnet of the interface, the lowest first."""
    subnet = interface.subnet
    network = ipaddress.ip_network(subnet.cidr_block)
    first, last = int(network.network_address), int(network.broadcast_address)
    used = {*range(first, first + 4), last}
    for other in interface.ec2_backend.get_all_network_interfaces():
        if other.subnet.id != subnet.id:
            continue
        used |= {int(ipaddress.ip_address(one["PrivateIpAddress"])) for one in other.private_ip_addresses}
        for prefix in other.assigned_prefixes:
            block = ipaddress.ip_network(prefix["Ipv4Prefix"])
            used |= set(range(int(block.network_address), int(block.broadcast_address) + 1))
    size = 1 << (32 - length)
    for start in range(first, last + 1, size):
        if used.isdisjoint(range(start, start + size)):
            yield ipaddress.ip_network((start, length))


def slots(interface):
    """The number of prefixes and secondary addresses that the interface can still have."""
    kind = interface.instance.instance_type if interface.instance else "m5.large"
    most = INSTANCE_TYPES[kind]["NetworkInfo"]["Ipv4AddressesPerInterface"]
    return most - len(interface.private_ip_addresses) - len(interface.assigned_prefixes)


def take(interface, length, count):
    """All requested blocks, or an error: EC2 assigns no part of them."""
    if count > slots(interface):
        raise EC2ClientError("PrivateIpAddressLimitExceeded", "Number of private addresses exceeds limit.")
    blocks = list(itertools.islice(free_blocks(interface, length), count))
    if len(blocks) < count:
        code = "InsufficientCidrBlocks" if length == 28 else "InsufficientFreeAddressesInSubnet"
        raise EC2ClientError(code, f"There aren't sufficient free Ipv4 addresses or prefixes in {interface.subnet.id}.")
    return blocks


def assign(self):
    with LOCK:
        interface = self.ec2_backend.get_network_interface(self._get_param("NetworkInterfaceId"))
        count = self._get_int_param("Ipv4PrefixCount", 0)
        if count > 1 and Whims.partial > 0:
            Whims.partial -= 1
            count = 1
        prefixes = [{"Ipv4Prefix": str(block)} for block in take(interface, 28, count)]
        interface.assigned_prefixes += prefixes
        Whims.visible.update({one["Ipv4Prefix"]: time.monotonic() + Whims.delay for one in prefixes})
        addresses = take(interface, 32, self._get_int_param("SecondaryPrivateIpAddressCount", 0))
        addresses = [{"Primary": False, "PrivateIpAddress": str(block.network_address)} for block in addresses]
        interface.private_ip_addresses += addresses
        return ActionResult(
            {
                "NetworkInterfaceId": interface.id,
                "AssignedPrivateIpAddresses": addresses,
                "AssignedIpv4Prefixes": prefixes,
            }
        )


def unassign(self):
    with LOCK:
        interface = self.ec2_backend.get_network_interface(self._get_param("NetworkInterfaceId"))
        prefixes = set(self._get_param("Ipv4Prefixes", []))
        addresses = set(self._get_param("PrivateIpAddresses", []))
        present = {one["Ipv4Prefix"] for one in interface.assigned_prefixes}
        secondary = {one["PrivateIpAddress"] for one in interface.private_ip_addresses if not one["Primary"]}
        if not prefixes <= present or not addresses <= secondary:
            raise EC2ClientError("InvalidParameterValue", "Some of these are not assigned to the interface.")
        interface.assigned_prefixes = [
            one for one in interface.assigned_prefixes if one["Ipv4Prefix"] not in prefixes
        ]
        interface.private_ip_addresses = [
            one for one in interface.private_ip_addresses if one["PrivateIpAddress"] not in addresses
        ]
        return EmptyResult()


def install():
    """Adds prefixes to the interfaces of moto, whose serializer finds them by the name of the attribute."""
    create = NetworkInterface.__init__

    def create_with_prefixes(self, *arguments, **options):
        self.assigned_prefixes = []
        create(self, *arguments, **options)

    NetworkInterface.__init__ = create_with_prefixes
    NetworkInterface.ipv4_prefixes = property(shown)
    ElasticNetworkInterfaces.assign_private_ip_addresses = assign
    ElasticNetworkInterfaces.unassign_private_ip_addresses = unassign


def is_signed(environ, body):
    """True if the signature is the one that botocore calculates."""
    try:
        scheme, rest = environ["HTTP_AUTHORIZATION"].split(" ", 1)
        parts = dict(part.strip().split("=", 1) for part in rest.split(","))
        identity, _, region, service, _ = parts["Credential"].split("/")
        headers = {}
        for name in parts["SignedHeaders"].split(";"):
            variable = "CONTENT_TYPE" if name == "content-type" else "HTTP_" + name.upper().replace("-", "_")
            headers[name] = environ[variable]
        request = AWSRequest("POST", f"http://{environ['HTTP_HOST']}/", headers, body)
        request.context["timestamp"] = environ["HTTP_X_AMZ_DATE"]
        is_role = identity.startswith("ASIA")
        if is_role and environ.get("HTTP_X_AMZ_SECURITY_TOKEN") != SESSION:
            return False
        secret = ROLE_SECRET if is_role else SECRET
        signer = SigV4Auth(Credentials(identity, secret), service, region)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        return scheme == "AWS4-HMAC-SHA256" and signer.signature(text, request) == parts["Signature"]
    except (KeyError, ValueError):
        return False


class Account:
    """Calls the API of moto without a signature."""

    def __init__(self, application):
        self.client = Client(application)
        self.vpc = None

    def call(self, action, element, **parameters):
        """The contents of the first such element in the response."""
        scope = "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-west-1/ec2/aws4_request, SignedHeaders=host, Signature=0"
        response = self.client.post("/", data={"Action": action, **parameters}, headers={"Authorization": scope})
        found = re.search(f"<{element}>([^<]*)</{element}>", response.text)
        if not found:
            raise RuntimeError(f"{action}: {response.text}")
        return found[1]

    def start_machine(self, kind, subnet):
        if not self.vpc:
            self.vpc = self.call("CreateVpc", "vpcId", CidrBlock="10.7.0.0/16")
        subnet = self.call("CreateSubnet", "subnetId", VpcId=self.vpc, CidrBlock=subnet)
        options = {"InstanceType": kind, "SubnetId": subnet, "ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1}
        instance = self.call("RunInstances", "instanceId", **options)
        of_instance = {"Filter.1.Name": "attachment.instance-id", "Filter.1.Value.1": instance}
        interface = self.call("DescribeNetworkInterfaces", "networkInterfaceId", **of_instance)
        return {"instance": instance, "interface": interface}

    def blocks(self, interface):
        response = self.client.post(
            "/",
            data={"Action": "DescribeNetworkInterfaces", "NetworkInterfaceId.1": interface},
            headers={"Authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-west-1/ec2/aws4_request"},
        )
        return re.findall("<ipv4Prefix>([^<]*)</ipv4Prefix>", response.text)


class Gate:
    """Counts requests, checks signatures, and throttles."""

    def __init__(self, application):
        self.application = application
        self.account = Account(application)
        self.counts = Counter()
        self.throttled = 0

    def __call__(self, environ, start_response):
        path = environ["PATH_INFO"]
        if path.startswith("/_"):
            return self.control(path, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if not is_signed(environ, body):
            return refuse(start_response, "403 Forbidden", "SignatureDoesNotMatch")
        with LOCK:
            action = urllib.parse.parse_qs(body.decode()).get("Action", ["none"])[0]
            self.counts[action] += 1
            self.throttled -= 1
            is_throttled = self.throttled >= 0
        if is_throttled:
            return refuse(start_response, "503 Service Unavailable", "RequestLimitExceeded")
        if action == "AssumeRole":
            start_response("200 OK", [("Content-Type", "text/xml")])
            return [role_keys().encode()]
        environ["wsgi.input"] = io.BytesIO(body)
        return self.application(environ, start_response)

    def control(self, path, start_response):
        name, *arguments = path.removeprefix("/_").split("/")
        if name == "machine":
            kind, address, length = arguments
            answer = self.account.start_machine(kind, f"{address}/{length}")
        elif name == "blocks":
            answer = self.account.blocks(*arguments)
        else:
            with LOCK:
                if name == "throttle":
                    self.throttled = int(*arguments)
                elif name == "partial":
                    Whims.partial = int(*arguments)
                elif name == "delay":
                    Whims.delay = int(*arguments) / 1000
                elif name == "reset":
                    self.throttled, self.counts = 0, Counter()
                    Whims.partial, Whims.delay = 0, 0.0
                answer = dict(self.counts)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


def role_keys():
    """The response of STS for any role."""
    expiration = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    keys = f"<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>{ROLE_SECRET}</SecretAccessKey>"
    keys += f"<SessionToken>{SESSION}</SessionToken><Expiration>{expiration}</Expiration>"
    result = f"<AssumeRoleResult><Credentials>{keys}</Credentials></AssumeRoleResult>"
    return f'<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{result}</AssumeRoleResponse>'


def refuse(start_response, status, code):
    start_response(status, [("Content-Type", "text/xml")])
    error = f"<Error><Code>{code}</Code><Message>Refused by the test server.</Message></Error>"
    return [f"<Response><Errors>{error}</Errors><RequestID>req-gate</RequestID></Response>".encode()]


if __name__ == "__main__":
    install()
    application = Gate(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)
