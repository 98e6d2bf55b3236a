"""Tests of the style in tools/prose/: what it refuses, and what it lets pass."""

import tempfile
import unittest
from pathlib import Path

import prose

LONG = "This sentence has " + " and ".join(["one more clause"] * 8) + "."


class ProseTest(unittest.TestCase):
    def check(self, *texts):
        """Checks a page of each text, at once."""
        with tempfile.TemporaryDirectory() as folder:
            pages = [Path(folder) / f"{i}.md" for i in range(len(texts))]
            for page, text in zip(pages, texts):
                page.write_text(text)
            return prose.check(pages)

    def test_refused(self):
        texts = (
            "Nobody reads the log.",
            "The log is repaired by somebody.",
            "| a |\n|---|\n| whatever it finds |",
            "ordergate knows the order.",
            "Redis does not say why.",
            "The reader is told of it.",
            "Who asks for a lock that another call holds has to wait until its lease ends.",
            "It is not impossible.",
            "The fault is mended.",
        )
        failures, _ = self.check(*(f"# Page\n\n{text}\n" for text in texts))
        pages = [Path(line.split(":")[0]).stem for line in failures]
        self.assertEqual(pages, [str(i) for i in range(len(texts))], failures)

    def test_passes(self):
        texts = (
            "The reader retries every 100 ms.",
            "What does Redis report?",
            "That is why the lock stays.",
            "`nobody` is code.\n\n```text\nnobody knows\n```",
        )
        self.assertEqual(self.check(*(f"# Page\n\n{text}\n" for text in texts)), ([], []))

    def test_long_sentences_are_counted_for_each_page(self):
        failures, warnings = self.check(f"# Page\n\n{LONG}\n")
        self.assertEqual((len(failures), len(warnings)), (0, 1))
        failures, _ = self.check("# Page\n" + f"\n{LONG}\n" * 5)
        self.assertEqual(len(failures), 1)

    def test_long_cells(self):
        long = " ".join(["word"] * 21)
        text = f"| a | b |\n|---|---|\n| [word](page.md#of-it) `{long}` | {long} |\n| - | {long[5:]} |\n\n```text\n| {long} |\n```\n| {long} |\n"
        self.assertEqual(list(prose.long_cells(text)), [3, 9])


if __name__ == "__main__":
    unittest.main()
