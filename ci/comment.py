#!/usr/bin/env python3
"""Writes the Markdown report as one comment on the pull request, or replaces the one that is there.

A token that may not comment (as on pull requests from forks) is no failure of the gate: the step summary has the report,
and this says so in a notice. Only the standard library is used.
"""
import json
import os
import sys
import urllib.error
import urllib.request

TAG = "<!-- memplan-gate -->"  # the first line of the report finds the comment again


def call(method, path, body=None):
    request = urllib.request.Request(os.environ["GITHUB_API_URL"] + path, method=method, data=json.dumps(body).encode() if body else None)
    request.add_header("Authorization", "Bearer " + os.environ.get("GITHUB_TOKEN", ""))
    request.add_header("Accept", "application/vnd.github+json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def wanted(report):
    """Whether this result is worth a comment: on-change where a peak moved or a target does not pass."""
    mode = os.environ.get("GATE_COMMENT", "on-change")
    red = report["summary"]["status"] in ("failed", "error")
    moved = any(t["diff"] and t["diff"]["summary"]["delta_bytes"] for t in report["targets"])
    new = any(t["report"] and not t["diff"] for t in report["targets"]) and report["baseline"]["present"]
    return mode == "always" or (mode == "on-regression" and red) or (mode == "on-change" and (red or moved or new))


def main():
    out = os.environ.get("GATE_OUT", "memplan-report")
    if not os.path.exists(os.path.join(out, "memplan.md")):
        return
    with open(os.path.join(out, "memplan.json"), encoding="utf-8") as f:
        report = json.load(f)
    with open(os.path.join(out, "memplan.md"), encoding="utf-8") as f:
        body = f.read()
    repository, number = os.environ["GITHUB_REPOSITORY"], os.environ["GATE_PULL_REQUEST"]
    try:
        mine, page = None, 1
        while mine is None and page <= 10:
            comments = call("GET", f"/repos/{repository}/issues/{number}/comments?per_page=100&page={page}")
            mine = next((c for c in comments if c["body"].startswith(TAG)), None)
            if len(comments) < 100:
                break
            page += 1
        if mine:  # also when nothing moves any more: a comment that is no longer true is worse than none
            call("PATCH", f"/repos/{repository}/issues/comments/{mine['id']}", {"body": body})
        elif wanted(report):
            call("POST", f"/repos/{repository}/issues/{number}/comments", {"body": body})
    except urllib.error.HTTPError as error:
        print(f"::notice title=memplan::no comment was written (the service answered {error.code}): on pull requests from forks the token may only read. The step summary has the report.")
    except OSError as error:
        print(f"::notice title=memplan::no comment was written: {type(error).__name__}. The step summary has the report.")


if __name__ == "__main__":
    sys.exit(main())
