#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the tree that no compiler checks.

    check_structure.py ROOT         checks a tree; prints FILE:LINE: rule: what is wrong; leaves with 1 if anything is
    check_structure.py --self-test  breaks each rule in a small tree of its own and sees it reported

Rules: root, spdx, pragma-once, line-cap, quotes, floor, confinement, cuda-apart, test-kit, flow-io, heavy,
mutable-global, stderr, bodies, unfinished, conditional-await, curl-waits, environment, macros, self-include,
sleep, columns, options, sums, words, openings, abi, components.
Each is explained where it is checked.
"""

import pathlib
import re
import sys
import tempfile

# A file includes only from its own floor or a lower one.
FLOORS = {
    "base": 0, "memory": 0, "text": 0, "data": 0,
    "coro": 1,
    "sync": 2, "loop": 2,
    "flow": 3, "io": 3,
    "http": 4, "retry": 4, "tar": 4, "device": 4, "cache": 4,
    "s3": 5, "cuda": 5,
    "shards": 6, "decode": 6, "records": 6, "order": 6, "testing": 6,
    "index": 7, "formats": 7,
    "train": 8,
    "loader": 9,
}
TOP_FLOOR = 10  # the headers of include/millrace/ itself
# Rooms of one folder, lowest first: a file in one includes only from its own room or from those before it. What stands
# in the folder itself is for all of them.
ROOMS = {"s3": ["sign", "wire", "config", "auth", "ops"]}
# Lines of code of a header, without comments and blank lines: more are two topics.
LINE_CAP = 800
# Columns of a line, of sources and pages.
WIDTH = 120
# What compiles every body: it includes them all, and the others those that need Arrow and FFmpeg.
ALL_BODIES = "src/millrace.cpp"
ARROW_BODIES = "src/millrace_parquet.cpp"
VIDEO_BODIES = "src/millrace_video.cpp"
# The variables that live as long as the program, each with its reason in docs/design/.
GLOBALS = {
    ("base/detail/first_time.hpp", "lines_said"),  # errors.md
    ("base/log.ipp", "log_of_process"),  # errors.md
    ("loader/detail/run_trace.ipp", "traces_of_process"),  # watching.md
    ("device/tensor.hpp", "batches"),  # slots.md
    ("device/tensor.hpp", "looked_at"),  # slots.md
    ("loader/detail/stop_causes.ipp", "signals_of_process"),  # dispositions of signals belong to the process
}

# The files that look at which components a unit is compiled with: millrace.hpp includes accordingly, image_decoder has
# other types for each set, and the others declare or define one function (MILLRACE_OTHER_COMPONENT). Anything else that
# looks at them has another layout or body in each unit.
COMPONENTS = {"millrace.hpp", "decode/image_decoder.hpp", "decode/image_decoder.ipp", "formats/mds.ipp",
              "index/detail/text_frames.ipp"}

# The files that may write to standard error: the log's default, the line with which a broken invariant aborts, and the
# progress line on a terminal. Everything else goes to the log, which programs replace.
STDERR = {"base/log.ipp", "base/compiler.hpp", "loader/detail/run_state.ipp"}

# The instruments of tests, for users' and our own: the library includes none of them.
TEST_KIT = {"testing"}

# Third-party headers and the folders of include/millrace that may include them.
CONFINED = {
    r"liburing(\.h|/)": "loop",
    r"curl/": "http",
    r"archive(_entry)?\.h": "tar",
    r"zlib\.h": "tar",
    r"zstd(_errors)?\.h": "tar",
    r"openssl/": "s3 formats testing/s3_server",
    r"expat(_external)?\.h": "s3",
    r"(cuda|cuda_runtime|cuda_runtime_api|driver_types|nvjpeg)\.h|cuda/|nvtx3/": "cuda",
    r"(jpeglib|jerror|turbojpeg|png)\.h": "decode",
    r"spng\.h": "decode",
    r"webp/": "decode",
    r"(sndfile|soxr)\.h": "decode",
    r"lib(av|sw)": "decode",
    r"dlpack/": "device",
    r"mpi\.h$": "mpi.hpp",
    r"pmix\.h$": "pmix.hpp",
    r"simdjson": "decode",
    r"(arrow|parquet)/": "records",
}
# Headers of the standard library that cost every user too much, or that g++ 12 does not have.
HEAVY = {"iostream", "regex", "format", "expected", "print", "generator", "mdspan", "bits/stdc++.h"}
# Names at the head of an include path that belong to the C library, the kernel and the compiler.
SYSTEM_FOLDERS = {"sys", "linux", "netinet", "arpa", "net", "asm", "bits", "sanitizer"}

# What is checked, beside the files of the root; pages that a script writes are not.
FOLDERS = {"include", "src", "tests", "examples", "bench", "cmake", ".ci", "docs", "packaging"}
GENERATED = {"docs/reference.md"}
ROOT_FILES = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
              "SECURITY.md"}

# Words that make readers stop, and what to write instead; in pages, and in comments and texts of sources.
WORDS = {
    r"(?:no|some|any|every)body": "name what does it",
    r"who(?:m|so)?ever": "name what does it",
    r"(?<!\bleft\x20)(?<!\bnothing\x20)behind(?! (?:a|the) (?:proxy|firewall|load balancer)\b)": "after",
    r"hand(?:s|ed|ing)?(?: (?:it|them|that|this|items?))? (?:on|over)": "pass, yield, deliver",
    r"who comes": "callers",
    r"(?:is|are|was|were|be|been|being) told": "gets an error, is set, is known",
    r"(?:that|which|it|one|they) (?:is|are) none": "no ..., is not a ...",
    r"batch(?:es)? of nothing": "empty batches",
    r"gone on": "continued",
    r"borne|bears? (?:it|them|that|this)": "tolerated",
    r"takes? no notice": "ignores",
    r"one's own": "your own",
}
WORDS_RE = re.compile("|".join(rf"\b(?P<w{i}>{word})\b" for i, word in enumerate(WORDS)).replace(" ", r"\s+"), re.I)

# Comments of headers and bodies are sentences with a subject and a verb, or noun phrases: at most so many of 1,000 of
# their lines begin with one of these words, which begin a clause that is neither.
OPENING = re.compile(r"//[/!]?<? ?(?:What|Whether|Of|Where|Those|As|The same)\b")
OPENINGS = 20

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)


def code_of(text):
    """The text without its comments and the contents of its strings; every line keeps its number."""
    return COMMENT_OR_STRING.sub(lambda m: '""' if m.group(0)[0] == '"' else re.sub(r"[^\n]", " ", m.group(0)), text)


def floor_of(relative):
    parts = relative.split("/")
    if len(parts) == 1:
        return 0 if relative == "version.hpp" else TOP_FLOOR
    return FLOORS.get(parts[0])


def room_of(relative):
    """The folder and this file's number among its rooms; None where it is in none."""
    parts = relative.split("/")
    rooms = ROOMS.get(parts[0], [])
    return (parts[0], rooms.index(parts[1])) if len(parts) > 2 and parts[1] in rooms else None


