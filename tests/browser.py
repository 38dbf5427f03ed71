"""A headless Chromium, spoken to through a pipe: what a page does and looks like, no package needed."""

import json
import os
import shutil
import subprocess
from itertools import count

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One tab. Every complaint that it has heard since the last `go` is in `complaints`."""

    def __init__(self, profile):
        down, up = os.pipe(), os.pipe()

        def files():  # the browser reads from 3 and writes to 4
            for fd, wanted in ((os.dup(down[0]), 3), (os.dup(up[1]), 4)):
                os.dup2(fd, wanted)

        self.process = subprocess.Popen(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={profile}",
             "--remote-debugging-pipe", "about:blank"],
            close_fds=False, preexec_fn=files,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(down[0])
        os.close(up[1])
        self.out, self.into = os.fdopen(down[1], "wb", 0), os.fdopen(up[0], "rb", 0)
        self.rest, self.numbers, self.session = b"", count(1), None
        self.complaints, self.requests, self.loaded = [], [], False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.into.fileno(), 1 << 16)
            assert more, "the browser has gone"
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def heard(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def ask(self, method, **params):
        """The answer to one call."""
        number = next(self.numbers)
        call = {"id": number, "method": method, "params": params}
        call |= {"sessionId": self.session} if self.session else {}
        self.out.write(json.dumps(call).encode() + b"\0")
        while (message := self.message()).get("id") != number:
            self.heard(message)
        assert "error" not in message, message
        return message["result"]

    def look(self, width, height=900, dark=False, media=""):
        """How the page is looked at: CSS pixels, light or dark, on screen or in print."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def go(self, path):
        """Open a file and wait until it is there."""
        self.complaints, self.requests, self.loaded = [], [], False
        self.ask("Page.navigate", url=path.as_uri())
        while not self.loaded:
            self.heard(self.message())

    def run(self, script):
        """What an expression of JavaScript comes to."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press_tab(self):
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)

    def close(self):
        self.session = None
        self.ask("Browser.close")
        self.out.close()
        self.into.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
