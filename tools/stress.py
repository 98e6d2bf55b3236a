#!/usr/bin/env python3
"""Counts how often tests fail on a busy machine.

usage: python3 tools/stress.py [-n N] [--idle] [--run REGEX] [--args ARGS] PKG...

Each package is compiled once, with the race detector, and run N times (10), under
nice and beside one busy loop for each processor; --idle leaves both out. A package is
a path as for go test, such as ./lockmw/..., of any module of this repository. --run
chooses tests as go test -run does, and --args is passed on to the tests.

Prints a line for each run, then the slowest tests, and each test that failed: how
often, and where the output of its first failure is kept. A single run prints the
output of what failed. Exit code: 0 when every run passed, 1 when one failed or had no
test, 2 on wrong usage, or when a package does not compile.
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

NICE = ["nice", "-n", "10"]  # the tests and the load alike: both leave the machine usable
RUN_LIMIT = "30m"  # for one run of one package
SLOWEST = 5  # tests whose times are printed
# A busy loop that ends with us, however we end: its pipe is closed then.
BUSY = 'while :; do :; done & busy=$!; read -r _; kill "$busy"'

# What a test prints last may stand before it on its line.
ENDED = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)$", re.M)
STARTED = re.compile(r"^=== RUN +(\S+)$", re.M)


class Failure(Exception):
    """A package can't be tested; the text is one line."""


def go(args, directory):
    """Returns what a go command prints, or raises Failure with its first complaint."""
    done = subprocess.run(["go", *args], cwd=directory, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith(("#", "go: downloading"))]
        raise Failure(f"go {args[0]}: {(lines or [f'exit code {done.returncode}'])[0]}")
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
    found = [tuple(line.split("\t")) for line in go(["list", "-f", tests, inside], module).splitlines() if line]
    if not found:
        raise Failure(f"{pattern} has no tests")
    return found


class Package:
    """A compiled package, and where the output of its runs goes."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        self.kept = KEPT / name.replace("/", "_")
        self.binary = self.kept / "package.test"
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir(parents=True)
        go(["test", "-race", "-vet=off", "-c", "-o", str(self.binary), name], directory)

    def run(self, number, options):
        """Runs the tests once; returns the exit code and the path of the output."""
        output = self.kept / f"run-{number}.txt"
        command = [*([] if options.idle else NICE), str(self.binary), "-test.v", f"-test.timeout={RUN_LIMIT}",
                   *(["-test.run", options.run] if options.run else []), *options.args]
        with open(output, "wb") as file:
            # CI is set so that a test whose server is missing fails. The output is a
            # file, and the group is killed, so that nothing waits for a child of a test.
            process = subprocess.Popen(command, cwd=self.directory, env=dict(os.environ, CI="true"),
                                       stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                return process.wait(), output
            finally:
                kill(process)


def kill(process):
    """Ends what is left of a process's group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def failed_tests(text):
    """Returns the tests that failed, without those that failed by a subtest, and those
    that were under way when the process ended."""
    ended = ENDED.findall(text)
    names = {name for _, name, _ in ended}
    failed = [name for verdict, name, _ in ended if verdict == "FAIL"]
    failed += [name for name in STARTED.findall(text) if name not in names]
    return [name for name in dict.fromkeys(failed)
            if not any(other.startswith(name + "/") for other in failed)]


def stress(package, options):
    """Runs a package, prints how it went, and returns whether every run passed."""
    failures, first, seconds = collections.Counter(), {}, collections.defaultdict(list)
    passed = 0
    for number in range(1, options.n + 1):
        begin = time.monotonic()
        code, output = package.run(number, options)
        took = time.monotonic() - begin
        text = output.read_text(errors="replace")
        ended = ENDED.findall(text)
        for _, name, each in ended:
            seconds[name].append(float(each))
        if code == 0 and any(verdict == "PASS" for verdict, _, _ in ended):
            passed += 1
            output.unlink()
            print(f"{package.name} {number}/{options.n} passed in {took:.1f}s", flush=True)
            continue
        names = failed_tests(text) or (["no test was run"] if code == 0 else [f"exit code {code}"])
        for name in names:
            failures[name] += 1
            first.setdefault(name, output)
        print(f"{package.name} {number}/{options.n} FAILED: {', '.join(names)} in {took:.1f}s", flush=True)
        if options.n == 1:
            print(text)
    tops = [name for name in seconds if "/" not in name]
    for name in sorted(tops, key=lambda name: -statistics.median(seconds[name]))[:SLOWEST]:
        print(f"  {statistics.median(seconds[name]):7.1f}s (median) {name}")
    for name, count in failures.most_common():
        print(f"  {count} of {options.n} failed: {name}, first in {first[name].relative_to(ROOT)}")
    print(f"{package.name}: {passed} passed, {options.n - passed} failed", flush=True)
    package.binary.unlink()
    return passed == options.n


def main(args):
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--run", default="")
    parser.add_argument("--args", default="")
    parser.add_argument("packages", nargs="+")
    options = parser.parse_args(args)
    if options.n < 1:
        parser.error("-n must be at least 1")
    try:
        options.args = shlex.split(options.args)
    except ValueError as why:
        parser.error(f"--args: {why}")
    busy = []
    try:
        # All are compiled first: what is wrong is said before an hour of tests.
        found = dict.fromkeys(one for pattern in options.packages for one in packages(pattern))
        ready = [Package(name, directory) for name, directory in found]
        if not options.idle:
            busy = [subprocess.Popen([*NICE, "sh", "-c", BUSY], stdin=subprocess.PIPE, start_new_session=True)
                    for _ in range(os.cpu_count() or 1)]
        # A list: every package runs, whatever became of the one before.
        return 0 if all([stress(package, options) for package in ready]) else 1
    except Failure as why:
        print(f"stress.py: {why}", file=sys.stderr)
        return 2
    finally:
        for process in busy:
            kill(process)


def interrupted(number, _):
    """Ends as by Ctrl-C, so that what was started is ended."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupted)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
