"""A headless Chromium, spoken to through a pipe: what a page does and looks like, no package needed."""

import json
import os
import shutil
import subprocess
from itertools import count

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars "
    "--disable-background-networking --remote-debugging-pipe about:blank"
)
#: What the browser says of its own accord → what it complains of.
COMPLAINTS = {
    "Runtime.exceptionThrown": "exceptionDetails",
    "Runtime.consoleAPICalled": "args",
    "Log.entryAdded": "entry",
}


class Browser:
    """One tab. `complaints` and `requests` are those since the last `go`."""

    def __init__(self, profile):
        (own, to), (frm, its) = os.pipe(), os.pipe()
        start = f'exec "$0" "$@" 3<&{own} 4>&{its} >/dev/null 2>&1'  # its files, by their numbers
        words = ["bash", "-c", start, BROWSER, f"--user-data-dir={profile}", *FLAGS.split()]
        self.process = subprocess.Popen(words, pass_fds=(own, its))
        os.close(own), os.close(its)
        self.out, self.into, self.numbers = os.fdopen(to, "wb", 0), os.fdopen(frm, "rb"), count(1)
        self.session, self.complaints, self.requests, self.loaded = {}, [], [], False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def hear(self):
        """Return the next message; what the browser says of its own accord is noted."""
        text = b"".join(iter(lambda: self.into.read(1) or b"\0", b"\0"))
        assert text, "the browser has gone"
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        self.loaded |= method == "Page.loadEventFired"
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        if method in COMPLAINTS:
            self.complaints.append(str(params[COMPLAINTS[method]]))
        return message

    def ask(self, method, **params):
        """Return the answer to one call."""
        call = {"id": next(self.numbers), "method": method, "params": params, **self.session}
        self.out.write(json.dumps(call).encode() + b"\0")
        message = next(m for m in iter(self.hear, None) if m.get("id") == call["id"])
        assert "error" not in message, message
        return message["result"]

    def look(self, width, dark=False, media=""):
        """Set how the page is looked at: CSS pixels, light or dark, on screen or in print."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def go(self, path):
        """Open a file and wait until it is there."""
        self.complaints, self.requests, self.loaded = [], [], False
        self.ask("Page.navigate", url=path.as_uri())
        while not self.loaded:
            self.hear()

    def run(self, script):
        """Return what an expression of JavaScript comes to."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def close(self):
        self.process.kill(), self.process.wait(), self.out.close(), self.into.close()
