"""Hooks of mkdocs.yml: the READMEs become pages, and links to files that are no pages lead to the
repository."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/ordergate/ordergate/blob/main/"
HOME = {"README.md": "index.md", "README.zh-CN.md": "index.zh-CN.md"}


def rewritten(match):
    """Returns a link of a page in docs/, as the site has it."""
    target = match[1]
    if not target.startswith("../"):
        return match[0]
    path = target.split("#")[0][3:]
    if path in HOME:
        return f"]({HOME[path]}{target[len(path) + 3:]})"
    if not (ROOT / path).exists():
        return match[0]  # mkdocs reports it
    return f"]({REPOSITORY}{target[3:]})"


def from_docs(text):
    return re.sub(r"\]\(([^)\s]+)\)", rewritten, text)


def from_root(text):
    """Returns a page of the repository's root as one of docs/. Its lists are indented as
    Markdown's Python wants them."""
    text = re.sub(r"\]\((?!https?:|#)(?:docs/)?([^)\s]+)\)",
                  lambda m: f"]({m[1]})" if m[0].startswith("](docs/") else f"](../{m[1]})", text)
    return re.sub(r"(?m)^   (?=\S)", "    ", from_docs(text))


def on_files(files, config):
    for name, page in HOME.items():
        files.append(File.generated(config, page, content=from_root((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown, page, config, files):
    return markdown if page.file.src_uri in HOME.values() else from_docs(markdown)
