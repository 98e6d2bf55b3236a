"""Tests of stress.py, on a package of their own with tests that pass, fail now and
then, and end the process."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent

PACKAGE = """package flaky

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// tries counts the runs of the package.
func tries(t *testing.T) int {
	before, _ := os.ReadFile("tries")
	if err := os.WriteFile("tries", append(before, '.'), 0o600); err != nil {
		t.Fatal(err)
	}
	return len(before) + 1
}

func TestSteady(t *testing.T) { fmt.Print("no line end") }

func TestSkipped(t *testing.T) { t.Skip("always") }

// TestOrphan leaves a child that has its output.
func TestOrphan(t *testing.T) {
	child := exec.Command("sleep", "60")
	child.Stdout = os.Stdout
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
}

func TestFlaky(t *testing.T) {
	n := tries(t)
	if n == 3 {
		os.Exit(7)
	}
	t.Run("inner", func(t *testing.T) {
		if n == 2 {
			t.Error("the second time")
		}
	})
}
"""


class StressTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root = Path(temp.name).resolve()
        (self.root / "tools").mkdir()
        shutil.copy(TOOLS / "stress.py", self.root / "tools")
        (self.root / "go.mod").write_text("module example\n")
        inner = self.root / "inner"
        (inner / "flaky").mkdir(parents=True)
        (inner / "empty").mkdir()
        (inner / "empty" / "empty.go").write_text("package empty\n")
        (inner / "go.mod").write_text("module inner\n")
        (inner / "flaky" / "flaky_test.go").write_text(PACKAGE)

    def start(self, *args):
        return subprocess.Popen([sys.executable, self.root / "tools" / "stress.py", *args], cwd=self.root,
                                env=dict(os.environ, GOFLAGS="", GOWORK="off", STRESS_TEST=str(self.root)),
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def stress(self, *args):
        process = self.start(*args)
        out, _ = process.communicate()
        return process.returncode, out

    def children(self):
        """Returns the command lines of what runs with our environment variable."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"STRESS_TEST={self.root}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes())
            except OSError:  # it has ended
                pass
        return found

    def test_counts_failures_by_test(self):
        code, out = self.stress("-n", "4", "--run", "Flaky|Steady", "./inner/...", "./inner/flaky")
        self.assertEqual(code, 1, out)
        self.assertIn("inner/flaky: 2 passed, 2 failed", out)
        self.assertIn("  1 of 4 failed: TestFlaky/inner, first in .cache/stress/inner_flaky/run-2.txt", out)
        self.assertIn("  1 of 4 failed: TestFlaky, first in .cache/stress/inner_flaky/run-3.txt", out)
        self.assertNotIn("failed: TestSteady", out)
        kept = self.root / ".cache/stress/inner_flaky/run-2.txt"
        self.assertIn("the second time", kept.read_text())

    def test_passes(self):
        code, out = self.stress("-n", "2", "--run", "Steady", "./inner/flaky")
        self.assertEqual(code, 0, out)
        self.assertIn("inner/flaky: 2 passed, 0 failed", out)

    def test_a_single_run_prints_what_failed(self):
        (self.root / "inner/flaky/tries").write_text(".")
        code, out = self.stress("-n", "1", "--idle", "./inner/flaky")
        self.assertEqual(code, 1, out)
        self.assertIn("the second time", out)

    def test_no_test_is_no_success(self):
        for run in ("Nothing", "Skipped"):
            code, out = self.stress("-n", "1", "--idle", "--run", run, "./inner/flaky")
            self.assertEqual(code, 1, out)
            self.assertIn("FAILED: no test was run", out)

    def test_nothing_is_left_behind(self):
        code, out = self.stress("-n", "1", "--run", "Orphan", "./inner/flaky")
        self.assertEqual(code, 0, out)
        self.assertEqual(self.children(), [])

    def test_terminated(self):
        (self.root / "inner/flaky/slow_test.go").write_text(
            'package flaky\n\nimport "testing"\n\nfunc TestSlow(*testing.T) { select {} }\n')
        process = self.start("-n", "1", "--run", "Slow", "./inner/flaky")
        deadline = time.monotonic() + 60
        while not any(b"package.test" in child for child in self.children()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.terminate()
        process.communicate()
        self.assertEqual(process.returncode, 143)
        self.assertEqual(self.children(), [])

    def test_wrong_usage(self):
        for args, want in [
            (["-n", "0", "./inner"], "-n must be at least 1"),
            (["./nowhere"], "stress.py: go list: "),
            (["--args", "it's", "./inner"], "--args: No closing quotation"),
            (["./inner/flaky", "./inner/empty"], "stress.py: ./inner/empty has no tests"),
            (["../elsewhere"], "stress.py: ../elsewhere is not in this repository"),
        ]:
            code, out = self.stress(*args)
            self.assertEqual(code, 2, out)
            self.assertIn(want, out)


if __name__ == "__main__":
    unittest.main()