DECLARATION = re.compile(r"^[ \t]*(?:(?:static|inline)\s+)+([^;={}()]*?)(=|;|\{|\()", re.M)


def mutable_globals(code):
    """(offset, name) of variables that live as long as the program and can change, as far as a glance can tell."""
    for match in DECLARATION.finditer(code):
        declaration, end = match.group(1).strip(), match.group(2)
        if end == "(" or re.search(r"\boperator\W*$", declaration):
            continue  # a function
        if re.match(r"(constexpr|consteval|namespace|struct|class|enum|union|auto)\b", declaration):
            continue
        words = re.findall(r"\w+", declaration.split("[")[0])  # an array: without its size
        value = declaration.split("*")[-1]  # of a pointer, only what follows the last star makes it constant
        if len(words) < 2 or re.search(r"\bconst\b", value):
            continue
        yield match.start(1), words[-1]


def check_header(relative, text, report):
    """One file of include/millrace/: a header, or the bodies of one."""
    folder = relative.split("/")[0] if "/" in relative else ""
    own = floor_of(relative)
    lines = text.splitlines()
    code = code_of(text)

    if "#pragma once" not in code:
        report(1, "pragma-once", "the header has no #pragma once")
    count = sum(1 for line in code.splitlines() if line.strip())
    if count > LINE_CAP and relative.endswith(".hpp"):
        report(1, "line-cap", f"{count} lines of code; split the file by idea (at most {LINE_CAP})")
    if own is None:
        report(1, "floor", f"{folder}/ has no floor; name it in FLOORS")

    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, path = match.groups()
        if kind == '"':
            report(number, "quotes", f'write <millrace/...> instead of "{path}"')
        if path.startswith("millrace/"):
            target = path[len("millrace/"):]
            target_folder = target.split("/")[0] if "/" in target else ""
            theirs = floor_of(target)
            if own is not None and (theirs is None or theirs > own):
                report(number, "floor", f"<{path}> is on floor {theirs}, this file on floor {own}")
            room, their_room = room_of(relative), room_of(target)
            if room and their_room and room[0] == their_room[0] and their_room[1] > room[1]:
                report(number, "floor", f"<{path}> is in a room above this file's")
            # A machine without the toolkit must be able to include everything else.
            if target_folder == "cuda" and folder != "cuda" and relative != "millrace_cuda.hpp":
                report(number, "cuda-apart", f"only cuda/ and millrace_cuda.hpp include <{path}>")
            if target_folder in TEST_KIT and folder not in TEST_KIT:
                report(number, "test-kit", f"the library does not include its test kit (<{path}>)")
            # Stages of flow/ run on any executor: no kernel, no network.
            if folder == "flow" and target_folder in ("loop", "http"):
                report(number, "flow-io", f"flow/ knows no I/O (<{path}>)")
        elif kind == "<":
            for pattern, home in CONFINED.items():
                if re.match(pattern, path) and not any((relative + "/").startswith(h + "/") for h in home.split()):
                    report(number, "confinement", f"<{path}> is included in {' and '.join(home.split())} only")
            known = any(re.match(pattern, path) for pattern in CONFINED)
            head = path.split("/")[0] if "/" in path else ""
            if head and head not in SYSTEM_FOLDERS and not known:
                report(number, "confinement", f"<{path}> belongs to no folder; name it in CONFINED")
            if path in HEAVY:
                report(number, "heavy", f"<{path}> does not belong in a public header")

    for number, line in enumerate(code.splitlines(), 1):
        if re.search(r"\b(stderr|cerr|clog|STDERR_FILENO)\b", line) and relative not in STDERR and folder not in TEST_KIT:
            report(number, "stderr", "what the library says goes to the log: log_line(), log_to_process()")
        if re.search(r"\bthread_local\b", line):
            report(number, "mutable-global", "thread_local: state of a thread outlives and escapes the pipeline")
        # libcurl is driven by curl_multi_socket_action() only: the loop is what waits.
        if re.search(r"\bcurl_(multi_(perform|poll|wait|fdset)|easy_perform)\b", line):
            report(number, "curl-waits", "libcurl does not wait, and does not look at every transfer, on a loop's thread")
        if re.match(r"\s*namespace millrace(?!::inline MILLRACE_ABI\b)\b", line):
            report(number, "abi", "names stand in `namespace millrace::inline MILLRACE_ABI`")
        if "MILLRACE_WITH_" in line and relative not in COMPONENTS:
            report(number, "components", "no layout and no body depends on the components of a unit")
        # Tests give tables in place of the process's variables, and users can.
        if re.search(r"\b(secure_)?getenv\b", line) and relative != "base/environment.hpp":
            report(number, "environment", "the environment is read through <millrace/base/environment.hpp>")
    # Macros decide what a class looks like, and a macro that is not defined is 0: all units must see the same ones.
    macro = re.search(r"\bMILLRACE_(ASAN|TSAN|ASSERT|INLINE|COROUTINE\w*|NOINLINE|ALWAYS_INLINE|LAUNDER|U?N?LIKELY)\b", code)
    if macro and relative != "base/compiler.hpp" and "#include <millrace/base/compiler.hpp>" not in code:
        report(code.count("\n", 0, macro.start()) + 1, "macros", f"{macro.group()} is used, but base/compiler.hpp not included")
    for offset, name in mutable_globals(code):
        if (relative, name) in GLOBALS:
            continue
        number = code.count("\n", 0, offset) + 1
        report(number, "mutable-global", f"{name} is mutable and lives as long as the program")
    check_conditional_await(code, report)


