"""How fast the labelling page is: frames per second of the map, and the time from a key to a map of the next fit.

In headless Chromium, which draws without a GPU: frames on a screen are at least as fast. Seconds of the processor are
given beside those of the clock, which other work makes longer.

    python benchmarks/studio.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, load
from sklearn.datasets import make_blobs

from ldsu.studio import Samples, Session, StudioServer

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from chromium import CHROMIUM, Chromium  # the driver of the tests

# Pans and zooms for some seconds, a step with each frame; frames per second.
FRAMES = """new Promise((done) => {
  const { map } = studio, start = performance.now();
  let frames = 0;
  const step = () => {
    map.zoomAt(frames % 60 < 30 ? 1.02 : 1 / 1.02);
    map.pan(Math.sin(frames / 10) * 4, Math.cos(frames / 10) * 4);
    map.render();
    map.gl.readPixels(0, 0, 1, 1, map.gl.RGBA, map.gl.UNSIGNED_BYTE, new Uint8Array(4)); // waits for the frame
    frames++;
    const seconds = (performance.now() - start) / 1000;
    if (seconds < SECONDS) requestAnimationFrame(step); else done(frames / seconds);
  };
  requestAnimationFrame(step);
})"""
# Milliseconds of script per frame, which is what a page with a GPU takes.
SCRIPT = """(() => {
  const start = performance.now();
  for (let i = 0; i < 50; i++) { studio.map.zoomAt(1 + 0.01 * (i % 2)); studio.map.render(); }
  return (performance.now() - start) / 50;
})()"""
# Milliseconds from a key to the acknowledged answer, and to the map of the next fit.
KEY = """new Promise((done) => {
  const { labelled } = studio.state, start = performance.now();
  let acknowledged = null;
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "1", bubbles: true }));
  const look = () => {
    if (acknowledged === null && studio.state.labelled > labelled) acknowledged = performance.now() - start;
    const shown = studio.state.curve.at(-1)[0] === studio.state.labelled;
    if (acknowledged !== null && shown) done([acknowledged, performance.now() - start]);
    else setTimeout(look, 2);
  };
  look();
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200_000, help="points of the map")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of the fits")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of moving the map")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("Chromium is not installed.")
    warnings.simplefilter("ignore", UserWarning)
    rows = Rows("studio")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measure_frames(rows, Path(folder), options.points, options.seconds)
        measure_keys(rows, Path(folder), options.rows, options.repeats)
    print(f"written to {rows.write(options.out)}")


def measure_frames(rows: Rows, folder: Path, n: int, seconds: float) -> None:
    X, _ = make_blobs(n, n_features=5, centers=10, random_state=0)
    with Session(Samples.of_points(X)) as session, StudioServer(session) as server:
        server.start()
        begin = time.perf_counter()
        while session.map_revision == 1:
            session.wait_for_news(session.revision, 1)
        rows.add("blobs", n, "map from neighbors", 0, time.perf_counter() - begin, "s")
        session.wait()  # the first suggestions take the processor from the frames
        page = Chromium(folder / "frames")
        page.open(server.address)
        page.wait_for("window.studio?.state && studio.map.classes && studio.map.progress() === 1", 300)
        for repeat in range(3):
            frames = page.evaluate(FRAMES.replace("SECONDS", str(seconds)))
            rows.add("blobs", n, "frames", repeat, frames, "frames per second")
            share = page.evaluate("studio.map.share")
            rows.add("blobs", n, "points drawn while the map moves", repeat, share, "share")
            print(f"{n:,} points: {frames:.1f} frames per second without a GPU, of {share:.0%} of the points")
        script = page.evaluate(SCRIPT)  # last: its frames wait to be drawn
        rows.add("blobs", n, "script per frame", 0, script, "ms")
        print(f"{n:,} points: {script:.2f} ms of script per frame")
        page.close()
        server.shutdown()


def measure_keys(rows: Rows, folder: Path, n: int, repeats: int) -> None:
    found = load("mnist.npz") if n >= 10_000 else None
    X, y = make_blobs(n, n_features=20, centers=10, random_state=0) if found is None else (found[0][:n], found[1][:n])
    case = "blobs" if found is None else "mnist"
    with (
        Session(Samples.of_points(X), folder / "journal.jsonl") as session,
        StudioServer(session) as server,
    ):
        server.start()
        for kind in np.unique(y):
            session.label(np.flatnonzero(y == kind)[:5].tolist(), str(kind))
        session.wait()
        page = Chromium(folder / "keys")
        page.open(server.address)
        page.wait_for("window.studio?.state && studio.current != null && !studio.state.fitting", 600)
        for repeat in range(repeats):
            # The key 1 is always the first class, which may be wrong: a fit takes as long.
            processor, start = time.process_time(), time.perf_counter()
            acknowledged, shown = page.evaluate(KEY)
            processor = time.process_time() - processor
            fit = page.evaluate("studio.state.seconds")
            page.wait_for("!studio.state.fitting", 600)
            measured = {
                "key to saved": acknowledged / 1000,
                "key to map": shown / 1000,
                "key to map, processor": processor,
                "fit": fit,
                "key to suggestions": time.perf_counter() - start,
            }
            for what, value in measured.items():
                rows.add(case, n, what, repeat, value, "s")
            print(f"{n:,} rows: " + ", ".join(f"{what} {value:.2f} s" for what, value in measured.items()))
        page.close()
        server.shutdown()


if __name__ == "__main__":
    main()
