#!/usr/bin/env python3
"""Counts how often tests fail on a busy machine.

usage: python3 tools/stress.py [-n N] [--run REGEX] [--args ARGS] PKG...

Each package is compiled once, with the race detector, and run N times (10), under
nice and beside one busy loop for each processor. A package is named as for go test,
such as ./lockmw/...; one of another module of this repository is found there.
--run chooses tests as go test -run does, and --args is passed on to the tests.

Prints a line for each run, then for each test that failed how often, and where the
output of its first failure is kept. Exit code: 0 when every run passed, 1 when one
failed, 2 on wrong usage, or when a package does not compile.
"""

import argparse
import collections
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".cache" / "stress"

NICE = 10  # of the tests and of the load alike: both leave the machine usable
RUN_LIMIT = "30m"  # for one run of one package
SLOWEST = 5  # tests whose times are printed
# A busy loop that ends with us, however we end: its pipe is closed then.
BUSY = 'while :; do :; done & busy=$!; read -r _; kill "$busy"'

ENDED = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)$", re.M)
STARTED = re.compile(r"^=== RUN +(\S+)$", re.M)


class Failure(Exception):
    """A package can't be tested; the text is one line."""


def go(args, directory):
    """Returns what a go command prints, or raises Failure with its first complaint."""
    done = subprocess.run(["go", *args], cwd=directory, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith("#")]
        raise Failure(f"go {args[0]}: {(lines or ['exit code %d' % done.returncode])[0]}")
    return done.stdout


def module_of(pattern):
    """Returns the directory of the module that a package pattern belongs to, and the
    pattern seen from there."""
    path = (ROOT / pattern.removesuffix("...")).resolve()
    for directory in [path, *path.parents]:
        if (directory / "go.mod").exists():
            inside = os.path.join(".", os.path.relpath(path, directory))
            return directory, os.path.join(inside, "...") if pattern.endswith("...") else inside
        if directory == ROOT:
            break
    raise Failure(f"{pattern} is not in this repository")


def packages(pattern):
    """Returns the import path and the directory of each package that has tests."""
    module, inside = module_of(pattern)
    tests = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
    listed = go(["list", "-f", tests, inside], module)
    return [line.split("\t") for line in listed.splitlines() if line]


def compile_tests(package, directory, binary):
    binary.parent.mkdir(parents=True, exist_ok=True)
    go(["test", "-race", "-c", "-o", str(binary), package], directory)


def load():
    """Starts a busy loop for each processor."""
    return [subprocess.Popen(["nice", "-n", str(NICE), "sh", "-c", BUSY],
                             stdin=subprocess.PIPE, start_new_session=True)
            for _ in range(os.cpu_count() or 1)]


def failed_tests(output):
    """Returns the tests that failed, without those that failed by a subtest, and those
    that were under way when the process ended."""
    failed = [name for verdict, name, _ in ENDED.findall(output) if verdict == "FAIL"]
    ended = {name for _, name, _ in ENDED.findall(output)}
    failed += [name for name in STARTED.findall(output) if name not in ended]
    return [name for name in dict.fromkeys(failed)
            if not any(other.startswith(name + "/") for other in failed)]


def stress(package, directory, options):
    """Runs a package, prints how it went, and returns whether every run passed."""
    kept = KEPT / package.replace("/", "_")
    shutil.rmtree(kept, ignore_errors=True)
    binary = kept / "package.test"
    compile_tests(package, directory, binary)
    command = ["nice", "-n", str(NICE), str(binary), "-test.v", f"-test.timeout={RUN_LIMIT}",
               *(["-test.run", options.run] if options.run else []), *shlex.split(options.args)]
    failures, first, seconds = collections.Counter(), {}, collections.defaultdict(list)
    passed = 0
    for number in range(1, options.n + 1):
        begin = time.monotonic()
        # CI is set so that a test whose server is missing fails.
        done = subprocess.run(command, cwd=directory, env=dict(os.environ, CI="true"), text=True,
                              errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        for _, name, took in ENDED.findall(done.stdout):
            seconds[name].append(float(took))
        if done.returncode == 0:
            passed += 1
            verdict = "passed"
        else:
            output = kept / f"run-{number}.txt"
            output.write_text(done.stdout)
            names = failed_tests(done.stdout) or [f"exit code {done.returncode}"]
            for name in names:
                failures[name] += 1
                first.setdefault(name, output)
            verdict = "FAILED: " + ", ".join(names)
        print(f"{package} {number}/{options.n} {verdict} in {time.monotonic() - begin:.1f}s", flush=True)
    tops = [name for name in seconds if "/" not in name]
    for name in sorted(tops, key=lambda name: -statistics.median(seconds[name]))[:SLOWEST]:
        print(f"  {statistics.median(seconds[name]):7.1f}s (median) {name}")
    for name, count in failures.most_common():
        print(f"  {count} of {options.n} failed: {name}, first in {first[name].relative_to(ROOT)}")
    print(f"{package}: {passed} passed, {options.n - passed} failed", flush=True)
    binary.unlink()
    return passed == options.n


def main(args):
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--run", default="")
    parser.add_argument("--args", default="")
    parser.add_argument("packages", nargs="+")
    options = parser.parse_args(args)
    if options.n < 1:
        parser.error("-n must be at least 1")
    busy = []
    try:
        # All are found first: a misspelt name is said before an hour of tests.
        found = [package for pattern in options.packages for package in packages(pattern)]
        if not found:
            raise Failure("no package here has tests")
        busy = load()
        # A list: every package runs, whatever became of the one before.
        passed = [stress(package, directory, options) for package, directory in found]
        return 0 if all(passed) else 1
    except Failure as why:
        print(f"stress.py: {why}", file=sys.stderr)
        return 2
    finally:
        for process in busy:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