def check_bodies(root, findings):
    """Every <name>.ipp stands beside <name>.hpp, which includes it, header-only, as does the
    source of all bodies."""
    base = root / "include/millrace"
    sources = [root / ALL_BODIES, root / ARROW_BODIES, root / VIDEO_BODIES]
    compiled = "".join(source.read_text(encoding="utf-8") for source in sources if source.exists())
    for path in sorted(base.rglob("*.ipp")):
        name = path.relative_to(base).as_posix()
        line = f"#include <millrace/{name}>\n"
        header = path.with_suffix(".hpp")
        here = f"include/millrace/{name}"
        if not header.exists():
            findings.append((here, 1, "bodies", "bodies stand beside their header, under its name"))
        elif f"#if !defined(MILLRACE_SEPARATE_COMPILATION)\n{line}#endif\n" not in header.read_text(encoding="utf-8"):
            findings.append((here, 1, "bodies", f"{header.name} does not include them where they are compiled with it"))
        others = re.findall(r"^#include <millrace/((\w+)/\S+\.ipp)>$", path.read_text(encoding="utf-8"), re.M)
        for other in [other for other, room in others if room != name.split("/")[0]]:
            findings.append((here, 1, "bodies", f"{other} is of another room, whose unit has it"))
        if compiled.count(line) != 1:
            findings.append((here, 1, "bodies", f"{ALL_BODIES} does not include them, or does so twice"))


def check_abi(root, findings):
    """Whatever opens the namespace knows its inline namespace: it includes version.hpp, by whatever way."""
    folder = root / "include"
    paths = [p for p in sorted(folder.rglob("*")) if p.suffix in (".hpp", ".ipp")]
    texts = {p.relative_to(folder).as_posix(): code_of(p.read_text(encoding="utf-8")) for p in paths}
    # Not the bodies, which stand at the end and are not there where they are compiled once.
    includes = {name: re.findall(r"^#\s*include\s*<(millrace/[^>]+\.hpp)>", text, re.M) for name, text in texts.items()}
    for name, text in texts.items():
        seen, rest = set(), [name]
        while rest:
            new = [i for i in includes.get(rest.pop(), []) if i not in seen]
            seen.update(new)
            rest += new
        opened = re.search(r"^namespace millrace\b", text, re.M)
        if opened and name != "millrace/version.hpp" and "millrace/version.hpp" not in seen:
            number = text.count("\n", 0, opened.start()) + 1
            findings.append(("include/" + name, number, "abi", "the file includes no <millrace/version.hpp>"))


