"""Tests of the Makefile: what "make test" says holds of the sources as they are."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A test that has a program compiled, as those with an ordergate do.
SOURCES = {
    "go.mod": "module example\n",
    "engine/engine.go": "package engine\n\nfunc Run() {}\n",
    "cmd/main.go": 'package main\n\nimport "example/engine"\n\nfunc main() { engine.Run() }\n',
    "tests/build_test.go": """package tests

import (
	"os/exec"
	"testing"
)

func TestBuild(t *testing.T) {
	if out, err := exec.Command("go", "build", "-o", t.TempDir(), "../cmd").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
}
""",
}


def commands(*args):
    """Returns the go test commands that make would run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "-n", *args], cwd=ROOT, env=environment, text=True, check=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return re.findall(r"go test\b(?:'[^']*'|[^;&|\n'])*", done.stdout.replace("\\\n", ""))


class MakefileTest(unittest.TestCase):
    def test_no_result_of_a_test_with_processes_is_from_the_cache(self):
        for args in (["test-race"], ["test-calm"], ["test-programs"], ["test-others"], ["test-beside"], ["test-plain"], ["test-bench"], ["test-faults"], ["model"], ["soak"]):
            found = commands(*args)
            self.assertTrue(found, args)
            for command in found:
                self.assertIn(" -count=1 ", command)
                if " -short " in command:  # what the race detector makes too dear
                    self.assertIn(command, commands("test-miniredis"))
        # A short test starts no other program: what it reads, Go sees.
        for command in commands("quick", "PKG=./lockmw/..."):
            self.assertIn(" -short ", command)

    def test_make_test_runs_every_part(self):
        whole = commands("test")
        for part in ("test-race", "test-calm", "test-programs", "test-others", "test-beside", "test-plain", "test-bench", "test-faults"):
            for command in commands(part):
                self.assertIn(command, whole)
                self.assertEqual(" -race " in command, part in ("test-race", "test-calm", "test-faults"), command)

    def test_what_a_test_with_the_race_detector_skips_is_run_without_it(self):
        plain = commands("test-plain", "test-miniredis")
        skipping = 0
        for file in ROOT.rglob("*_test.go"):
            if ".cache" in file.parts:
                continue
            text, package = file.read_text(), "./" + str(file.parent.relative_to(ROOT))
            for test in re.findall(r"func (Test\w+)\([^)]*\) \{\n\tbedtest\.WithoutRace\(", text):
                skipping += 1
                self.assertTrue([c for c in plain if package in c.split() and self.runs(c, test)], f"{package} {test}")
            if re.search(r"\n\t\t+bedtest\.WithoutRace\(", text):  # subtests on a cluster
                skipping += 1
                self.assertTrue([c for c in plain if package in c.split() and "/cluster" in c], package)
            if "bedtest.OnlyShort(" in text:
                skipping += 1
                self.assertTrue([c for c in plain if package in c.split() and " -short " in c], package)
        self.assertTrue(skipping)

    @staticmethod
    def runs(command, test):
        wanted = re.search(r" -run '([^']*)'", command)
        return bool(wanted) and any(re.search(name, test) for name in wanted[1].split("|"))

    def test_every_target_that_the_documentation_names_is_there(self):
        pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "tests").rglob("README.md")]
        named = {target for page in pages for target in re.findall(r"`make ([a-z-]+)", page.read_text())}
        self.assertIn("quick", named)
        makefile = (ROOT / "Makefile").read_text()
        phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.M).group(1).split()
        for target in named:
            self.assertIn(target, phony)
            self.assertRegex(makefile, rf"(?m)^{target}:")

    def test_a_broken_build_fails_whatever_ran_before(self):
        flags = next(re.match(r"go test((?: -(?:count|timeout|vet)[= ]\S+)*)", command).group(1).split()
                     for command in commands("test-race"))
        with tempfile.TemporaryDirectory() as folder:
            for name, text in SOURCES.items():
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)

            def passes(*flags):
                # Go's own packages come from the cache only if they are compiled as everywhere else.
                environment = dict(os.environ, GOFLAGS="-trimpath", GOWORK="off")
                return subprocess.run(["go", "test", *flags, "./tests"], cwd=folder, env=environment,
                                      check=False, stdout=subprocess.DEVNULL).returncode == 0

            self.assertTrue(passes())  # fills the cache
            self.assertTrue(passes(*flags))
            engine = Path(folder) / "engine/engine.go"
            engine.write_text(engine.read_text() + "\nvar broken = undefined\n")
            self.assertTrue(passes(), "Go sees what a child process reads: then -count=1 is not needed any more")
            self.assertFalse(passes(*flags))


if __name__ == "__main__":
    unittest.main()
