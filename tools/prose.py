"""Checks how the documentation is written, with vale and the style in tools/prose/.

Words that the style refuses fail. A sentence of more than 25 words is a warning; a page
may have one of them for each 150 words. Without arguments it checks all pages.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VALE = ["go", "tool", "-modfile=tools/go.mod", "vale", "--config", "tools/prose/vale.ini", "--no-global", "--output", "JSON"]


def max_long(text):
    """Returns how many sentences of more than 25 words a page may have."""
    return max(4, len(text.split()) // 150)


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
    return failures, warnings


def main():
    failures, warnings = check([Path(a).resolve() for a in sys.argv[1:]] or all_pages())
    for line in warnings:
        print("warning:", line)
    for line in failures:
        print(line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
