"""Counts the requests that a service answers.

GET /_requests answers a list of {agent, project, method, path, status, count}; ids in paths are written as `*`. The
processes of a service share one file, to which each appends a line a request.
"""

import collections
import json
import os
import re

IDS = re.compile(r"(?<=/)([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=/|$)")
TAGS = re.compile(r"(?<=/tags/).+$")
FIELDS = ("agent", "project", "method", "path", "status")


class Counted:
    """A WSGI application, looked at."""

    def __init__(self, application):
        self.application = application
        self.file = os.open(os.environ["STAFFETTA_REQUESTS"], os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)

    def __call__(self, environ, start_response):
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if path == "/_requests":
            return answer(start_response, "200 OK", self.counts())
        method, agent = environ["REQUEST_METHOD"], environ.get("HTTP_USER_AGENT", "")

        def start(status, headers, *exception):
            # By now the middleware has told the service who asks.
            self.note(agent, environ.get("HTTP_X_PROJECT_ID", ""), method, class_of(path), status.split(" ")[0])
            return start_response(status, headers, *exception)

        return self.application(environ, start)

    def note(self, *fields):
        line = "\t".join(field.replace("\t", " ") for field in fields) + "\n"
        os.write(self.file, line.encode())

    def counts(self):
        size = os.fstat(self.file).st_size
        lines = os.pread(self.file, size, 0).decode(errors="replace").splitlines()
        counted = collections.Counter(tuple(line.split("\t")) for line in lines)
        return [dict(zip(FIELDS, fields), count=count) for fields, count in counted.items()]


def class_of(path):
    """The path without what differs from one thing to the next."""
    return TAGS.sub("*", IDS.sub("*", path)).rstrip("/") or "/"


def answer(start_response, status, body=None):
    """Answers a body as JSON, or none."""
    text = b"" if body is None else json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]
