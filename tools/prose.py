"""Checks how the documentation is written, with vale and the style in tools/prose/.

Words that the style refuses fail. A sentence of more than 25 words is a warning; a page
may have one of them for each 150 words. A cell of a table in docs/ has at most 20 words.
Without arguments it checks all pages, and that docs/ has at most 50,000 words, and the
pages that a first user reads 3,000.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VALE = ["go", "tool", "-modfile=tools/go.mod", "vale", "--config", "tools/prose/vale.ini", "--no-global", "--output", "JSON"]


def max_long(text):
    """Returns how many sentences of more than 25 words a page may have."""
    return max(4, len(text.split()) // 150)


MAX_CELL = 20
GENERATED = ("reference.md", "commands.md", "metrics.md")


def long_cells(text):
    """Returns the lines with a table's cell that is too long, without blocks of code."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        line = re.sub(r"`[^`]+`", "code", re.sub(r"\]\([^)]*\)", "]", line))  # each is a word
        if line.startswith("|") and any(len(re.findall(r"\S*\w\S*", cell)) > MAX_CELL for cell in line.split("|")):
            yield number


MAX_WORDS = 50_000
# What a first user reads: the README, the page of one style, and the one about operation.
FIRST = (("README.md", "docs/shops-php.md", "docs/operations.md"), ("README.md", "docs/shops-spring.md", "docs/operations.md"))
MAX_FIRST = 3_000


def words(pages):
    return sum(len(page.read_text().split()) for page in pages)


def too_many():
    """Returns a line for each set of pages that has too many words."""
    docs = [page for page in (ROOT / "docs").glob("*.md") if page.name not in GENERATED]
    sets = [("docs/, without the generated pages", docs, MAX_WORDS)]
    sets += [(", ".join(names), [ROOT / name for name in names], MAX_FIRST) for names in FIRST]
    return [f"{name}: {words(pages)} words, at most {most} are allowed" for name, pages, most in sets if words(pages) > most]


def all_pages():
    return [ROOT / "README.md", *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG")),
            *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md")),
            *sorted((ROOT / "tests").rglob("README.md"))]


def alerts(pages):
    """Returns what vale reports: a list of alerts for each page that has any."""
    done = subprocess.run([*VALE, *map(str, pages)], cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"vale ended with {done.returncode}: {done.stdout}")
    return json.loads(done.stdout or "{}")


def check(pages):
    """Returns (failures, warnings), each a list of lines to print."""
    failures, warnings = [], []
    for page, found in sorted(alerts(pages).items()):
        path = Path(page)
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        long = [a for a in found if a["Severity"] == "warning"]
        failures += [f"{name}:{a['Line']}:{a['Span'][0]}: {a['Message']}" for a in found if a["Severity"] == "error"]
        if long:
            lines = ", ".join(sorted({str(a["Line"]) for a in long}, key=int))
            text = f"{name}: {len(long)} sentences of more than 25 words: lines {lines}"
            (failures if len(long) > max_long(path.read_text()) else warnings).append(text)
    for page in pages:
        if page.parent.name == "docs" and page.name not in GENERATED:
            failures += [f"docs/{page.name}:{line}: a cell of more than {MAX_CELL} words" for line in long_cells(page.read_text())]
    return failures, warnings


def main():
    pages = [Path(a).resolve() for a in sys.argv[1:]]
    failures, warnings = check(pages or all_pages())
    failures += [] if pages else too_many()
    for line in warnings:
        print("warning:", line)
    for line in failures:
        print(line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
