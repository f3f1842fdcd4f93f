"""Killed, interrupted, out of disk or memory, without rights or network: what is printed, and what is left."""

import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("resource", reason="limits and signals of Unix")

import resource

import fake_engine
from ldsu import KPCA, FewLabelKFold, LDSUSearch, load_model, save_model
from ldsu._utils.files import WriteError, replacing, require_writable
from ldsu.bench import runner
from ldsu.bench import store as store_module
from ldsu.bench.report.formatting import when
from ldsu.bench.store import Owner, Store
from ldsu.bench.tasks import Task
from ldsu.cli import cli
from ldsu.datasets import download
from ldsu.datasets.download import Remote, fetch

try:
    from numpy._core._exceptions import _ArrayMemoryError
except ImportError:  # NumPy 1
    from numpy.core._exceptions import _ArrayMemoryError

TESTS = Path(__file__).parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
}
COLUMNS = 30


def call(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def refusal(done):
    """The sentence a command ends with that the machine refused."""
    assert done.exit_code == 1, done.output
    assert "Traceback" not in done.output
    assert isinstance(done.exception, SystemExit)
    (sentence,) = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    return sentence


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A table of 300 rows with five labels per class, and a model of it."""
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    lines = [",".join([*(f"c{j}" for j in range(COLUMNS)), "kind"])]
    for i in range(300):
        values = rng.normal(2.0 * (i % 3), 1.0, COLUMNS)
        lines.append(",".join([*(f"{value:.4f}" for value in values), "xyz"[i % 3] if i < 15 else ""]))
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    done = call("fit", folder / "table.csv", "--label", "kind", "-o", folder / "model.ldsu", "-q")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    """Two models of some megabytes that give different features, and a few rows for them."""
    X = np.random.default_rng(0).standard_normal((700, 20))
    folder = tmp_path_factory.mktemp("models")
    for name, gamma in (("old", 0.01), ("new", 0.02)):
        save_model(KPCA(n_components=600, gamma=gamma).fit(X), folder / f"{name}.ldsu")
    return folder


# Killed while writing

# It loads the libraries once, and then forks for each attempt: what is killed is the work and not the start.
KILLER = """
import json, os, random, signal, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore", DeprecationWarning)
given = json.loads(sys.argv[1])
random.seed(given["seed"])
signal.signal(signal.SIGINT, signal.default_int_handler)
exec(given["prepare"])

def attempt():
    ready, says = os.pipe()
    pid = os.fork()
    if pid:
        os.close(says)
        os.read(ready, 1)
        os.close(ready)
        return pid
    code = 99
    try:
        os.setsid()
        os.dup2(os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.write(says, b".")
        work()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stderr.flush()
        os._exit(code)

def end_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

start = time.perf_counter()
first = 0 if given["usual"] else end_of(attempt())
usual = given["usual"] or time.perf_counter() - start
outcomes = []
for k in range(given["times"]):
    sent = given["signals"][k % len(given["signals"])]
    pid = attempt()
    time.sleep(0.002 + random.random() * usual)
    os.kill(pid, sent)
    code = end_of(pid)
    outcomes.append([code, Path(given["log"]).read_text(), pid])
    exec(given["look"])
print(json.dumps({"first": first, "outcomes": outcomes}))
"""


def forks(tmp_path, prepare, look="", *, times, signals=(signal.SIGKILL,), usual=None, seed=0):
    """What became of many attempts at `work`, which `prepare` defines, each ended at a random moment of it.

    `usual` is how many seconds it takes; None for one attempt that is let be, to see.
    """
    given = {
        "prepare": prepare,
        "look": look,
        "times": times,
        "signals": [int(sent) for sent in signals],
        "usual": usual,
        "seed": seed,
        "log": str(tmp_path / "log.txt"),
    }
    done = subprocess.run(
        [sys.executable, "-c", KILLER, json.dumps(given)],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60 + 10 * times,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    recorded = json.loads(done.stdout.splitlines()[-1])
    assert recorded["first"] == 0
    return recorded["outcomes"]


SAVING = """
from ldsu import load_model, save_model
models = [load_model("{folder}/old.ldsu", check=False), load_model("{folder}/new.ldsu", check=False)]
gammas = {{model.gamma for model in models}}
target = Path("out/model.ldsu")
save_model(models[0], target)
turn, seen, left = 0, set(), set()

def work():
    for k in range(10**6):
        save_model(models[(turn + k) % 2], target)
"""
LOOKING = """
turn += 1
seen.add(load_model(target).gamma)  # whole: it is checked byte by byte
assert seen <= gammas
left |= {path.name.split(".part")[0] + ".part" for path in target.parent.iterdir() if path != target}
assert left <= {"model.ldsu.part"}, left
"""


@pytest.mark.parametrize("times", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_a_model_killed_while_it_is_saved_is_the_old_one_or_the_new_one(times, two_models, tmp_path):
    folder, strays = tmp_path / "out", []
    for seed in range(10):  # until one of them was hit while it wrote
        outcomes = forks(tmp_path, SAVING.format(folder=two_models), LOOKING, times=times, usual=0.4, seed=seed)
        assert all(code == -signal.SIGKILL for code, _, _ in outcomes)
        strays = [path for path in folder.iterdir() if path.name != "model.ldsu"]
        if strays:
            break
    assert strays, "none was hit while it wrote"
    assert all(path.name.startswith("model.ldsu.part") for path in strays)
    save_model(load_model(two_models / "new.ldsu"), folder / "model.ldsu")
    assert load_model(folder / "model.ldsu").gamma == 0.02


COMMAND = """
import ldsu.bench.owndata, ldsu.bench.runner, ldsu.io, ldsu.tables.model, ldsu.tables.readers, ldsu.tables.writers
import pyarrow.csv, rich.status
import ldsu.__main__, ldsu.cli

def work():
    sys.argv = ["ldsu", *{arguments!r}]
    ldsu.__main__.main()
"""


@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_predictions_killed_while_they_are_written_are_the_old_ones_or_the_new_ones(times, own, tmp_path):
    output = tmp_path / "out" / "labels.csv"
    output.parent.mkdir()
    arguments = ["predict", str(own / "model.ldsu"), str(own / "table.csv"), "-o", str(output), "--keep-all", "-qf"]
    assert call(*arguments).exit_code == 0
    new = output.read_bytes()
    output.write_text("old\n")
    look = f"""
found = Path({str(output)!r}).read_bytes()
assert found in (b"old\\n", Path({str(tmp_path / "new.csv")!r}).read_bytes())
Path({str(output)!r}).write_text("old\\n")
"""
    (tmp_path / "new.csv").write_bytes(new)
    outcomes = forks(tmp_path, COMMAND.format(arguments=arguments), look, times=times)
    assert any(code == -signal.SIGKILL for code, _, _ in outcomes)
    assert all(name == "labels.csv" or name.startswith("labels.csv.part") for name in files_in(output.parent))
    assert call(*arguments).exit_code == 0
    assert output.read_bytes() == new


def test_two_processes_that_save_to_one_path_leave_one_whole_model(two_models, tmp_path):
    program = (
        "import sys; from ldsu import load_model, save_model\n"
        "model = load_model(sys.argv[1], check=False)\n"
        "for _ in range(5): save_model(model, sys.argv[2])\n"
    )
    path = tmp_path / "model.ldsu"
    save_model(load_model(two_models / "old.ldsu"), path)
    writers = [
        subprocess.Popen([sys.executable, "-c", program, two_models / f"{name}.ldsu", path], env=ENVIRONMENT)
        for name in ("old", "new")
    ]
    seen = []
    while any(writer.poll() is None for writer in writers):
        seen.append(load_model(path).gamma)
        time.sleep(0.05)
    assert [writer.wait() for writer in writers] == [0, 0]
    assert set(seen) <= {0.01, 0.02}
    assert load_model(path).gamma in (0.01, 0.02)
    assert files_in(tmp_path) == ["model.ldsu"]


def test_an_interrupt_after_the_renaming_is_an_interrupt_and_the_file_is_new(tmp_path, monkeypatch):
    real = os.replace

    def interrupted(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr("ldsu._utils.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "x") as file:
        file.write(b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    assert files_in(tmp_path) == ["x"]


def test_contents_are_on_the_disk_before_they_get_their_name(tmp_path, monkeypatch):
    recorded = []
    monkeypatch.setattr("ldsu._utils.files.os.fsync", lambda number: recorded.append(os.fstat(number).st_size))
    replace = os.replace
    monkeypatch.setattr("ldsu._utils.files.os.replace", lambda *names: (recorded.append("renamed"), replace(*names)))
    with replacing(tmp_path / "x", "w", encoding="utf-8") as file:
        file.write("twelve bytes")
    assert recorded == [12, "renamed"]


def test_a_file_is_as_private_as_the_user_wants_it(tmp_path):
    before = os.umask(0o077)
    try:
        with replacing(tmp_path / "x") as file:
            file.write(b"mine")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    with replacing(tmp_path / "x") as file:  # and stays so
        file.write(b"mine again")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_a_private_file_is_readable_by_its_owner_alone_unless_it_replaces_another(tmp_path):
    path, before = tmp_path / "x", os.umask(0o022)
    try:
        for mode in (0o600, 0o640):
            with replacing(path, private=True) as file:
                assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600  # while it is written, too
            assert stat.S_IMODE(path.stat().st_mode) == mode
            path.chmod(0o640)
    finally:
        os.umask(before)


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe) as file:
        file.write(b"through")
    reader.join(10)
    assert read == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["m" * 245 + ".ldsu", "\N{SNOWMAN}" * 80 + ".ldsu"])
def test_a_name_as_long_as_the_system_takes_is_written(name, tmp_path):
    require_writable(tmp_path / name)
    with replacing(tmp_path / name) as file:
        file.write(b"whole")
    assert (tmp_path / name).read_bytes() == b"whole"
    assert files_in(tmp_path) == [name]


def test_a_name_too_long_is_refused_before_the_work(tmp_path):
    with pytest.raises(WriteError, match="Choose a shorter name"):
        require_writable(tmp_path / ("m" * 300))


# A full disk


@contextmanager
def mounted(folder, options):
    """A small file system in memory. Only root may mount one."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of eight megabytes."""
    if sys.platform != "linux":
        pytest.skip("tmpfs is of Linux")
    with mounted(tmp_path / "disk", "size=8m") as folder:
        yield folder


def fill(disk, leave):
    """Fill a disk but for some bytes."""
    with (disk / "filler").open("wb", buffering=0) as file:
        file.write(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - leave))


WRITERS = {
    "m.ldsu": ["fit", "{own}/table.csv", "--label", "kind"],
    "l.csv": ["predict", "{own}/model.ldsu", "{own}/table.csv", "--keep-all"],
    "l.parquet": ["predict", "{own}/model.ldsu", "{own}/table.csv", "--keep-all"],
    "l.npz": ["predict", "{own}/model.ldsu", "{own}/table.csv", "--keep-all"],
    "f.npy": ["transform", "{own}/model.ldsu", "{own}/table.csv"],
    "f.tsv": ["transform", "{own}/model.ldsu", "{own}/table.csv"],
    "m.onnx": ["export", "{own}/model.ldsu"],
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(name, own, small_disk):
    if name.endswith("onnx"):
        pytest.importorskip("onnx", reason="onnx is not installed")
    output = small_disk / name
    output.write_bytes(b"old")
    fill(small_disk, leave=8192)
    command = [part.format(own=own) for part in WRITERS[name]]
    printed = refusal(call(*command, "-o", output, "-qf"))
    assert f"{output} cannot be written (No space left on device)" in printed
    assert "Free disk space, or choose a folder on another disk." in printed
    assert output.read_bytes() == b"old"
    assert files_in(small_disk) == sorted([name, "filler"])
    (small_disk / "filler").unlink()
    assert call(*command, "-o", output, "-qf").exit_code == 0
    assert output.stat().st_size > 8192


def test_a_comparison_on_a_full_disk_is_one_sentence(own, small_disk):
    fill(small_disk, leave=8192)
    printed = refusal(call("compare", own / "table.csv", "--label", "kind", "--out", small_disk / "out", "-q"))
    assert "No space left on device" in printed
    assert "Free disk space" in printed
    assert files_in(small_disk / "out") == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a Linux device")
@pytest.mark.parametrize("rows", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_standard_output_on_a_full_disk_is_one_sentence(rows, own, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("".join((own / "table.csv").read_text().splitlines(keepends=True)[: rows + 1]))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ldsu", "predict", own / "model.ldsu", table, "-q"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
    assert done.stderr == "Error: No space left on device. Free disk space, or write to another disk.\n"
    assert done.returncode == 1


@contextmanager
def largest_file(size):
    """Let no file of this process grow beyond `size`, as a quota does; needs no rights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_model_larger_than_the_system_allows_leaves_the_old_one(two_models, tmp_path):
    path = tmp_path / "model.ldsu"
    save_model(load_model(two_models / "old.ldsu"), path)
    model = load_model(two_models / "new.ldsu")
    with largest_file(2**20), pytest.raises(WriteError, match=r"model\.ldsu cannot be written \(File too large\)") as e:
        save_model(model, path)
    assert e.value.errno == errno.EFBIG
    assert load_model(path).gamma == 0.01
    assert files_in(tmp_path) == ["model.ldsu"]


def test_a_run_whose_disk_fills_up_says_so_and_goes_on_when_there_is_space(small_disk, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    monkeypatch.setattr(runner, "cores", lambda: 1)
    experiment = fake_engine.experiment(settings=300, repetitions=1)
    path = small_disk / "x.sqlite"
    fill(small_disk, leave=2**19)
    done = runner.run(experiment, path, engine="fake_engine", jobs=1, quiet=True)
    printed = capsys.readouterr().err
    assert done.exit_code == 1
    assert "could not be written: database or disk is full" in printed
    assert "Free disk space and run the command again: the rows in the store are kept." in printed
    assert "Traceback" not in printed
    with Store(path, read_only=True) as store:
        assert store.check() == []
        kept = sum(count.done for count in store.counts().values())
    assert 0 < kept < done.total
    (small_disk / "filler").unlink()
    again = runner.run(experiment, path, engine="fake_engine", jobs=1, quiet=True)
    assert again.exit_code == 0
    assert again.computed == done.total - kept


# Data sets from elsewhere


@pytest.fixture
def server(tmp_path):
    """A server of files, which sends 64 KiB of `slow.bin` and then takes its time."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file.bin").write_bytes(bytes(2**20))
    (folder / "slow.bin").write_bytes(random.Random(0).randbytes(2**20))

    class Handler(SimpleHTTPRequestHandler):
        slow = True

        def copyfile(self, source, output):
            if self.path.startswith("/slow") and Handler.slow:
                output.write(source.read(2**16))
                output.flush()
                time.sleep(30)
            super().copyfile(source, output)

        def log_message(self, *_):
            pass

        def handle(self):
            with suppress(ConnectionError):  # of those that are killed
                super().handle()

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    httpd.daemon_threads = True
    httpd.handler, httpd.folder = Handler, folder
    httpd.address = f"http://127.0.0.1:{httpd.server_address[1]}"
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield httpd
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_proxy")
def test_a_download_to_a_full_disk_is_refused_in_one_sentence(server, small_disk):
    with pytest.raises(OSError, match=r"No space left on device.*LDSU_CACHE to a folder on another disk"):
        fetch(Remote("file.bin", (f"{server.address}/file.bin",)), small_disk)
    assert files_in(small_disk) == []


@pytest.mark.usefixtures("no_proxy")
def test_who_comes_after_a_killed_download_gets_the_whole_file(server, tmp_path):
    import hashlib

    whole = (server.folder / "slow.bin").read_bytes()
    digest = hashlib.sha256(whole).hexdigest()
    cache = tmp_path / "cache"
    program = (
        "import sys; from pathlib import Path; from ldsu.datasets.download import Remote, fetch; "
        "fetch(Remote('slow.bin', (sys.argv[1],), sys.argv[2]), Path(sys.argv[3]))"
    )
    arguments = [sys.executable, "-c", program, f"{server.address}/slow.bin", digest, str(cache)]
    process = subprocess.Popen(arguments, env=ENVIRONMENT)
    part = cache / "slow.bin.part"
    deadline = time.monotonic() + 30
    while not part.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (cache / "slow.bin").exists()
    server.handler.slow = False
    path, is_new = fetch(Remote("slow.bin", (f"{server.address}/slow.bin",), digest), cache)
    assert is_new
    assert path.read_bytes() == whole
    assert files_in(cache) == ["slow.bin"]


def fetch_usps(monkeypatch, cache):
    """`ldsu data fetch usps` where every connection goes to a port that nobody listens at."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("LDSU_DATA", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("LDSU_CACHE", str(cache))
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.001)
    return refusal(call("data", "fetch", "usps"))


def test_without_a_network_addresses_and_cache_are_named(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    printed = fetch_usps(monkeypatch, cache)
    assert "could not be reached" in printed
    assert "https://" in printed
    assert str(cache) in printed
    assert "manually" in printed
    assert files_in(cache) == []


# Folders that cannot be written


@pytest.fixture
def read_only(tmp_path):
    """A folder that cannot be written: to root, only a disk mounted so is one."""
    if os.geteuid():
        folder = tmp_path / "read-only"
        folder.mkdir(mode=0o555)
        yield folder
        return
    with mounted(tmp_path / "read-only", "ro,size=1m") as folder:
        yield folder


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(name, own, read_only, monkeypatch):
    def too_late(*_, **__):
        raise AssertionError("it began to work")

    monkeypatch.setattr("ldsu.tables.readers.read_table", too_late)
    monkeypatch.setattr("ldsu.io.load_model", too_late)
    command = [part.format(own=own) for part in WRITERS[name]]
    for folder, advice in (
        (read_only, "Choose a writable folder."),
        (read_only / "new", f"(the folder {read_only / 'new'} does not exist). Create the folder first"),
    ):
        printed = refusal(call(*command, "-o", folder / name, "-q"))
        assert f"{folder / name} cannot be written (" in printed
        assert advice in printed
    assert files_in(read_only) == []


def test_a_folder_below_a_file_is_refused_in_one_sentence(own, tmp_path):
    (tmp_path / "file").write_text("")
    printed = refusal(call("predict", own / "model.ldsu", own / "table.csv", "-o", tmp_path / "file" / "l.csv"))
    assert f"({tmp_path / 'file'} is not a folder). Choose a writable folder" in printed
    with pytest.raises(WriteError, match="cannot be written"), replacing(tmp_path / "file" / "x"):
        pass
    with pytest.raises(WriteError, match="does not exist"):
        require_writable(tmp_path / "a" / "b" / "c")
    assert files_in(tmp_path) == ["file"]


def test_a_dry_run_needs_no_right_to_write(own, read_only):
    arguments = ("--label", "kind", "-o", read_only / "m.ldsu", "--dry-run", "-q")
    assert call("fit", own / "table.csv", *arguments).exit_code == 0


def test_a_comparison_or_a_store_in_a_read_only_folder_is_one_sentence(own, read_only):
    printed = refusal(call("compare", own / "table.csv", "--label", "kind", "--out", read_only / "x", "-q"))
    assert str(read_only) in printed
    (own / "tiny.toml").write_text(
        'title = "x"\n[protocol]\nrepetitions = 1\nlabels = [1]\n[[data]]\nname = "usps"\n[[method]]\nname = "KPCA"\n'
    )
    printed = refusal(call("bench", "run", own / "tiny.toml", "--store", read_only / "x.sqlite", "-q"))
    assert f"{read_only / 'x.sqlite'} could not be opened" in printed
    assert "Use a file in a writable folder with --store." in printed


def test_a_read_only_cache_is_named_with_the_way_out(read_only, monkeypatch):
    printed = fetch_usps(monkeypatch, read_only / "cache")
    assert str(read_only) in printed
    assert "set LDSU_CACHE to a folder that can be written" in printed


# Memory


def limited(mebibytes, *arguments):
    """The command in a shell with `ulimit -v`."""
    return subprocess.run(
        [sys.executable, "-m", "ldsu", *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes * 2**20,) * 2),
    )


def check_limited(done):
    assert done.returncode in (0, 1), (done.returncode, done.stderr)  # never by a signal
    if done.returncode:
        assert done.stderr.startswith("Error: ")
        assert len(done.stderr.splitlines()) == 1
        assert "emory" in done.stderr
    else:
        assert done.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to RLIMIT_AS")
@pytest.mark.parametrize("mebibytes", [120, 300, 1000])
def test_too_little_memory_to_start_is_one_sentence(mebibytes, own, tmp_path):
    done = limited(mebibytes, "fit", own / "table.csv", "--label", "kind", "-o", tmp_path / "m.ldsu", "-q")
    check_limited(done)
    assert "needs about 1.0 GiB" in done.stderr
    assert "Raise the memory limit (ulimit -v)" in done.stderr
    assert files_in(tmp_path) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to RLIMIT_AS")
@pytest.mark.parametrize("mebibytes", range(1040, 1640, 50))
def test_memory_that_runs_out_anywhere_is_one_sentence(mebibytes, tmp_path):
    table, model = tmp_path / "table.csv", tmp_path / "m.ldsu"
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((2500, 60)), np.where(np.arange(2500) < 40, np.arange(2500) % 4, -1)])
    header = ",".join([*(f"c{j}" for j in range(60)), "kind"])
    np.savetxt(table, X, fmt="%.4g", delimiter=",", header=header, comments="")
    done = limited(mebibytes, "fit", table, "--label", "kind", "--unlabelled", "-1", "-o", model, "-q")
    check_limited(done)
    if done.returncode:
        assert files_in(tmp_path) == ["table.csv"]
        return
    load_model(model)
    check_limited(limited(mebibytes, "predict", model, table, "-o", tmp_path / "l.csv", "-q"))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("x.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        _ArrayMemoryError((10**6, 10**6), np.dtype(float)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_runs_out_is_one_sentence_whoever_says_so(error, own, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("ldsu.io.load_model", fail)
    printed = refusal(call("predict", own / "model.ldsu", own / "table.csv", "-q"))
    assert printed.endswith("Close other programs, raise the memory limit (ulimit -v), or use fewer rows.")


def test_a_fault_of_ours_keeps_its_traceback(own, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr("ldsu.io.load_model", fail)
    done = call("predict", own / "model.ldsu", own / "table.csv", "-q")
    assert isinstance(done.exception, RuntimeError)


# Signals

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return None


def check_interrupted(outcomes):
    """Each is interrupted with a word and code 130, or was done before; no process of its session is left."""
    for code, printed, _ in outcomes:
        assert code in (0, 130), (code, printed)
        assert "Traceback" not in printed
        assert (code == 130) == ("Interrupted" in printed)
    assert any(code == 130 for code, _, _ in outcomes)
    started = {pid for _, _, pid in outcomes}
    deadline = time.monotonic() + 5
    while left := [pid for pid in psutil.pids() if session_of(pid) in started]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.parametrize("times", [8, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_signal_at_any_moment_ends_with_code_130_and_nothing_half_written(command, times, own, tmp_path):
    output = tmp_path / "out" / ("m.ldsu" if command == "fit" else "l.csv")
    output.parent.mkdir()
    first = ["fit", own / "table.csv", "--label", "kind"] if command == "fit" else ["predict", own / "model.ldsu"]
    tables = [str(own / "table.csv")] if command == "predict" else []
    arguments = [*map(str, first), *tables, "-o", str(output), "-qf"]
    look = f"""
assert [path.name for path in Path({str(output.parent)!r}).iterdir()] == [{output.name!r}]
"""
    outcomes = forks(tmp_path, COMMAND.format(arguments=arguments), look, times=times, signals=SIGNALS)
    check_interrupted(outcomes)
    if command == "fit":
        load_model(output)
    else:
        assert len(output.read_text().splitlines()) == 301


@pytest.mark.slow
@pytest.mark.parametrize("times", [20])
def test_a_comparison_ended_by_a_signal_leaves_no_process_and_a_sound_store(times, own, tmp_path):
    out = tmp_path / "out"
    arguments = ["compare", str(own / "table.csv"), "--label", "kind", "--out", str(out), "-j", "1"]
    # Whole it takes a while: these are moments of its first seconds, in which its worker starts and computes.
    outcomes = forks(tmp_path, COMMAND.format(arguments=arguments), times=times, signals=SIGNALS, usual=5.0)
    check_interrupted(outcomes)
    assert not list(out.glob("*.part*"))
    if (out / "comparison.sqlite").exists():
        with Store(out / "comparison.sqlite") as store:
            assert store.check() == []
            assert store.claims() == []


@pytest.mark.parametrize("sent", SIGNALS)
def test_a_signal_while_the_program_starts_is_no_traceback(sent, own, tmp_path):
    # Before its first line runs, Python itself answers a signal.
    program = "from ldsu.__main__ import main; print('.', flush=True); main()"
    arguments = ["predict", own / "model.ldsu", own / "table.csv", "-o", tmp_path / "l.csv"]
    for seconds in (0.02, 0.15, 0.4):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(sent)
        _, printed = process.communicate(timeout=30)
        assert (process.returncode, printed) == (130, "Interrupted.\n")
    assert files_in(tmp_path) == []


def test_a_signal_that_comes_where_no_error_can_get_out_comes_again():
    program = """
import os, signal, sys, time
import ldsu.__main__, ldsu.cli

class Deaf:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

@ldsu.cli.cli.command()
def deaf():
    Deaf()
    time.sleep(20)

sys.argv = ["ldsu", "deaf"]
ldsu.__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=15)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


# The clock


def test_a_claim_holds_though_the_clock_was_set(tmp_path, monkeypatch):
    if sys.platform != "linux":
        pytest.skip("elsewhere the creation time of a process does not move with the clock")
    task = Task("a", 0)
    with Store(tmp_path / "x.sqlite") as store:
        assert store.claim(task)
        boot = psutil.boot_time()
        now = time.time()
        for shift in (-3600.0, 3600.0):
            monkeypatch.setattr(psutil._psplatform, "boot_time", lambda shift=shift: boot + shift)
            monkeypatch.setattr(psutil._psplatform, "BOOT_TIME", boot + shift, raising=False)  # psutil 5 keeps it there
            monkeypatch.setattr(store_module.time, "time", lambda shift=shift: now + shift)
            store.clear_stale()
            assert [claim.task for claim in store.live_claims()] == [task]
            assert store.claim(task)  # it is still ours


def test_a_machine_started_anew_has_no_process_of_before(tmp_path, monkeypatch):
    boot = tmp_path / "boot_id"
    boot.write_text("1a2b3c4d-0000\n")
    monkeypatch.setattr(store_module, "BOOT_ID", boot)
    with Store(tmp_path / "x.sqlite") as store:
        me = store.owner(os.getpid())
        assert me.is_alive()
        boot.write_text("5e6f7a8b-0000\n")
        assert not me.is_alive()
        boot.unlink()  # as where there is none
        assert store.owner(os.getpid()).is_alive()


def test_a_heartbeat_from_the_future_does_not_hold_a_task_for_ever(tmp_path):
    with Store(tmp_path / "x.sqlite") as store:
        owner = Owner(1, 0.0, "elsewhere")
        for ahead, is_live in ((60.0, True), (86400.0, False)):
            store._db.execute(
                "INSERT OR REPLACE INTO claims VALUES ('a', 0, ?, ?, ?, ?, 0, '')",
                (owner.pid, owner.started, owner.host, time.time() + ahead),
            )
            assert bool(store.live_claims()) == is_live


def backwards():
    """A clock that goes back by a minute whenever it is asked."""
    now = time.time()

    def clock():
        nonlocal now
        now -= 60.0
        return now

    return clock


def test_no_time_is_negative_though_the_clock_goes_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(time, "time", backwards())
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    monkeypatch.setattr(runner, "cores", lambda: 1)
    path = tmp_path / "x.sqlite"
    done = runner.run(fake_engine.experiment(repetitions=1), path, engine="fake_engine", jobs=1)
    assert done.exit_code == 0
    assert done.elapsed >= 0
    printed = capsys.readouterr().err
    assert "computed in" in printed
    assert "computed in -" not in printed
    shown = call("bench", "status", "--store", path)
    assert shown.exit_code == 0
    assert "less than a second ago" in shown.output
    with Store(path, read_only=True) as store:
        (run,) = store.runs()
        assert all(row[f"seconds_{stage}"] >= 0 for row in store.rows() for stage in store_module.STAGES)
    assert run["finished_at"] < run["started_at"]
    assert when(max(run["finished_at"], run["started_at"])) == when(run["started_at"])


def test_a_search_takes_no_negative_time_though_the_clock_goes_back(blobs, monkeypatch):
    monkeypatch.setattr(time, "time", backwards())
    search = LDSUSearch(param_grid={"features__strength": [1.0, 10.0]}, cv=FewLabelKFold(2)).fit(*blobs)
    assert search.refit_time_ >= 0
    assert np.all(search.cv_results_["mean_fit_time"] >= 0)
    assert np.all(search.cv_results_["mean_score_time"] >= 0)