def check_unfinished(root, findings):
    """Without MILLRACE_SEPARATE_COMPILATION a header ends with its bodies, which include other headers: no file may
    then stand on one that is not finished, whichever header a program includes first. A header is finished where its
    own bodies begin; an include that nothing follows stands on nothing."""
    folder = root / "include"
    includes = {}
    for path in folder.rglob("*.[hi]pp"):
        code = code_of(path.read_text(encoding="utf-8", errors="replace"))
        includes[path.relative_to(folder).as_posix()] = [
            (match.group(1), code.count("\n", 0, match.start()) + 1,
             re.fullmatch(r"(\s|#.*|})*", code[match.end():]) is not None)
            for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*<(millrace/[^>]*)>", code, re.M)]
    found = {}

    def include(name, seen, opened, line, last):
        if name in opened:
            after = opened[opened.index(name) + 1:]
            if name.endswith(".hpp") and after[:1] != [name[:-4] + ".ipp"] and not last:
                found.setdefault((after[-1] if after else name, line, name), opened[0])
            return
        if name in seen or name not in includes:
            return
        seen.add(name)
        opened.append(name)
        for one in includes[name]:
            include(one[0], seen, opened, *one[1:])
        opened.pop()

    for name in sorted(includes):
        if name.endswith(".hpp"):
            include(name, set(), [], 0, False)
    for (name, line, header), first in sorted(found.items()):
        findings.append((f"include/{name}", line, "unfinished", f"<{header}> is not finished here where a program "
                         f"includes <{first}> first: include it from where less is needed"))


def check_conditional_await(code, report):
    """g++ 12 evaluates both arms of a conditional inside what is awaited or yielded."""
    for match in re.finditer(r"\bco_(?:await|yield)\b[^;{}?]*\?", code):
        number = code.count("\n", 0, match.start()) + 1
        report(number, "conditional-await", "no ?: inside co_await or co_yield: name its value first")


def check_test(relative, text, report):
    """One file tests/<area>/<name>_test.cpp."""
    if not relative.startswith("tests/compiler/"):
        check_conditional_await(code_of(text), report)
    # The header under test comes first, so that it is seen to stand on its own. It may be one of the tests' own
    # instruments (tests/fake_cuda/), but not what every test includes.
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            if not re.match(r"millrace/|tests/(?!support/)", match.group(2)):
                report(number, "self-include", "the first include of a test is the header that it tests")
            break
    for number, line in enumerate(code_of(text).splitlines(), 1):
        # The library's own sleep_for() is another thing: it takes the loop's time, which is virtual in most tests.
        if re.search(r"this_thread::sleep_(for|until)\b|\b(usleep|nanosleep)\s*\(|(?<![\w.>)])(::\s*)?sleep\s*\(", line):
            report(number, "sleep", "tests wait on events or on virtual time, not on the clock")


# What begins with a point in a sentence and is no option: endings of files, a method of numpy's arrays, a member of a
# saved state, a part of a host's name.
NO_OPTIONS = {"npy", "npz", "astype", "tar", "idx", "jpg", "png", "cls", "json", "txt", "gz", "zst", "bz2", "xz", "rest",
              "lzma", "br", "lz4", "zip", "wav", "flac", "mp3", "ogg", "webp", "jpeg", "new", "reads",
              "dualstack", "snd", "parquet", "offsets", "bin", "mds", "snappy", "zstd"}


def options_of(root):
    """{name of a struct of options: its members}, of all headers."""
    found = {}
    for path in sorted((root / "include/millrace").rglob("*.hpp")):
        code = code_of(path.read_text(encoding="utf-8", errors="replace"))
        for match in re.finditer(r"\b(?:struct|class)\s+(\w+_options|failure_policy|dataset_mix|center|random_resized)\b[^;{]*\{", code):
            end = code.find("\n};", match.end())
            members = re.findall(r"\b(\w+)\s*(?:=[^;]*|\{[^;]*)?;", code[match.end():end])
            found.setdefault(match.group(1), set()).update(members)
    if "epochs_options" in found:  # the data that epochs() is given
        for data in ("dataset_mix", "dataset_options", "dataset_mix_options"):
            found["epochs_options"] |= found.get(data, set())
    return found


def check_options(root, findings):
    """A sentence that tells the user to change an option names one that is there, and of the struct that it says."""
    known = options_of(root)
    everywhere = set().union(*known.values()) if known else set()
    for path in sorted((root / "include/millrace").rglob("*.?pp")):
        relative = path.relative_to(root).as_posix()
        if "/testing/" in relative:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if INCLUDE.match(line) or line.lstrip().startswith("//"):
                continue
            for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', line):
                for struct, member in re.findall(r"\b(\w+_options)::(\w+)", literal):
                    if member not in known.get(struct, set()):
                        findings.append((relative, number, "options", f"there is no {struct}::{member}"))
                # "stage: .option ..." and .named("stage", "raise its .option"): of that stage.
                stage = re.match(r"(\w+): ", literal) or re.search(r'named\("(\w+)", "raise', line)
                of = known.get(f"{stage.group(1)}_options") if stage else None
                for member in re.findall(r"(?:^|[\s({])\.([a-z_]+)\b(?!\()", literal):
                    if member in NO_OPTIONS or member in (of if of is not None else everywhere):
                        continue
                    findings.append((relative, number, "options", f"a sentence names .{member}, which is no option"))


# Their `now` is a number of seconds of the calendar, and what is added is bounded.
SECONDS = {"include/millrace/s3/auth/refreshing_credentials.hpp", "include/millrace/s3/auth/detail/profile_sources.hpp"}


def check_sums(root, findings):
    """duration::max() and SIZE_MAX are values of options: times that are waited for, and sums and products of options that
    are durations or sizes, are made by added() and multiplied() (base/clock.hpp, base/units.hpp)."""
    fields = set()
    headers = sorted((root / "include/millrace").rglob("*.?pp"))
    codes = [(path.relative_to(root).as_posix(), code_of(path.read_text(encoding="utf-8", errors="replace")))
             for path in headers + sorted((root / "src").rglob("*.cpp"))]
    for _, code in codes:
        for struct in re.finditer(r"^(?:struct|class) \w+_options\b[^{;]*\{(.*?)^\};", code, re.M | re.S):
            fields |= set(re.findall(r"^\s+(?:duration|std::size_t) (\w+)\s*(?:=[^;]*)?;", struct.group(1), re.M))
    option = rf"\b(?:options_?|how|with|limits)\.(?:{'|'.join(sorted(fields)) or '(?!)'})\b(?!\()"
    now = r"(?:\w+(?:\.|->))*now(?:_ns)?\b_?(?:\(\))?"
    by_hand = r"(?:SIZE_MAX|UINT64_MAX|\bmax\(\)) [-/] [\w.>()-]+ \?"
    sum_of = re.compile(rf"(?<![/%] )(?<![\w.]){option} [+*]=? |[^+] ?[+*]=? {option}|(?<!\"\" \+ )(?<![\w.>]){now} \+ |"
                        rf"[\w)] \+ {now}(?! \+ \"\")(?![\w.(])|{by_hand}")
    for relative, code in codes:
        if relative in SECONDS or relative.endswith(("base/clock.hpp", "base/units.hpp")):
            continue
        for number, line in enumerate(code.splitlines(), 1):
            if sum_of.search(line):
                findings.append((relative, number, "sums", "it may overflow: write added() or multiplied()"))


def check_columns(path, text, report):
    """Not what cannot be broken: rows of tables, includes, single long words; of scripts, only comments are looked at."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) <= WIDTH or INCLUDE.match(line) or (path.suffix == ".md" and line.lstrip().startswith("|")):
            continue
        if path.suffix in (".py", ".sh") and not line.lstrip().startswith("#"):
            continue
        if len(line.split()) > 2:  # two: a mark of a list or a comment, and a URL behind it
            report(number, "columns", f"the line has {len(line)} columns, not {WIDTH} at most; pages: docs/tools/wrap.py")


def check_words(path, text, report):
    if path.name == "check_structure.py":
        return  # it names them
    if path.suffix in (".hpp", ".ipp", ".cpp", ".h", ".cu"):  # comments and texts stay, and every line keeps its number
        marks = re.compile(r"[^\n]")
        kept, last = [], 0
        for match in COMMENT_OR_STRING.finditer(text):
            kept.append(marks.sub(" ", text[last:match.start()]))
            kept.append(re.sub(r"^(?:///?<?|/\*|\")|\"$", lambda m: " " * len(m.group()), match.group()))
            last = match.end()
        text = "".join(kept)
    for match in WORDS_RE.finditer(text):
        instead = list(WORDS.values())[int(match.lastgroup[1:])]
        report(text.count("\n", 0, match.start()) + 1, "words", f"{' '.join(match.group().split())}: {instead}")


def check_openings(root, findings):
    comments, found = 0, []
    for path in sorted((root / "include").rglob("*.?pp")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in COMMENT_OR_STRING.finditer(text):
            if match.group().startswith("//") and "SPDX-" not in match.group():
                comments += 1
                if OPENING.match(match.group()):
                    found.append((path.relative_to(root).as_posix(), text.count("\n", 0, match.start()) + 1, "openings",
                                  match.group()))
    if 1000 * len(found) > OPENINGS * max(comments, 1000):
        findings += found


def spdx_ok(text):
    head = [line for line in text.splitlines()[:4] if not line.startswith("#!")]
    return (len(head) >= 2 and "SPDX-FileCopyrightText: The millrace authors" in head[0]
            and "SPDX-License-Identifier: Apache-2.0" in head[1])


def check_tree(root):
    """Every finding as (file, line, rule, message); files in order of their names."""
    findings = []
    root = pathlib.Path(root)
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root).as_posix()
        top = relative.split("/")[0]
        if top == relative and path.is_file() and top not in ROOT_FILES and not top.startswith("."):
            findings.append((relative, 1, "root", "no file of the project: what a test or a program left"))
        if top not in FOLDERS and relative not in ROOT_FILES:
            continue
        if not path.is_file():
            continue
        source = path.suffix in (".hpp", ".ipp", ".cpp", ".h", ".cu", ".py", ".sh", ".cmake", ".in") or path.name in (
            "CMakeLists.txt", "run")
        page = path.suffix == ".md" and relative not in GENERATED and not relative.startswith("bench/results/")
        if not source and not page:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        report = lambda line, rule, message: findings.append((relative, line, rule, message))
        check_columns(path, text, report)
        check_words(path, text, report)
        if page:
            continue
        if not spdx_ok(text):
            report(1, "spdx", "the first two lines are not the SPDX lines")
        if relative.startswith("include/millrace/") and path.suffix in (".hpp", ".ipp"):
            check_header(relative[len("include/millrace/"):], text, report)
        if re.fullmatch(r"tests/[^/]+/[^/]+_test\.cpp", relative):
            check_test(relative, text, report)
    check_bodies(root, findings)
    check_abi(root, findings)
    check_unfinished(root, findings)
    check_options(root, findings)
    check_sums(root, findings)
    check_openings(root, findings)
    return findings


# --- the self-test

SPDX = "// SPDX-FileCopyrightText: The millrace authors\n// SPDX-License-Identifier: Apache-2.0\n"
GOOD = {
    "include/millrace/base/a.hpp": SPDX + "#pragma once\n#include <vector>\n"
    "inline constexpr int limit = 3;\nstatic const char* const units[] = {\"static int x = 1;\"};\n"
    "inline int twice(int x) { return x * 2; }\nstatic thing make();\n// static int commented = 1; thread_local too\n"
    "struct s { static constexpr int k = 1; static bool is(int a) { return a == k; } static s of(int x);\n"
    "  static int plain() noexcept; int member = 0; };\n"
    "inline bool operator==(const s& a, const s& b) noexcept { return &a == &b; }\n",
    "include/millrace/records/lines.hpp": SPDX + "#pragma once\nstruct lines_options {\n  int length = 3;  ///< bytes\n};\n"
    "struct other_options {\n  int other{3};\n};\nauto a = \"lines: .length is not other_options::other, nor .other\";\n".replace(
        ", nor .other", "") + "auto b = \"raise its .other\";\nauto c = \"no .npy\";\n",
    "include/millrace/flow/sums.hpp": SPDX + "#pragma once\nstruct window_options {\n  std::size_t window = 3;\n"
    "  duration patience = duration(1);\n};\nauto a = added(ex.now(), options.patience);\nauto b = x / options.window + 1;\n"
    "auto c = \"it is \" + now + \" now\";\nauto d = bytes == 0 ? SIZE_MAX : bytes;\nauto e = options.window;\n",
    "include/millrace/base/environment.hpp": SPDX + "#pragma once\ninline auto f() { return std::getenv(\"X\"); }\n",
    "include/millrace/coro/b.hpp": SPDX + "#pragma once\n#include <millrace/base/a.hpp>\n#include <sys/mman.h>\n",
    "include/millrace/loop/ring.hpp": SPDX + "#pragma once\n#include <liburing.h>\n#include <millrace/sync/x.hpp>\n",
    "include/millrace/http/client.hpp": SPDX + "#pragma once\n#include <curl/curl.h>\n#include <millrace/io/x.hpp>\n",
    "include/millrace/cuda/stream.hpp": SPDX + "#pragma once\n#include <cuda_runtime_api.h>\n#include <memory>\n",
    "include/millrace/http/whole.hpp": SPDX + "#pragma once\nvoid f();\n#if !defined(MILLRACE_SEPARATE_COMPILATION)\n"
    "#include <millrace/http/whole.ipp>\n#endif\n" + "// a comment\n\n" * 800,
    "include/millrace/http/whole.ipp": SPDX + "#pragma once\n#include <curl/curl.h>\n#include <millrace/http/bad.hpp>\n"
    "inline void f() {}\n" + "f();\n" * 800,
    "src/millrace.cpp": SPDX + "#include <millrace/http/whole.ipp>\n",
    "include/millrace/mpi.hpp": SPDX + "#pragma once\n#include <mpi.h>\n#include <millrace/base/a.hpp>\n",
    "include/millrace/millrace.hpp": SPDX + "#pragma once\n#include <millrace/loader/x.hpp>\n",
    "docs/words.md": "The store stands behind a proxy; nothing is left behind, unless told otherwise.\n",
    "examples/words.cpp": SPDX + "int nobody, behind;  // the names of code are not read\n",
    "docs/table.md": "| " + "cell | " * 30 + "\n\n- https://example.org/" + "x" * 120 + "\n",
    "tests/base/a_test.cpp": SPDX + "#include <millrace/base/a.hpp>\n#include <vector>\n",
    "tests/coro/b_test.cpp": SPDX + "#include <millrace/coro/b.hpp>\ntask<void> f() { co_await sleep_for(1ms); }\n",
    "tests/fake_x/a_test.cpp": SPDX + '#include "tests/fake_x/fake.hpp"\n',
    "tests/run.sh": "#!/bin/sh\n" + SPDX.replace("//", "#"),
}
# (rule, file, its text): each added to the good tree must be reported under exactly this rule.
BAD = [
    ("spdx", "include/millrace/base/bad.hpp", "#pragma once\n"),
    ("spdx", "tests/x/bad.py", "print()\n"),
    ("pragma-once", "include/millrace/base/bad.hpp", SPDX + "// #pragma once\n"),
    ("columns", "include/millrace/base/bad.hpp", SPDX + "#pragma once\n// " + "a word " * 17 + "\n"),
    ("columns", "docs/bad.md", "A page of " + "words " * 20 + "\n"),
    ("columns", "cmake/bad.cmake", SPDX.replace("//", "#") + "set(x " + "y " * 60 + ")\n"),
    ("line-cap", "include/millrace/base/bad.hpp", SPDX + "#pragma once\n" + "int f();\n" * 800),
    ("quotes", "include/millrace/base/bad.hpp", SPDX + '#pragma once\n#include "a.hpp"\n'),
    ("floor", "include/millrace/base/bad.hpp", SPDX + "#pragma once\n#include <millrace/coro/b.hpp>\n"),
    ("floor", "include/millrace/sync/bad.hpp", SPDX + "#pragma once\n# include  <millrace/flow/b.hpp>\n"),
    ("floor", "include/millrace/loader/bad.hpp", SPDX + "#pragma once\n#include <millrace/millrace.hpp>\n"),
    ("floor", "include/millrace/attic/bad.hpp", SPDX + "#pragma once\n"),
    ("confinement", "include/millrace/io/bad.hpp", SPDX + "#pragma once\n#include <liburing.h>\n"),
    ("confinement", "include/millrace/s3/bad.hpp", SPDX + "#pragma once\n#include <curl/curl.h>\n"),
    ("confinement", "include/millrace/shards/bad.hpp", SPDX + "#pragma once\n#include <archive.h>\n"),
    ("confinement", "include/millrace/http/bad.hpp", SPDX + "#pragma once\n#include <openssl/evp.h>\n"),
    ("confinement", "include/millrace/http/bad.hpp", SPDX + "#pragma once\n#include <expat.h>\n"),
    ("confinement", "include/millrace/device/bad.hpp", SPDX + "#pragma once\n#include <cuda_runtime_api.h>\n"),
    ("confinement", "include/millrace/records/bad.hpp", SPDX + "#pragma once\n#include <spng.h>\n"),
    ("confinement", "include/millrace/records/bad.hpp", SPDX + "#pragma once\n#include <jpeglib.h>\n"),
    ("confinement", "include/millrace/records/bad.hpp", SPDX + "#pragma once\n#include <webp/decode.h>\n"),
    ("confinement", "include/millrace/memory/bad.hpp", SPDX + "#pragma once\n#include <dlpack/dlpack.h>\n"),
    ("confinement", "include/millrace/train/bad.hpp", SPDX + "#pragma once\n#include <mpi.h>\n"),
    ("confinement", "include/millrace/loader/bad.hpp", SPDX + "#pragma once\n#include <spdlog/spdlog.h>\n"),
    ("cuda-apart", "include/millrace/loader/bad.hpp", SPDX + "#pragma once\n#include <millrace/cuda/stream.hpp>\n"),
    ("cuda-apart", "include/millrace/millrace.hpp", SPDX + "#pragma once\n#include <millrace/cuda/stream.hpp>\n"),
    ("test-kit", "include/millrace/loader/bad.hpp", SPDX + "#pragma once\n#include <millrace/testing/x.hpp>\n"),
    ("test-kit", "include/millrace/train/bad.hpp", SPDX + "#pragma once\n#include <millrace/testing/s3_server/x.hpp>\n"),
    ("floor", "include/millrace/s3/sign/bad.hpp", SPDX + "#pragma once\n#include <millrace/s3/ops/detail/x.hpp>\n"),
    ("confinement", "include/millrace/testing/bad.hpp", SPDX + "#pragma once\n#include <openssl/evp.h>\n"),
    ("bodies", "include/millrace/http/bad.ipp", SPDX + "#pragma once\n"),
    ("bodies", "include/millrace/http/whole.ipp", SPDX + "#pragma once\n#include <millrace/base/other.ipp>\n"),
    ("options", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = \"raise lines_options::lenght\";\n"),
    ("options", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = \"lines: .lenght must not be 0\";\n"),
    ("options", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = s.named(\"lines\", \"raise its .other\");\n"),
    ("options", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = \"give it one (.neither)\";\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = ex.now() + pause;\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = pause + loop->now();\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = now + limit_;\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = begun + options_.patience;\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = 2 * options.window;\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = how.window * shards;\n"),
    ("sums", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nauto x = b > SIZE_MAX - a ? SIZE_MAX : a + b;\n"),
    ("bodies", "include/millrace/http/whole.hpp", SPDX + "#pragma once\nvoid f();\n"),
    ("bodies", "src/millrace.cpp", SPDX),
    ("bodies", "src/millrace.cpp", SPDX + "#include <millrace/http/whole.ipp>\n" * 2),
    ("unfinished", "include/millrace/http/bad.hpp", SPDX + "#pragma once\n#include <millrace/http/whole.hpp>\nint x;\n"),
    ("confinement", "include/millrace/http/whole.ipp", SPDX + "#pragma once\n#include <openssl/evp.h>\n"),
    ("floor", "include/millrace/http/whole.ipp", SPDX + "#pragma once\n#include <millrace/s3/x.hpp>\n"),
    ("flow-io", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\n#include <millrace/loop/ring.hpp>\n"),
    ("heavy", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\n#include <iostream>\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\nthread_local int x = 0;\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\ninline int x = 0;\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\n  static std::atomic<int> x{0};\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\nstatic std::map<int, int> x;\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\nstatic const char* x = \"\";\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\ninline int lines_said = 0;\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\nstatic int table[3] = {};\n"),
    ("mutable-global", "include/millrace/base/bad.hpp", SPDX + "#pragma once\ninline constinit int all_rings = 0;\n"),
    ("stderr", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nvoid f() { std::fputs(\"x\", stderr); }\n"),
    ("macros", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nstruct x {\n#if MILLRACE_ASAN\nint y;\n#endif\n};\n"),
    ("conditional-await", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nco_await sleep_for(late ? a : b);\n"),
    ("conditional-await", "include/millrace/flow/bad.hpp", SPDX + "#pragma once\nco_yield f(late\n  ? a : b);\n"),
    ("curl-waits", "include/millrace/http/bad.hpp", SPDX + "#pragma once\ncurl_multi_perform(multi, &running);\n"),
    ("curl-waits", "include/millrace/http/bad.hpp", SPDX + "#pragma once\ncurl_multi_poll (m, 0, 0, 1, 0);\n"),
    ("curl-waits", "include/millrace/http/bad.hpp", SPDX + "#pragma once\ncurl_multi_wait(m, 0, 0, 1, 0);\n"),
    ("curl-waits", "include/millrace/http/bad.hpp", SPDX + "#pragma once\nauto f = &::curl_easy_perform;\n"),
    ("abi", "include/millrace/s3/bad.hpp", SPDX + "#pragma once\n#include <millrace/version.hpp>\nnamespace millrace {\n}\n"),
    ("abi", "include/millrace/s3/bad.hpp", SPDX + "#pragma once\n#include <millrace/version.hpp>\nnamespace millrace::s3 {\n}\n"),
    ("abi", "include/millrace/s3/bad.hpp", SPDX + "#pragma once\nnamespace millrace::inline MILLRACE_ABI::s3 {\n}\n"),
    ("components", "include/millrace/s3/bad.hpp", SPDX + "#pragma once\n#if defined(MILLRACE_WITH_S3)\n#endif\n"),
    ("environment", "include/millrace/s3/bad.hpp", SPDX + "#pragma once\nauto x = std::getenv(\"HOME\");\n"),
    ("self-include", "tests/base/bad_test.cpp", SPDX + '#include "tests/support/catch.hpp"\n'),
    ("root", "left_by_a_test.index", "x"),
    ("sleep", "tests/base/bad_test.cpp", SPDX + "#include <millrace/base/a.hpp>\nvoid f() { usleep (1); }\n"),
    ("sleep", "tests/base/bad_test.cpp", SPDX + "#include <millrace/base/a.hpp>\nvoid f() { std::this_thread::sleep_for(d); }\n"),
    ("sleep", "tests/base/bad_test.cpp", SPDX + "#include <millrace/base/a.hpp>\nvoid f() { ::sleep(1); }\n"),
    ("words", "docs/bad.md", "Nobody reads that.\n"),
    ("words", "README.md", "Items are handed\non.\n"),
    ("openings", "include/millrace/base/bad.hpp", SPDX + "#pragma once\n" + "int a;  ///< What it has.\n" * 21),
    ("words", "examples/bad.cpp", SPDX + "/// A share that is\n/// none.\nint x;\n"),
    ("words", "examples/bad.cpp", SPDX + "auto x = \"the stage that stands \"\n  \"behind epochs()\";\n"),
]


def self_test():
    failures = []
    for rule, name, text in [(None, None, None)] + BAD:
        with tempfile.TemporaryDirectory() as folder:
            for path, good in {**GOOD, **({name: text} if name else {})}.items():
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(good)
            found = {(f, r) for f, _, r, _ in check_tree(folder)}
            # What is wrong between bodies, their header and the source is reported at the bodies.
            at_bodies = rule == "unfinished" or rule == "bodies" and "bad" not in name
            expected = {("include/millrace/http/whole.ipp" if at_bodies else name, rule)} if name else set()
            if found != expected:
                failures.append(f"expected {sorted(expected)}, found {sorted(found)} for:\n{text}")
    rules = set(re.findall(r"^Rules: (.*?)\.\sEach", __doc__, re.M | re.S)[0].replace("\n", " ").split(", "))
    unbroken = rules - {rule for rule, _, _ in BAD}
    if unbroken:
        failures.append(f"rules that the self-test does not break: {sorted(unbroken)}")
    for failure in failures:
        print("self-test:", failure)
    print(f"self-test: {len(BAD)} seeded violations of {len(rules)} rules, {len(failures)} unexpected results")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    findings = check_tree(arguments[0])
    for name, line, rule, message in findings:
        print(f"{name}:{line}: {rule}: {message}")
    headers = len(list(pathlib.Path(arguments[0], "include").rglob("*.hpp")))
    if headers == 0:
        print("no headers found: is this the root of the project?")
        return 1
    print(f"{headers} headers checked, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
