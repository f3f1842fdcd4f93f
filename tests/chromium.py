"""Chromium by its DevTools protocol over a pipe: no driver and no further package is needed."""

import base64
import json
import os
import shutil
import subprocess
import time

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None or os.name != "posix", reason="Chromium is not installed")
OPTIONS = (
    "--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
KEY_CODES = {
    "Enter": 13,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Tab": 9,
    " ": 32,
}


class Chromium:
    """One tab. `errors` are its console messages, uncaught exceptions and failed requests; `requests` all addresses."""

    def __init__(self, folder, width=1400, height=900, dark=False, options=()):
        read_end, self.commands = os.pipe()
        self.replies, write_end = os.pipe()
        # The browser reads commands from file 3 and writes replies to file 4.
        shell = f'exec "$0" "$@" 3<&{read_end} 4>&{write_end}'
        arguments = [
            *OPTIONS,
            *options,
            f"--user-data-dir={folder}",
            "--remote-debugging-pipe",
            f"--window-size={width},{height}",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", shell, CHROMIUM, *arguments, "about:blank"],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_end)
        os.close(write_end)
        self.buffer, self.number, self.session, self.errors = b"", 0, None, []
        self.requests = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.read()
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            self.record(reply)

    def read(self):
        while b"\0" not in self.buffer:
            part = os.read(self.replies, 2**20)
            if not part:
                raise RuntimeError("Chromium ended")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def record(self, event):
        values = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled":
            self.errors.append(str([value.get("value") for value in values["args"]]))
        elif event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"]))
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif event.get("method") == "Log.entryAdded":
            self.errors.append(values["entry"]["text"] + " " + values["entry"].get("url", ""))

    def open(self, address):
        self.call("Page.navigate", url=address)

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def wait_for(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(expression)
            except RuntimeError as error:
                value = None if "TypeError" in str(error) or "context" in str(error) else error
            if isinstance(value, RuntimeError):
                raise value
            if value:
                return value
            if time.monotonic() > end:
                shown = self.evaluate("document.body.innerText")
                raise AssertionError(f"not within {seconds} s: {expression}; {self.errors}; the page says {shown}")
            time.sleep(0.05)

    def press(self, key):
        values = {"key": key, "windowsVirtualKeyCode": KEY_CODES.get(key) or ord(key.upper())}
        text = "\r" if key == "Enter" else key
        if len(text) == 1:
            values["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **values)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def drag(self, points):
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 2), "mouseReleased"]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=points[0][0], y=points[0][1])
        for kind, (x, y) in zip(kinds, points, strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def click(self, selector):
        box = self.evaluate(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.drag([box, box])

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.replies)
