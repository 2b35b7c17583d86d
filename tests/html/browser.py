"""A headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver): no package of Python is needed."""
import atexit
import base64
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

KEYS = {"ArrowRight": "\ue014", "ArrowLeft": "\ue012", "ArrowDown": "\ue015", "ArrowUp": "\ue013", "Enter": "\ue007", "Escape": "\ue00c", "End": "\ue010", "Home": "\ue011"}


def missing():
    """What keeps a browser from being driven here, or None."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"no {' and no '.join(absent)} (Debian: chromium chromium-driver)" if absent else None


def die_with_parent():
    """A driver whose tests were killed goes too (PR_SET_PDEATHSIG), and its browser, whose pipe is closed by that."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Browser:
    """One window. Use as a context manager: the driver, the browser and its profile go with it."""

    def __init__(self, width=1280, height=900):
        self.profile = tempfile.mkdtemp(prefix="memplan-browser-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True, preexec_fn=die_with_parent)
        atexit.register(self.__exit__)  # also when a test ends the process in a way of its own
        try:
            self.begin(width, height)
        except BaseException:
            self.__exit__()
            raise

    def begin(self, width, height):
        port = None
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                port = line.rstrip().rstrip(".").rsplit(" ", 1)[1]
                break
        self.base = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]
        value = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "pageLoadStrategy": "normal", "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")},
                                                                                 "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.base += f"/session/{value['sessionId']}"
        self.call("POST", "/timeouts", {"pageLoad": 120000, "script": 60000})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.driver.poll() is not None:
            return
        try:
            self.call("DELETE", "", timeout=10)
        except Exception:
            pass
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)  # its own session: only what it started
        except ProcessLookupError:
            pass
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, path, body=None, timeout=180):
        request = urllib.request.Request(self.base + path, method=method, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"].split("\n")[0]) from None

    def open(self, path):
        """Loads a file and waits until it has drawn itself. Returns seconds from the request to the first idle frame."""
        self.logs("performance"), self.logs("browser")
        began = time.monotonic()
        self.call("POST", "/url", {"url": "file://" + os.path.abspath(path)})
        self.run_async("const done = arguments[0]; const look = () => document.documentElement.classList.contains('ready') ? requestAnimationFrame(() => setTimeout(done, 0)) : setTimeout(look, 10); look();")
        return time.monotonic() - began

    def processor_seconds(self):
        """What the driver, the browser and all their processes have used so far: what a page takes on a calm machine at most."""
        parents, used = {}, {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(pid))
            used[int(pid)] = int(fields[11]) + int(fields[12])
        ours, total = [self.driver.pid], 0
        while ours:
            pid = ours.pop()
            total += used.get(pid, 0)
            ours += parents.get(pid, [])
        return total / os.sysconf("SC_CLK_TCK")

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script, *arguments):
        return self.call("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def logs(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def requests(self):
        """Addresses that the page asked for since it was opened, but for the page itself."""
        found = []
        for entry in self.logs("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [u for u in found if not u.startswith("data:")][1:] if found else []

    def find(self, selector):
        return next(iter(self.call("POST", "/element", {"using": "css selector", "value": selector}).values()))

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", selector)
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def key(self, *keys):
        actions = [{"type": kind, "value": KEYS.get(k, k)} for k in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def hover(self, selector, x=0, y=0):
        """The pointer over an element, x and y from its middle."""
        origin = {"element-6066-11e4-a52e-4f735466cecf": self.find(selector)}
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": [{"type": "pointerMove", "duration": 0, "origin": origin, "x": x, "y": y}]}]})

    def resize(self, width, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """"light" or "dark", as the system says it."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path, whole=False):
        if whole:
            box = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
            data = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1})["data"]
        else:
            data = self.call("GET", "/screenshot")
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def print(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("POST", "/print", {"background": True})))
