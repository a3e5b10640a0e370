#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""A program that must not compile, as one file compiled twice.

    check_compile_fail.py --include=FOLDER:... COMPILER FLAG... FILE.cpp
    check_compile_fail.py --include=FOLDER:... COMPILER FLAG... --self-test

FILE.cpp must compile as it is. With MILLRACE_MUST_FAIL defined it must be refused, and what the compiler prints must
match the regular expression of each line

    // expect: a stage takes an async_generator

in the file (there is at least one), and none of the lines

    // not: std::vector

It must be one error: what follows from the first would only bury the sentence. A line

    // errors: 2

says otherwise, for a mistake that the language itself answers with more. A line

    // only-if: MILLRACE_AGGREGATE_TEMPORARIES_UNSAFE

names a condition of the preprocessor (after millrace/base/compiler.hpp) without which the file does not apply; it is
then skipped (77). A line

    // flags: -fno-exceptions

gives options of the compiler that refuse a file without MILLRACE_MUST_FAIL: the first error must be the expected one,
and any number may follow.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77


def compile_text(command, path, *flags):
    result = subprocess.run([*command, *flags, "-fsyntax-only", str(path)], capture_output=True, text=True)
    return result.returncode == 0, result.stderr + result.stdout


def check(command, path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    expected = re.findall(r"^// expect:\s*(.*\S)", text, re.M)
    if not expected:
        return 1, "no line '// expect: <regular expression>' in the file"
    flags = " ".join(re.findall(r"^// flags:\s*(.*\S)", text, re.M)).split()
    if not flags and "MILLRACE_MUST_FAIL" not in text:
        return 1, "the file does not use MILLRACE_MUST_FAIL"
    for condition in re.findall(r"^// only-if:\s*(.*\S)", text, re.M):
        with tempfile.TemporaryDirectory() as folder:
            probe = pathlib.Path(folder, "probe.cpp")
            probe.write_text(f"#include <millrace/base/compiler.hpp>\n#if !({condition})\n#error not here\n#endif\n")
            holds, output = compile_text(command, probe)
        if not holds and "not here" not in output:
            return 1, f"the condition cannot be evaluated: {output}"
        if not holds:
            return SKIPPED, f"skipped: {pathlib.Path(path).stem}: not with this compiler ({condition})"
    accepted, output = compile_text(command, path)
    if not accepted:
        return 1, f"the good variant does not compile:\n{output}"
    accepted, output = compile_text(command, path, "-DMILLRACE_MUST_FAIL", *flags)
    if accepted:
        return 1, "the bad variant compiles"
    if flags:
        output = re.search(r"^.*\berror: .*$", output, re.M).group(0)
    for pattern in expected:
        if not re.search(pattern, output):
            return 1, f"the compiler's message does not match '{pattern}':\n{output}"
    for pattern in re.findall(r"^// not:\s*(.*\S)", text, re.M):
        if re.search(pattern, output):
            return 1, f"the compiler's message has '{pattern}':\n{output}"
    allowed = max([1, *(int(n) for n in re.findall(r"^// errors:\s*(\d+)", text, re.M))])
    errors = len(re.findall(r"\berror: ", output))
    if errors > allowed:
        return 1, f"{errors} errors instead of {allowed}:\n{output}"
    return 0, f"refused with the expected message ({len(expected)} patterns)"


GOOD = "#ifdef MILLRACE_MUST_FAIL\nstatic_assert(false, \"a stage takes a generator\");\n#endif\nint main() {}\n"
TWO = GOOD.replace("#endif", "static_assert(false, \"and that\");\n#endif")
CASES = [
    # name, text, expected exit status, pattern of the explanation
    ("refused as expected", "// expect: stage takes .* generator\n" + GOOD, 0, "expected message"),
    ("other message", "// expect: no such words\n" + GOOD, 1, "does not match 'no such words'"),
    ("second message missing", "// expect: stage\n// expect: no such words\n" + GOOD, 1, "does not match"),
    ("words that must not be there", "// expect: stage\n// not: takes a gen\n" + GOOD, 1, "has 'takes a gen'"),
    ("such words are not there", "// expect: stage\n// not: no such words\n" + GOOD, 0, "expected message"),
    ("a second error", "// expect: stage\n" + TWO, 1, "2 errors instead of 1"),
    ("a second error that is allowed", "// expect: stage\n// errors: 2\n" + TWO, 0, "expected message"),
    ("bad variant compiles", "// expect: x\n// MILLRACE_MUST_FAIL\nint main() {}\n", 1, "bad variant compiles"),
    ("good variant broken", "// expect: x\n// MILLRACE_MUST_FAIL\nint main() { return y; }\n", 1, "good variant"),
    ("no expectation", GOOD, 1, "no line"),
    ("no bad variant", "// expect: x\nint main() {}\n", 1, "does not use"),
    ("refused for an option", "// flags: -DX\n// expect: one\n#ifdef X\n#error one\n#error two\n#endif\n", 0, "expected"),
    ("not the first error", "// flags: -DX\n// expect: two\n#ifdef X\n#error one\n#error two\n#endif\n", 1, "does not match"),
    ("accepted with the option", "// flags: -DX\n// expect: one\nint main() {}\n", 1, "bad variant compiles"),
    ("condition holds", "// only-if: 1\n// expect: stage\n" + GOOD, 0, "expected message"),
    ("condition fails", "// only-if: MILLRACE_MUST_NEVER_BE_SET\n// expect: stage\n" + GOOD, SKIPPED, "skipped"),
    ("condition is nonsense", "// only-if: 1 +\n// expect: stage\n" + GOOD, 1, "cannot be evaluated"),
]


def self_test(command):
    failures = 0
    for name, text, status, pattern in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "case.cpp")
            path.write_text(text)
            got, explanation = check(command, path)
        if got != status or not re.search(pattern, explanation):
            failures += 1
            print(f"self-test: {name}: status {got}, '{explanation}'; expected {status}, '{pattern}'")
    print(f"self-test: {len(CASES)} cases, {failures} unexpected results")
    return 1 if failures else 0


def main(arguments):
    if len(arguments) < 3 or not arguments[0].startswith("--include="):
        print(__doc__)
        return 2
    folders = arguments[0][len("--include="):].split(":")
    command = arguments[1:-1] + [f"-I{folder}" for folder in folders if folder]
    if arguments[-1] == "--self-test":
        return self_test(command)
    status, explanation = check(command, arguments[-1])
    print(explanation)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
