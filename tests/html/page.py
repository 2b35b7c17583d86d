"""The page of a report, taken apart as a browser would."""
import base64
import hashlib
import json
import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """`scripts`, `styles` and `data` as text, `csp`, and every attribute that could load or run something."""

    LOADS = {"src", "href", "srcset", "action", "data", "poster", "formaction", "background", "ping", "style", "srcdoc"}

    def __init__(self, text):
        super().__init__()
        self.scripts, self.styles, self.data, self.csp, self.loads, self.handlers, self.tags, self.title = [], [], None, "", [], [], [], ""
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.csp = attributes["content"]
        self.loads += [(tag, k, v) for k, v in attributes.items() if k in self.LOADS]
        self.handlers += [k for k in attributes if k.startswith("on")]
        if tag in ("script", "style", "title"):
            self._open = "data" if attributes.get("type") == "application/json" else tag

    def handle_endtag(self, tag):
        if tag in ("script", "style", "title"):
            self._open = None

    def handle_data(self, text):
        if self._open == "script":
            self.scripts.append(text)
        elif self._open == "style":
            self.styles.append(text)
        elif self._open == "title":
            self.title += text
        elif self._open == "data":
            self.data = (self.data or "") + text

    def document(self):
        return json.loads(self.data)

    def allowed(self):
        return set(re.findall(r"'(sha256-[^']+)'", self.csp))


def csp_hash(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
