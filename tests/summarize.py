#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Adds up the reports of `ctest --output-junit`: what was skipped and why, what failed, and a last line

    N passed, N failed, N skipped

summarize.py REPORT.xml...      leaves with 1 if anything failed or a report is missing
summarize.py --passed REPORT.xml [PREFIX [NEEDED...]]
                                prints a regular expression for `ctest --exclude-regex`: the tests that passed whole,
                                nothing skipped, without the prefix of their names; a test that none has where none did.
                                Tests that are NEEDED by others (ctest makes no fixture of an excluded one) stay out
summarize.py --self-test

A test binary counts with its test cases, as it reports them itself; every other test counts as one. A test case that
skips says "skipped: <name>: <reason>" and counts as skipped, not as passed. A test whose output shows a secret has
failed (see secrecy.py).
"""

import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

sys.dont_write_bytecode = True  # nothing is written into the sources
import secrecy

# Catch2 2 and 3, all passed or not: "All tests passed (9 assertions in 3 test cases)" and
# "test cases: 3 | 1 passed | 1 failed | 1 skipped".
ALL_PASSED = re.compile(r"^All tests passed \(\d+ assertions? in (\d+) test cases?\)", re.M)
SOME_FAILED = re.compile(r"^test cases:\s*(\d+)(.*)$", re.M)
SKIPPED = re.compile(r"^skipped: (.*)$", re.M)


def count(case):
    """(passed, failed, skipped, lines that say what was skipped or failed) of one entry of ctest."""
    name, status = case.get("name"), case.get("status")
    output = case.findtext("system-out") or ""
    reasons = SKIPPED.findall(output)
    if status in ("notrun", "disabled"):
        return 0, 0, 1, [f"skipped: {name}: {'; '.join(reasons) or 'no reason given'}"]
    passed = failed = skipped = 0
    if match := ALL_PASSED.search(output):
        passed = int(match.group(1))
    elif match := SOME_FAILED.search(output):
        number = lambda word: sum(int(n) for n in re.findall(rf"(\d+) {word}", match.group(2)))
        passed, failed, skipped = number("passed"), number("failed"), number("skipped")
    elif status == "run":
        passed = 1
    if status == "fail":
        # A crash, a time-out or a sanitizer's verdict may come after the test cases were counted, or before.
        failed = max(failed, 1)
    lines = [f"skipped: {name}: {reason}" for reason in reasons]
    passed = max(passed - len(reasons), 0)
    skipped += len(reasons)
    shown = secrecy.find(output)
    if shown:
        failed += 1
        passed = max(passed - 1, 0)
        lines.append(f"failed: {name}: its output shows {' and '.join(shown)}")
    elif failed:
        lines.append(f"failed: {name}")
    return passed, failed, skipped, lines


def summarize(reports):
    """(passed, failed, skipped) of all reports; prints what was skipped and what failed."""
    total = [0, 0, 0]
    for report in reports:
        try:
            cases = xml.etree.ElementTree.parse(report).getroot().findall("testcase")
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            print(f"failed: no report {report}: {error}")
            total[1] += 1
            continue
        if not cases:
            print(f"failed: {report} holds no tests")
            total[1] += 1
        for case in cases:
            *numbers, lines = count(case)
            total = [a + b for a, b in zip(total, numbers)]
            for line in lines:
                print(line)
    return total


def passed_whole(report, prefix="", *needed):
    """The regular expression of --passed."""
    names = []
    try:
        cases = xml.etree.ElementTree.parse(report).getroot().findall("testcase")
    except (OSError, xml.etree.ElementTree.ParseError):
        cases = []
    for case in cases:
        name = case.get("name")
        _, failed, skipped, _ = count(case)
        if name.startswith(prefix) and name[len(prefix):] not in needed and failed == 0 and skipped == 0:
            names.append(re.escape(name[len(prefix):]).replace("\\-", "-"))
    return f"^({'|'.join(names)})$" if names else "^$"


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments[:1] == ["--passed"] and len(arguments) >= 2:
        print(passed_whole(*arguments[1:]))
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    passed, failed, skipped = summarize(arguments)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


CASES = [
    # status of ctest, output, (passed, failed, skipped)
    ("run", "as expected", (1, 0, 0)),
    ("run", "All tests passed (9 assertions in 3 test cases)", (3, 0, 0)),
    ("run", "All tests passed (1 assertion in 1 test case)", (1, 0, 0)),
    ("run", "skipped: reads a file: no data\nAll tests passed (9 assertions in 3 test cases)", (2, 0, 1)),
    ("fail", "test cases: 3 | 2 passed | 1 failed\nassertions: 9 | 8 passed | 1 failed", (2, 1, 0)),
    ("fail", "skipped: a: b\ntest cases: 3 | 2 passed | 1 failed", (1, 1, 1)),
    ("run", "test cases: 3 | 2 passed | 1 skipped", (2, 0, 1)),
    ("fail", "All tests passed (9 assertions in 3 test cases)\nERROR: LeakSanitizer", (3, 1, 0)),
    ("fail", "", (0, 1, 0)),
    ("notrun", "skipped: test_x: no toolkit", (0, 0, 1)),
    ("run", "http://h/k?X-Amz-Signature=0123", (0, 1, 0)),
    ("run", "the key is test" + "-secret\nAll tests passed (9 assertions in 3 test cases)", (2, 1, 0)),
    ("fail", "the key is test" + "-secret\ntest cases: 3 | 2 passed | 1 failed", (1, 2, 0)),
]


def self_test():
    failures = 0
    for status, output, expected in CASES:
        case = xml.etree.ElementTree.Element("testcase", name="x", status=status)
        xml.etree.ElementTree.SubElement(case, "system-out").text = output
        got = count(case)[:3]
        if got != expected:
            failures += 1
            print(f"self-test: {status} {output!r}: {got} instead of {expected}")
    with tempfile.TemporaryDirectory() as folder:
        empty = pathlib.Path(folder, "empty.xml")
        empty.write_text("<testsuite/>")
        broken = pathlib.Path(folder, "broken.xml")
        broken.write_text("<testsuite>")
        got = summarize([empty, broken, pathlib.Path(folder, "absent.xml")])
    if got != [0, 3, 0]:
        failures += 1
        print(f"self-test: reports that are empty, broken or absent: {got}")
        mixed = pathlib.Path(folder, "mixed.xml")
        mixed.write_text(
            '<testsuite><testcase name="b: x.y" status="run"/><testcase name="b: f" status="fail"/>'
            '<testcase name="b: s" status="run"><system-out>skipped: s: no data</system-out></testcase>'
            '<testcase name="b: n" status="notrun"/><testcase name="b: z-1" status="run"/></testsuite>'
        )
        for report, needed, expected in ((mixed, [], r"^(x\.y|z-1)$"), (mixed, ["x.y", "q"], "^(z-1)$"),
                                         (pathlib.Path(folder, "absent.xml"), [], "^$")):
            if passed_whole(report, "b: ", *needed) != expected:
                failures += 1
                print(f"self-test: passed whole: {passed_whole(report, 'b: ', *needed)} instead of {expected}")
    print(f"self-test: {len(CASES) + 6} reports, {failures} unexpected results")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
