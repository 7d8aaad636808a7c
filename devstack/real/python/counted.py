"""Counts the requests that a service answers.

GET /_requests answers a list of {agent, project, method, path, status, count, made}; ids in paths are written as `*`, and
`made` is how many things the answers tell of that were made. The processes of a service share one file, to which each
appends a line a request.
"""

import collections
import json
import os
import re

IDS = re.compile(r"(?<=/)([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=/|$)")
TAGS = re.compile(r"(?<=/tags/).+$")
FIELDS = ("agent", "project", "method", "path", "status")


class Counted:
    """A WSGI application whose requests are counted."""

    def __init__(self, application):
        self.application = application
        self.file = os.open(os.environ["STAFFETTA_REQUESTS"], os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)

    def __call__(self, environ, start_response):
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if path == "/_requests":
            return answer(start_response, "200 OK", self.counts())
        method, agent = environ["REQUEST_METHOD"], environ.get("HTTP_USER_AGENT", "")
        told = []

        def start(status, headers, *exception):
            # The middleware has identified the caller by now.
            fields = (agent, environ.get("HTTP_X_PROJECT_ID", ""), method, class_of(path), status.split(" ")[0])
            if method == "POST":
                told[:] = [fields]
            else:
                self.note(0, *fields)
            return start_response(status, headers, *exception)

        body = self.application(environ, start)
        if method != "POST":
            return body
        try:
            parts = list(body)
        finally:
            getattr(body, "close", lambda: None)()
        for fields in told:
            self.note(made(fields[-1], b"".join(parts)), *fields)
        return parts

    def note(self, made, *fields):
        line = "\t".join([str(made), *(field.replace("\t", " ") for field in fields)]) + "\n"
        os.write(self.file, line.encode())

    def counts(self):
        size = os.fstat(self.file).st_size
        lines = os.pread(self.file, size, 0).decode(errors="replace").splitlines()
        counted, things = collections.Counter(), collections.Counter()
        for line in lines:
            made, *fields = line.split("\t")
            counted[tuple(fields)] += 1
            things[tuple(fields)] += int(made)
        return [dict(zip(FIELDS, fields), count=count, made=things[fields]) for fields, count in counted.items()]


def made(status, body):
    """The number of resources that a POST created, according to its response: one, or those of its list."""
    if status != "201":
        return 0
    try:
        [thing] = json.loads(body).values()
    except (ValueError, AttributeError):
        return 0
    return len(thing) if isinstance(thing, list) else 1


def class_of(path):
    """The path with ids replaced."""
    return TAGS.sub("*", IDS.sub("*", path)).rstrip("/") or "/"


def answer(start_response, status, body=None):
    """Respond with a body as JSON, or without one."""
    text = b"" if body is None else json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]
